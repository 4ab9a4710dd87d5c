"""Resetting an application: what is to be done is worked out first, then done, and gone on with when it was
interrupted.

Called by the command ``airflow-kstreams reset`` and its operator. Imports ``run``, ``ledger`` and
``protocol``. Whether a person is asked first is the caller's business.
"""
