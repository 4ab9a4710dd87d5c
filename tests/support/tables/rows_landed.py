"""Rows that land in tables, read back from the Parquet files that hold them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts, TableFiles
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableSpec
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from airflow_kstreams.testing.in_memory_tables import InMemoryTables
from tests.support.kafka.in_process import Application

APP = "app"
_WRITER = RowsWriter(application_id=APP, run_id="run", task_id="0_0", attempt=1)
NOW_MS = 1_700_000_000_000
#: Rows by the partition that their file has.
Parts = dict[tuple[Any, ...], list[dict[str, Any]]]


def parts_of(table: TableSpec, *values: Any, key: Any = None) -> Parts:
    """Return the rows that a table gets of values, each that of a record with this key, by partition."""
    tables = InMemoryTables()
    row_of, rows = table.row_of("run"), _parquet_rows(tables, table.plan, _WRITER)
    for value in values:
        rows.add(row_of(key, value, TaskRecordContext(timestamp_ms=NOW_MS)))
    return _parts(rows.take(), tables)


class Lake:
    """An application on a Kafka in memory, whose tables hold Parquet files.

    ``in`` has the keys ``a``, ``b``, ``a``, with values of JSON. The code of the application changes from one
    run to the next.

    :param values: as bytes.
    :ivar storage: puts something between the tasks and the storage of files.
    """

    def __init__(self, *values: bytes) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
        self.tables = InMemoryTables()
        self.storage: Callable[[TableFiles], TableFiles] = lambda files: files
        self.kafka.create_topic("in")
        for number, value in enumerate(values):
            key = (b"a", b"b")[number % 2]
            self.kafka.append("in", value, key, timestamp_ms=NOW_MS + number)

    def run(
        self,
        define: Callable[[KStreamBuilder], object],
        settings: Mapping[str, object] | None = None,
        run_id: str = "one",
    ) -> RunSummary:
        """Run, or retry, a run of the topology that a function defines on a builder of text keys and JSON."""
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        define(builder)
        return Application(
            application_id=APP,
            topology=builder.build(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **(settings or {})},
            tables=self.tables,
            open_rows=self._open,
        ).run(run_id)

    def parts(self, location: str) -> Parts:
        """Return the rows of a table, by partition."""
        return _parts(self.tables.state(location).files.values(), self.tables)

    def rows(self, location: str) -> list[dict[str, Any]]:
        """Return the rows of a table, in no order."""
        return [row for rows in self.parts(location).values() for row in rows]

    def _open(self, table: TablePlan, target: FrozenTarget, writer: RowsWriter) -> ParquetRows:
        return _parquet_rows(self.tables, table, writer, self.storage)


def _parquet_rows(
    tables: InMemoryTables,
    table: TablePlan,
    writer: RowsWriter,
    storage: Callable[[TableFiles], TableFiles] = lambda files: files,
) -> ParquetRows:
    port = tables.table(table)
    port.create(table.columns, table.partition_by)
    look = port.look()
    assert look is not None
    left_out = frozenset(table.partition_by) if table.format == "delta" else frozenset()
    plan = FilePlan(columns=table.columns, partition_by=table.partition_by, left_out=left_out)
    return ParquetRows(storage(port.files(look)), plan, FileNames(writer))


def _parts(files: Iterable[FileFacts], tables: InMemoryTables) -> Parts:
    parts: Parts = {}
    for file in files:
        data = io.BytesIO(tables.stored[file.path][1])
        rows = pq.ParquetFile(data).read().to_pylist(maps_as_pydicts="strict")
        parts.setdefault(tuple(file.partition), []).extend(rows)
    return parts
