"""Joins Kafka's facts of an application's runs, and finds facts that disagree or are not whole any more.

``run_facts`` is the door: one value that joins metadata topic and ledger. The other modules ask it: what
earlier runs left, and whether a log was written anew since (``prior_runs``), whether two places contradict
each other (``contradictions``), whether a log is the whole one that was written (``complete_logs``), to
which application an internal topic belongs (``topic_owners``), and whether the metadata topic is the
application's at all (``metadata_owner``).

Called by ``run``, ``continuous``, ``expand``, ``reset``, ``inspect`` and the operators; tasks ask only
whether committed offsets are of their slice. Imports ``ledger``, ``protocol`` and ``streams``. Writes
nothing.
"""
