"""The run ledger: the entry of every finished run, the lease, and what the next run must know.

Its records, their fold, how a run is found among them, and what one transaction adds. Called by ``run``,
``task`` and everything above them. Imports ``protocol`` and ``streams``. Who may write, and when, is decided
in ``run``; whether it agrees with what else stands in Kafka, in ``evidence`` beside this room.
"""
