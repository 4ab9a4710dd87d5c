"""Resets an application: works out a plan, executes it, and goes on with one that was interrupted.

Called by the command ``airflow-kstreams reset`` and its operator. Imports ``run``, ``ledger`` and
``protocol``. It never asks the user: that is up to the caller.
"""
