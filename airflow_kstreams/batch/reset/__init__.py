"""Resets an application: works out a plan, executes it, and goes on with one that was interrupted.

Called by the command ``airflow-kstreams reset`` and its operator, which ask the user first if they want to.
Imports ``run``, ``ledger`` and ``protocol``.
"""
