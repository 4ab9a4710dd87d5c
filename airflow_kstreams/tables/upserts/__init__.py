"""Commits runs to tables with one row for each key: reads what tasks have staged, merges it into Delta
tables, and rewrites files of Iceberg tables.

The ports ``delta.py`` and ``iceberg.py`` call it for commits with a ``key_column``. It may import what
describes files of each format, and ``parquet/``; conditions and marks of commits belong to the ports.
"""
