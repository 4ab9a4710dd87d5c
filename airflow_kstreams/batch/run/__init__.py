"""Coordinates one run: session, lease, begin, fence, finish.

Called by the operators, by the driver in ``spark``, and by ``continuous``, ``reset`` and ``inspect``. Imports
``ledger``, ``protocol`` and ``streams``. What a task does between begin and finish is in ``task``; what
stands in Kafka, and how it is read, is in ``protocol`` and ``ledger``.
"""
