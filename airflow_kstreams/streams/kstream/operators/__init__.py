"""Holds the operators of the DSL: frozen values that say what a node does, and bind its closure in a task.

Added to a topology by the modules of ``kstream`` above; bound by ``runtime`` through the protocol
``Operator``. Imports ``graph``, ``state.stores`` and the modules at the top of ``streams``. Numbered names,
serdes and checks of what a user gave belong to the modules above.
"""
