"""Replaying dead letters: each record goes back to where it was consumed, once.

Called by the command ``airflow-kstreams replay`` and its operator. Imports ``run`` and ``protocol``.
"""
