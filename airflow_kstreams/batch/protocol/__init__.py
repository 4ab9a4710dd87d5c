"""Defines the engine's own data in Kafka: the records of the metadata topic and their fold, the text beside
committed offsets, and the topics that hold them. The ledger's records are in ``ledger``.

It also reads logs to a known end and reports the records that are missing from them. Called by ``ledger`` and
everything above it. Imports ``streams`` only. Decisions of a run (what to freeze, when it is finished) do not
belong here.
"""
