"""Reads logs to a known end, and reports the records that they hold and those that are missing.

Called by ``slice`` and ``offsets`` beside it, ``ledger``, ``run`` and ``task``. Imports ``streams`` and the
modules of ``protocol``. What a record means belongs to ``slice``, ``offsets`` or ``ledger``.
"""
