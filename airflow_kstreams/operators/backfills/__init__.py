"""Backfills: the operator and its DAG.

Used by DAG files. What a backfill run processes is decided in ``batch``, as for every run.
"""
