"""The Processor API: user code that sees each record, keeps state and forwards what it likes.

Users' processors import it; ``kstream`` and ``topology`` add its operator as a node. Imports ``graph``,
``serde`` and ``state.stores``. Ready-made operators are in ``kstream``.
"""
