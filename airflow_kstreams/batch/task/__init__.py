"""One task: attempt, restore, loop with its end, commit (KIP-129).

Called by the hosts that ``spark`` runs on executors, and by ``continuous``. Imports ``ledger``, ``protocol``
and ``streams``, never ``run``: a task decides nothing about runs, it asks the fold of the metadata topic, or
the ledger, what its work is.
"""
