"""Reads tables of lakehouses by DuckDB, which shares no code with what wrote them."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import duckdb


def iceberg_rows(metadata: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on an Iceberg table.

    :param metadata: location of its newest metadata file.
    :param query: SQL with the table as ``{table}``.
    """
    return _rows(query, f"iceberg_scan('{metadata}')")


def moved_iceberg_rows(metadata: str, query: str) -> list[tuple[Any, ...]]:
    """Return the same of a copy of a table, whose metadata names the locations of the original."""
    file = Path(metadata)
    version, folder = file.name.removesuffix(".metadata.json"), file.parent.parent
    options = f"allow_moved_paths = true, version = '{version}', version_name_format = '%s%s.metadata.json'"
    return _rows(query, f"iceberg_scan('{folder}', {options})")


def delta_rows(folder: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a Delta table.

    :param folder: its folder.
    :param query: SQL with the table as ``{table}``.
    """
    return _rows(query, f"delta_scan('file://{folder}')")


def _rows(query: str, table: str) -> list[tuple[Any, ...]]:
    cursor = _connected().cursor()
    try:
        return cursor.execute(query.format(table=table)).fetchall()
    finally:
        cursor.close()


@cache
def _connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    # What it has read once it would show again after a file was deleted.
    for setting in (
        "autoinstall_known_extensions",
        "autoload_known_extensions",
        "enable_external_file_cache",
    ):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg", "delta"):
        module = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(str(module.__file__)).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection
