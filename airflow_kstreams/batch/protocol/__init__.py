"""What stands in Kafka: the records of the metadata topic and their fold, the ledger, the text beside
committed offsets, and the topics that hold them.

Also how logs are read to a known end, what they hold, and what is said when something of them is gone. Called
by ``run``, ``task`` and everything above them. Imports ``streams`` only. Decisions of a run (what to freeze,
when it is finished) do not belong here.
"""
