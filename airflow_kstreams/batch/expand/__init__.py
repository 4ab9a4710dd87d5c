"""Growing an application: what it would mean is worked out first, with what begin itself would make of it,
and refused before anything changes where begin would refuse it afterwards.

Called by the commands ``airflow-kstreams expand`` and their operators. Imports ``run``, ``ledger`` and
``protocol``.
"""
