"""Folds by windows: how a call on grouped records becomes nodes and stores.

Called by the classes of the DSL. What a node does is in ``operators/windows``.
"""
