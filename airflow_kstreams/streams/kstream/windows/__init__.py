"""Turns a fold by windows into nodes and stores.

Called by the classes of the DSL. What a node does is in ``operators/windows``.
"""
