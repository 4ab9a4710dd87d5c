"""Begins a run: freezes the offsets that it will read, checks the topics, and writes the slice in one
transaction.

Called by ``run.coordinator``. Imports ``evidence``, ``ledger``, ``protocol`` and ``streams``.
"""
