"""Decides by a lease which coordinator may work on a run: takes it, watches another's, renews its own.

Called by ``run.coordinator`` and ``continuous``. The record of the lease is in
``ledger.facts``.
"""
