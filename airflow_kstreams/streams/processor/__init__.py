"""The Processor API: user code that processes each record, keeps state and forwards results.

Users' processors import it; ``kstream`` and ``topology`` add its operator as a node. It imports ``graph``,
``serde`` and ``state.stores``. Ready-made operators are in ``kstream``.
"""
