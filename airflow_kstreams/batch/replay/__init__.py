"""Replays dead letters: brings each record back, once, to the topic from which it was consumed.

Called by the command ``airflow-kstreams dead-letters``, the operator of replays and ``inspect``. Imports
``ledger``, ``protocol`` and ``streams``. How a record becomes a dead letter is the engine's business.
"""
