"""Stands on which the contract of tables is tested: a table, its port, another writer, and a reader.

Another writer works with the library of the format directly, by a client of its own, as an engine or a person
would; the reader is DuckDB, or for tables in memory the bytes of their files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import StringType

from airflow_kstreams.streams.table_plan import Column, DecimalType, ListType, MapType, StructType
from airflow_kstreams.streams.tables.table_port import (
    FileFacts,
    TableCommit,
    TableLook,
    TablePort,
    TablesPort,
)
from airflow_kstreams.tables.connections import open_tables
from airflow_kstreams.testing.in_memory_tables import InMemoryTables
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows, moved_iceberg_rows
from tests.support.tables.object_store import ObjectStore
from tests.support.tables.written_files import Row, arrow_schema, decoded, facts, write_rows

if TYPE_CHECKING:
    from pyiceberg.table import Table

APP, SINK = "flight.delays", "flights.carriers"
COLUMNS = (
    Column("id", "long"),
    Column("day", "date", required=False),
    Column("carrier", "text", required=False),
    Column("at", "instant", required=False),
    Column("fare", DecimalType(10, 2), required=False),
    Column("late", "boolean", required=False),
    Column("minutes", "double", required=False),
    Column("raw", "binary", required=False),
    Column("tags", ListType("text", required=False), required=False),
    Column("counts", MapType("long", required=False), required=False),
    Column(
        "place", StructType((Column("x", "double"), Column("name", "text", required=False))), required=False
    ),
)
PARTITION_BY = ("day", "carrier")
_numbers = itertools.count(1)


def row(number: int, **values: Any) -> dict[str, Any]:
    """Return a row with all columns."""
    return {
        "id": number,
        "day": date(2024, 1, 1),
        "carrier": "UA",
        "at": datetime(2024, 1, 1, 5, 30, tzinfo=UTC),
        "fare": Decimal("12.50"),
        "late": True,
        "minutes": 1.5,
        "raw": b"\x00\xff",
        "tags": ["a", None],
        "counts": {"a": 1, "b": None},
        "place": {"x": 0.5, "name": None},
        **values,
    }


class OtherWriter(Protocol):
    """Another writer of the table."""

    def append(self, *rows: Row) -> None: ...
    def add_column(self, name: str) -> None: ...
    def roll_back(self, snapshot: str) -> None: ...
    def expire(self) -> None: ...
    def make_anew(self) -> None: ...


@dataclass(kw_only=True)
class Stand:
    """One table.

    :param format: its format; ``memory`` for none.
    :param location: its location, as a spec has it.
    :param client: opens it by a client of its own.
    :param other: another writer.
    :param read: returns the rows of a query, in which ``{table}`` stands for the table.
    :param schema: Arrow's schema of a file of a look.
    :param written_in_files: whether files have the partition columns, too.
    :param store: the bucket in which its files lie; None for a local folder.
    """

    format: str
    location: str
    client: Callable[[], TablesPort]
    other: OtherWriter
    read: Callable[[str], list[tuple[Any, ...]]]
    schema: Callable[[TableLook], pa.Schema]
    settings: dict[str, str] = field(default_factory=dict)
    files_have_partitions: bool = True
    name: str = SINK
    store: ObjectStore | None = None

    def port(self) -> TablePort:
        """Return the table, by a client of its own."""
        return self.client().table(self)

    def created(self) -> TablePort:
        """Create the table, and return it."""
        port = self.port()
        port.create(COLUMNS, PARTITION_BY)
        return port

    def write(self, port: TablePort, look: TableLook, *rows: Row) -> FileFacts:
        """Write a file with rows of one partition, and return its facts."""
        partition = (
            tuple(rows[0].get(name) for name in look.partition_by)
            if rows
            else (None,) * len(look.partition_by)
        )
        files, schema = port.files(look), self.schema(look)
        if not self.files_have_partitions:
            schema = pa.schema([each for each in schema if each.name not in look.partition_by])
        path = files.path(f"file-{next(_numbers)}.parquet", zip(look.partition_by, partition, strict=True))
        with files.create(path) as out:
            write_rows(out, schema, rows)
        size = files.sizes([path])[path]
        return facts(path, size, look.columns, rows, partition)

    def ids(self) -> list[int]:
        """Return the ids of all rows, sorted."""
        return [number for (number,) in self.read("SELECT id FROM {table} ORDER BY id")]


def looked(port: TablePort) -> TableLook:
    """Look at a table that exists."""
    look = port.look(APP)
    if look is None:
        raise AssertionError("there is no table")
    return look


def commit_of(
    sequence: int, *added: FileFacts, removed: Sequence[str] = (), application_id: str = APP, sink: str = SINK
) -> TableCommit:
    """Return a commit of a run."""
    return TableCommit(
        application_id=application_id,
        sink=sink,
        sequence=sequence,
        summary={"kstreams.run-id": f"run-{sequence}", "kstreams.sequence": str(sequence)},
        added=added,
        removed=removed,
    )


def memory_stand() -> Stand:
    """Return a table in memory."""
    tables, location = InMemoryTables(), "flights.carriers"

    def read(query: str) -> list[tuple[Any, ...]]:
        import duckdb

        rows = tables.rows(location, decoded)
        columns = looked(tables.table(Spec("memory", location))).columns
        table = pa.Table.from_pylist(rows, schema=arrow_schema(columns))
        return duckdb.from_arrow(table).query("t", query.format(table="t")).fetchall()

    class Other:
        def append(self, *rows: Row) -> None:
            port = tables.table(stand)
            tables.other_writer(location).append(stand.write(port, looked(port), *rows))

        def add_column(self, name: str) -> None:
            columns = tables.state(location).columns
            tables.other_writer(location).change_columns((*columns, Column(name, "text", required=False)))

        def roll_back(self, snapshot: str) -> None:
            tables.other_writer(location).roll_back(snapshot)

        def expire(self) -> None:
            tables.other_writer(location).expire(1)

        def make_anew(self) -> None:
            tables.other_writer(location).make_anew()

    stand = Stand(
        format="memory",
        location=location,
        client=lambda: tables,
        other=Other(),
        read=read,
        schema=lambda look: arrow_schema(look.columns),
    )
    return stand


@dataclass(frozen=True)
class Spec:
    """A table as a topology would describe it."""

    format: str
    location: str
    name: str = SINK


def iceberg_stand(settings: dict[str, str], *, name: str, store: ObjectStore | None = None) -> Stand:
    """Return an Iceberg table.

    :param settings: of the connection.
    :param name: of its namespace.
    :param store: holds its files; None for a local folder.
    """
    location = f"{name}.carriers"

    def opened() -> Catalog:
        properties = {key.removeprefix("iceberg."): value for key, value in settings.items()}
        return load_catalog("default", **properties)

    def table() -> Table:
        return opened().load_table(location)

    def read(query: str) -> list[tuple[Any, ...]]:
        metadata = table().metadata_location
        if store is not None:
            return moved_iceberg_rows(store.local(metadata), query)
        return iceberg_rows(metadata.removeprefix("file://"), query)

    class Other:
        def append(self, *rows: Row) -> None:
            found = table()
            schema = schema_to_pyarrow(found.schema())
            arrays = [pa.array([each.get(column.name) for each in rows], column.type) for column in schema]
            found.append(pa.Table.from_arrays(arrays, schema=schema))

        def add_column(self, name: str) -> None:
            with table().update_schema() as update:
                update.add_column(name, StringType())

        def roll_back(self, snapshot: str) -> None:
            table().manage_snapshots().set_current_snapshot(int(snapshot)).commit()

        def expire(self) -> None:
            found = table()
            head = found.metadata.current_snapshot_id
            old = [each.snapshot_id for each in found.metadata.snapshots if each.snapshot_id != head]
            found.maintenance.expire_snapshots().by_ids(old).commit()

        def make_anew(self) -> None:
            opened().drop_table(location)
            stand.created()

    stand = Stand(
        format="iceberg",
        location=location,
        client=lambda: open_tables(settings),
        other=Other(),
        read=read,
        schema=lambda look: schema_to_pyarrow(look.state.schema()),
        settings=settings,
        store=store,
    )
    return stand


def delta_stand(location: str, settings: dict[str, str], *, store: ObjectStore | None = None) -> Stand:
    """Return a Delta table.

    :param location: its folder or URI.
    :param settings: of the connection.
    :param store: holds its files; None for a local folder.
    """
    options = {key.removeprefix("delta."): value for key, value in settings.items()}

    def table() -> DeltaTable:
        return DeltaTable(location, storage_options=options)

    def read(query: str) -> list[tuple[Any, ...]]:
        return delta_rows(store.local(location) if store else location, query)

    class Other:
        def append(self, *rows: Row) -> None:
            schema = pa.schema(table().schema().to_arrow())
            arrays = [pa.array([each.get(column.name) for each in rows], column.type) for column in schema]
            write_deltalake(table(), pa.Table.from_arrays(arrays, schema=schema), mode="append")

        def add_column(self, name: str) -> None:
            table().alter.add_columns([Field(name, PrimitiveType("string"))])

        def roll_back(self, snapshot: str) -> None:
            table().restore(int(snapshot))

        def expire(self) -> None:
            table().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
            found = table()
            found.create_checkpoint()
            found.cleanup_metadata()

        def make_anew(self) -> None:
            if store is not None:
                store.delete(location)
            else:
                for file in sorted(Path(location).rglob("*"), reverse=True):
                    file.rmdir() if file.is_dir() else file.unlink()
            stand.created()

    stand = Stand(
        format="delta",
        location=location,
        client=lambda: open_tables(settings),
        other=Other(),
        read=read,
        schema=lambda look: arrow_schema(look.columns),
        settings=settings,
        store=store,
        files_have_partitions=False,
    )
    return stand


@contextmanager
def no_warnings() -> Iterator[None]:
    """Let a library of another writer warn of what a test does on purpose."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
