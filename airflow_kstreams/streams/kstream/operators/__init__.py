"""Holds the operators of the DSL: frozen values that define a node's work, and bind its closure in a task.

Added to a topology by the modules of ``kstream`` above; bound by ``runtime`` through the protocol
``Operator``. Imports ``graph``, ``state.stores`` and the modules at the top of ``streams``. Numbered names,
serdes and checks of a user's arguments belong to the modules above.
"""
