"""Tables of tables: how a call on a table becomes nodes.

Called by the classes of the DSL. What a node does is in ``operators/tables``.
"""
