"""Holds what stands between an empty folder and the first run.

A project's files, a broker to try it on, records for its topics. Only commands call it. It may import
``kafka`` and ``streams``, and no Airflow; nothing here takes part in a run.
"""
