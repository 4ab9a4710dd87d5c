"""Reports runs to others: the results that Airflow keeps, the extras of asset events, lineage, last values.

Called by operators, sensors, triggers, commands and ``inspect``. Imports ``ledger`` and ``protocol``, and the
results of ``replay``, ``reset`` and ``expand``. It decides nothing and writes nothing; the thin modules in
``hooks`` are the public paths.
"""
