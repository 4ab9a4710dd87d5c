"""Keeps the run ledger: the entry of every finished run, the lease, and the facts that the next run must
know.

It has the ledger's records and their fold, finds runs among them, and makes the records of one transaction.
Called by ``run``, ``task`` and everything above them. Imports ``protocol`` and ``streams``. ``run`` decides
who may write, and when; ``evidence`` compares the ledger with the rest of Kafka.
"""
