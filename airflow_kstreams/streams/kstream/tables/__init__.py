"""Turns a call on a table into nodes, and so makes tables of tables.

Called by the classes of the DSL. The operators of the nodes are in ``operators/tables``.
"""
