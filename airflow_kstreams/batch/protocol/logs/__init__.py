"""Reads logs to a known end, and says what they hold and what is missing.

Called by ``slice`` and ``offsets`` beside it, ``ledger``, ``run`` and ``task``. Imports ``streams`` and the
modules of ``protocol``. What a record means belongs to ``slice``, ``offsets`` or ``ledger``.
"""
