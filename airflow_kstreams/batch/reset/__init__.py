"""Resetting an application: what is to be done is worked out first, then done, the same whatever
interrupts it.

Called by the command ``airflow-kstreams reset`` and its operator. Imports ``run`` and ``protocol``.
"""
