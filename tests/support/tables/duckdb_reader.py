"""Reads tables of lakehouses by DuckDB, which shares no code with what wrote them."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
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
    return _rows(query, moved_iceberg_table(Path(metadata)))


def moved_iceberg_table(metadata: Path) -> str:
    """Return what a query writes for a copy of a table."""
    version, folder = metadata.name.removesuffix(".metadata.json"), metadata.parent.parent
    options = f"allow_moved_paths = true, version = '{version}', version_name_format = '%s%s.metadata.json'"
    return f"iceberg_scan('{folder}', {options})"


def delta_rows(folder: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a Delta table.

    :param folder: its folder.
    :param query: SQL with the table as ``{table}``.
    """
    return _rows(query, f"delta_scan('file://{folder}')")


def metadata_location(catalog: str | Path, table: str) -> str:
    """Return the location of the newest metadata file of an Iceberg table.

    :param catalog: SQLite file of the catalogue.
    :param table: its name, ``namespace.table``.
    """
    asked = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(catalog)) as connection:
        ((location,),) = connection.execute(asked, table.rsplit(".", 1)).fetchall()
    return str(location)


def _rows(query: str, table: str) -> list[tuple[Any, ...]]:
    cursor = connected().cursor()
    try:
        return cursor.execute(query.format(table=table)).fetchall()
    finally:
        cursor.close()


@cache
def connected() -> duckdb.DuckDBPyConnection:
    """Return the process's connection to DuckDB, which knows Avro, Iceberg and Delta."""
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
