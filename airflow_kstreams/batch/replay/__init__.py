"""Replays dead letters: each record goes back to where it was consumed, once.

Called by the command ``airflow-kstreams dead-letters``, the operator of replays and ``inspect``. Imports
``ledger``, ``protocol`` and ``streams``. How a record becomes a dead letter is the engine's business.
"""
