"""Replaying dead letters: each record goes back to where it was consumed, once.

Called by the command ``airflow-kstreams replay`` and its operator. Imports ``ledger``, ``protocol`` and
``streams``. How a record becomes a dead letter is the engine's business.
"""
