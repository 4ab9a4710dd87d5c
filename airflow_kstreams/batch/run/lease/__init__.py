"""The lease of a run: who may work on it, how long another's lease is watched, how one's own is renewed.

Called by ``run.session``, ``run.coordinator`` and ``continuous``. The record of the lease is in
``ledger.facts``.
"""
