"""What stands in Kafka: the records of the metadata topic and their fold, the text beside committed offsets,
and the topics that hold them. The ledger has a room of its own, ``ledger``.

Also how logs are read to a known end, what they hold, and what is said when something of them is gone. Called
by ``ledger`` and everything above it. Imports ``streams`` only. Decisions of a run (what to freeze, when it
is finished) do not belong here.
"""
