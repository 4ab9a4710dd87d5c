"""What stands in Kafka: the records of the metadata topic and their fold, the ledger, the text
beside committed offsets.

Also how these topics are read to a known end, and what is said when something of them is gone.
Called by ``run``, ``task`` and everything above them. Imports ``streams`` only. Decisions of a run
(what to freeze, when it is finished) do not belong here.
"""
