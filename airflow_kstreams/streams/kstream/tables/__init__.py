"""Turns a call on a table into nodes, and so makes tables of tables.

Called by the classes of the DSL. What a node does is in ``operators/tables``.
"""
