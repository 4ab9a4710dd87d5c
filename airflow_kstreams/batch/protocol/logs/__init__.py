"""Reads logs to a known end, and says what they hold and what of them is gone.

Called by the rooms beside this one, ``ledger``, ``run`` and ``task``. Imports ``streams`` and the modules of
``protocol``. What a record means belongs to ``slice``, ``offsets`` or ``ledger``.
"""
