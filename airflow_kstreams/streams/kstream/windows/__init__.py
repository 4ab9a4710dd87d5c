"""Turns a fold by windows into nodes and stores.

Called by the classes of the DSL. The operators of the nodes are in ``operators/windows``.
"""
