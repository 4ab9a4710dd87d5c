"""Begins a run: freezes what it will read, checks what is there, and writes both in one transaction.

Called by ``run.coordinator``. Imports ``evidence``, ``ledger``, ``protocol`` and ``streams``.
"""
