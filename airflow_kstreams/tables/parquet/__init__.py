"""Turns rows into Parquet files of a table: batches, partitions, files and the facts of files.

Spark's tasks call it (``parquet_files.py``); files go through the storage of the table's port. It may import
``streams`` and pyarrow. It knows no format of tables but for the transforms of Iceberg's partitions.
"""
