"""Holds the operators of tables: sources, changes of values, joins of tables.

Added to a topology by ``kstream/tables``; rules as in the folder above.
"""
