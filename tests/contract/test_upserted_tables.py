"""One suite of upserts on tables in memory, Iceberg (SQL and REST catalogues, S3) and Delta (a folder, S3).

Tasks' own writer stages the rows; DuckDB reads what the tables hold, or for tables in memory the bytes of
their files are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import TimestampType

from airflow_kstreams.streams.errors import (
    LargeRewriteError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.table_plan import Column, ColumnType, DecimalType, ListType, MapType, StructType
from airflow_kstreams.streams.tables.table_port import FileFacts, TableCommit, TablePort
from airflow_kstreams.streams.tables.table_rows import DeletedRow, Row, RowsWriter
from airflow_kstreams.tables.connections import open_tables
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from airflow_kstreams.tables.parquet.staged_rows import StagedRows, staged_plan
from airflow_kstreams.testing.faults import FaultyTables
from tests.contract.test_tables import EVERYWHERE, STANDS, AnswersLost, opened_stand
from tests.support.tables.object_store import ObjectStores, object_stores
from tests.support.tables.stands import APP, SINK, Stand, looked

AT = datetime(2024, 1, 1, 5, 30, tzinfo=UTC)
COLUMNS = (
    Column("Id", "text"),
    Column("n", "long"),
    Column("at", "instant", required=False),
    Column("fare", DecimalType(10, 2), required=False),
    Column("tags", ListType("text", required=False), required=False),
    Column("counts", MapType("long", required=False), required=False),
    Column(
        "place", StructType((Column("x", "double"), Column("name", "text", required=False))), required=False
    ),
)
WRITER = RowsWriter(application_id=APP, run_id="run", task_id="0_0", attempt=1)


@pytest.fixture(scope="module")
def stores() -> Iterator[ObjectStores]:
    with object_stores() as served:
        yield served


@pytest.fixture(params=("memory", "iceberg sql", "delta"))
def upserted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upserted]:
    with opened_stand(request.param, tmp_path, request) as made:
        yield Upserted(made)


@pytest.fixture(params=EVERYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upserted]:
    with opened_stand(request.param, tmp_path, request) as made:
        yield Upserted(made)


@pytest.fixture
def iceberg(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upserted]:
    with opened_stand("iceberg sql", tmp_path, request) as made:
        yield Upserted(made)


@dataclass
class Upserted:
    """A table with one row for each key, on a stand."""

    stand: Stand
    columns: tuple[Column, ...] = COLUMNS

    def __post_init__(self) -> None:
        self.sequences = itertools.count(1)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return () if self.stand.format == "delta" else (f"bucket(2, {self.columns[0].name})",)

    def created(self) -> TablePort:
        port = self.stand.port()
        port.create(self.columns, self.partition_by)
        return port

    def staged(self, port: TablePort, *rows: Row) -> list[FileFacts]:
        """Stage rows as a task does between two commits."""
        plan = staged_plan(FilePlan(columns=self.columns), self.partition_by)
        writer = StagedRows(ParquetRows(port.files(looked(port)), plan, FileNames(WRITER)), self.columns)
        for row in rows:
            writer.add(row)
        return writer.take()

    def commit(self, *staged: Sequence[FileFacts], sequence: int | None = None) -> TableCommit:
        """Return the commit of a run whose tasks have staged these files, in this order."""
        number = sequence or next(self.sequences)
        return TableCommit(
            application_id=APP,
            sink=SINK,
            sequence=number,
            summary={"kstreams.run-id": f"run-{number}"},
            added=[file for files in staged for file in files],
            key_column=self.columns[0].name,
        )

    def run(self, port: TablePort, *rows: Row) -> str:
        """Upsert rows by one run."""
        return port.commit(looked(port), self.commit(self.staged(port, *rows))).snapshot

    def rows(self) -> dict[Any, Any]:
        """Return key and number of each row."""
        found = self.stand.read(f'SELECT "{self.columns[0].name}", n FROM {{table}}')
        assert len({key for key, _ in found}) == len(found), found
        return dict(found)


def row(key: Any, number: int, **values: Any) -> Row:
    given = {
        "at": AT,
        "fare": Decimal("12.50"),
        "tags": ["a", None],
        "counts": {"a": 1, "b": None},
        "place": (0.5, None),
        **values,
    }
    return (key, number, *given.values())


@pytest.mark.parametrize("anywhere", STANDS, indirect=True)
def test_last_value_of_each_key_is_its_row_and_deleted_keys_have_none(anywhere: Upserted) -> None:
    port = anywhere.created()
    before = looked(port)
    first = anywhere.staged(
        port, row("a", 1), row("b", 1), row("c", 1), DeletedRow("c"), row("d", 1), DeletedRow("e")
    )
    second = anywhere.staged(port, row("a", 2), DeletedRow("b"), row("c", 2), row("a", 3, tags=None))
    snapshot = port.commit(before, anywhere.commit(first, second)).snapshot
    look = looked(anywhere.stand.port())
    assert (look.snapshot, look.marks) == (snapshot, {SINK: 1})
    assert len(port.snapshots(look)) - len(port.snapshots(before)) == 1
    assert port.snapshots(look)[-1].summary["kstreams.run-id"] == "run-1"
    assert anywhere.rows() == {"a": 3, "c": 2, "d": 1}
    ((at, *others),) = anywhere.stand.read(
        "SELECT \"at\", fare, tags, counts['a'], place.x FROM {table} WHERE \"Id\" = 'c'"
    )
    assert (at.astimezone(UTC), *others) == (AT, Decimal("12.50"), ["a", None], 1, 0.5)


def test_later_run_replaces_and_deletes_rows_of_earlier_ones(anywhere: Upserted) -> None:
    port = anywhere.created()
    anywhere.run(port, *(row(f"k{number:03}", number) for number in range(100)))
    anywhere.run(port, row("k000", -1), DeletedRow("k001"), DeletedRow("none"), row("new", 7))
    anywhere.run(port, row("k001", -2), row("k002", -2), DeletedRow("k000"))
    expected = {f"k{number:03}": number for number in range(3, 100)}
    assert anywhere.rows() == {**expected, "k001": -2, "k002": -2, "new": 7}
    kept = anywhere.stand.read("SELECT fare, tags, place.x FROM {table} WHERE \"Id\" = 'k050'")
    assert kept == [(Decimal("12.50"), ["a", None], 0.5)]


def test_upsert_that_changes_nothing_makes_a_snapshot_with_the_mark(upserted: Upserted) -> None:
    port = upserted.created()
    before = looked(port).snapshot
    upserted.run(port, DeletedRow("a"))
    look = looked(port)
    assert (look.marks, look.snapshot != before) == ({SINK: 1}, True)
    port.commit(look, upserted.commit())
    assert (looked(port).marks, looked(port).snapshot != look.snapshot) == ({SINK: 2}, True)
    assert upserted.rows() == {}


def test_columns_of_others_stay_in_rows_that_stay_and_are_null_in_new_ones(upserted: Upserted) -> None:
    port = upserted.created()
    upserted.run(port, row("a", 1), row("b", 1))
    port.widen(looked(port), added=(Column("note", "text", required=False),), widened=())
    upserted.stand.other.append({"Id": "c", "n": 1, "note": "theirs"}, {"Id": "d", "n": 1, "note": "too"})
    upserted.run(port, row("b", 2), row("d", 2))
    found = upserted.stand.read('SELECT "Id", n, note FROM {table} ORDER BY "Id"')
    assert found == [("a", 1, None), ("b", 2, None), ("c", 1, "theirs"), ("d", 2, None)]


def test_upsert_is_made_again_for_the_new_state_when_others_have_committed(upserted: Upserted) -> None:
    port = upserted.created()
    upserted.run(port, row("a", 1))
    stale, commit = looked(port), upserted.commit(upserted.staged(port, row("a", 2), row("z", 2)))
    upserted.stand.other.append({"Id": "z", "n": 1}, {"Id": "y", "n": 1})
    with pytest.raises(TableMovedError):
        port.commit(stale, commit)
    assert looked(port).marks == {SINK: 1}
    port.commit(looked(port), commit)
    assert looked(port).marks == {SINK: 2}
    assert upserted.rows() == {"a": 2, "y": 1, "z": 2}


def test_next_look_finds_the_mark_when_the_answer_to_an_upsert_was_lost(upserted: Upserted) -> None:
    upserted.created()
    lost = FaultyTables(upserted.stand.client(), AnswersLost("table.commit")).table(upserted.stand)
    look, commit = looked(lost), upserted.commit(upserted.staged(lost, row("a", 1)))
    with pytest.raises(TableUnavailableError):
        lost.commit(look, commit)
    assert looked(lost).marks == {SINK: 1}
    with pytest.raises(TableMovedError):
        upserted.stand.port().commit(look, commit)
    assert upserted.rows() == {"a": 1}


def test_late_upsert_fails_its_condition_when_a_later_run_has_landed(upserted: Upserted) -> None:
    port = upserted.created()
    keeps = AnswersLost("table.commit", later=True)
    slow = FaultyTables(upserted.stand.client(), keeps).table(upserted.stand)
    look, commit = looked(slow), upserted.commit(upserted.staged(slow, row("a", 1), row("b", 1)))
    with pytest.raises(TableUnavailableError):
        slow.commit(look, commit)
    port.commit(looked(port), commit)
    upserted.run(port, row("a", 2), DeletedRow("b"))
    (late,) = keeps.kept
    with pytest.raises(TableMovedError):
        late()
    assert upserted.rows() == {"a": 2}


KEYS: dict[ColumnType, list[Any]] = {
    "long": [-(2**63), 0, 2**63 - 1],
    "text": ["", 'Zürich\'s \\ "x"', "z" * 100],
    "binary": [b"", b"\x00\xff", b"z" * 100],
    "date": [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "uuid": [UUID(int=0), UUID(int=7), UUID(int=2**128 - 1)],
    DecimalType(10, 2): [Decimal("-99999999.99"), Decimal("0.00"), Decimal("0.01")],
}


@pytest.mark.parametrize(
    ("upserted", "kind"),
    # Of Delta's keys, texts and whole numbers go into the merge's condition, others do not; ids are text.
    [*(("iceberg sql", kind) for kind in KEYS), ("delta", "text"), ("delta", "long"), ("delta", "date")],
    indirect=["upserted"],
    ids=str,
)
def test_rows_are_replaced_by_keys_of_each_type(upserted: Upserted, kind: ColumnType) -> None:
    upserted.columns = (Column("key", kind), Column("n", "long"))
    port = upserted.created()
    first, second, third = KEYS[kind]
    upserted.run(port, (first, 1), (second, 1), (third, 1))
    upserted.run(port, (third, 2), DeletedRow(first))
    assert upserted.rows() == {second: 1, third: 2}


# Iceberg's files


def paths(port: TablePort) -> set[str]:
    """Return the files of an Iceberg table."""
    return {task.file.file_path for task in looked(port).state.scan().plan_files()}


def test_files_without_a_staged_key_stay_as_they_are(iceberg: Upserted) -> None:
    port = iceberg.created()
    iceberg.run(port, *(row(f"a{number}", 1) for number in range(20)))
    iceberg.run(port, *(row(f"b{number}", 1) for number in range(20)))
    before = paths(port)
    assert len(before) == 4  # two buckets of each run
    iceberg.run(port, row("b3", 2))
    assert len(before & paths(port)) == 3
    assert len(iceberg.rows()) == 40


def test_rewritten_files_have_ids_statistics_and_rows_in_the_order_of_keys(
    iceberg: Upserted,
) -> None:
    port = iceberg.created()
    iceberg.run(port, *(row(f"k{number:03}", number) for number in range(0, 100, 2)))
    iceberg.run(port, *(row(f"k{number:03}", number) for number in range(1, 100, 2)), row("k000", -1))
    look = looked(port)
    field_id = look.column_ids["Id"]
    tasks = list(look.state.scan().plan_files())
    assert sum(task.file.record_count for task in tasks) == 100
    for task in tasks:
        keys = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read().column("Id").to_pylist()
        assert keys == sorted(keys)
        bounds = task.file.lower_bounds[field_id].decode(), task.file.upper_bounds[field_id].decode()
        assert bounds == (keys[0], keys[-1])
    with look.state.update_schema() as update:
        update.rename_column("n", "number")
    found = iceberg.stand.read("SELECT number FROM {table} WHERE \"Id\" IN ('k000', 'k001') ORDER BY number")
    assert found == [(-1,), (1,)]


@pytest.mark.error_example("KS-TABLE-003")
@pytest.mark.remedy("iceberg_rewrite.TableRewrite.made")
def test_more_than_may_be_rewritten_here_is_left_to_another_process(iceberg: Upserted) -> None:
    port = iceberg.created()
    iceberg.run(port, row("a", 1), row("b", 1))
    before, stored = paths(port), list(port.files(looked(port)).names("rows-"))
    staged = iceberg.staged(port, row("a", 2))
    small = open_tables(iceberg.stand.settings, most_rewritten=100).table(iceberg.stand)
    commit = iceberg.commit(staged)
    with pytest.raises(LargeRewriteError, match="may rewrite 100 bytes") as refused:
        small.commit(looked(small), commit)
    assert refused.value.is_retriable
    assert paths(port) == before
    assert len(list(port.files(looked(port)).names("rows-"))) == len(stored) + len(staged)
    port.commit(looked(port), commit)
    assert iceberg.rows() == {"a": 2, "b": 1}


@pytest.mark.remedy("iceberg_rewrite.TableRewrite._refuse_other_spec")
def test_files_of_an_earlier_partitioning_are_refused_until_they_are_rewritten(iceberg: Upserted) -> None:
    port = iceberg.stand.port()
    port.create(iceberg.columns, ())
    iceberg.stand.other.append({"Id": "a", "n": 1}, {"Id": "b", "n": 1})
    with looked(port).state.update_spec() as update:
        update.add_field("Id", BucketTransform(2), "Id_bucket")
    with pytest.raises(TableRefusedError, match="may have rows of each bucket"):
        iceberg.run(port, row("a", 2))
    table = looked(port).state
    table.overwrite(table.scan().to_arrow())
    iceberg.run(port, row("a", 2))
    assert iceberg.rows() == {"a": 2, "b": 1}


@pytest.mark.remedy("iceberg_rewrite.TableRewrite._writer")
def test_rows_with_a_type_that_is_not_written_here_are_refused_until_the_column_is_dropped(
    iceberg: Upserted,
) -> None:
    port = iceberg.created()
    with looked(port).state.update_schema() as update:
        update.add_column("local", TimestampType())
    with pytest.raises(TableRefusedError, match="local: timestamp"):
        iceberg.run(port, row("a", 1))
    with looked(port).state.update_schema() as update:
        update.delete_column("local")
    iceberg.run(port, row("a", 2))
    assert iceberg.rows() == {"a": 2}


def test_rows_that_others_have_deleted_by_position_do_not_come_back(iceberg: Upserted) -> None:
    port = iceberg.created()
    iceberg.run(port, *(row(f"k{number:03}", number) for number in range(40)))
    for task in looked(port).state.scan().plan_files():
        delete_positions(looked(port).state, task.file, [0, 3])
    before = iceberg.rows()
    assert len(before) == 36
    changed = max(before)
    iceberg.run(port, row(changed, -1))
    assert iceberg.rows() == {**before, changed: -1}


class DeleteManifest(ManifestWriterV2):
    """Writes a manifest of delete files, which pyiceberg does not."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(table: Any, file: DataFile, places: list[int]) -> None:
    """Delete rows of a file by a file of positions, as other engines do."""
    ids = {"file_path": "2147483546", "pos": "2147483545"}
    kinds = {"file_path": pa.string(), "pos": pa.int64()}
    schema = pa.schema(
        [
            pa.field(name, kinds[name], nullable=False, metadata={"PARQUET:field_id": id_})
            for name, id_ in ids.items()
        ]
    )
    path = f"{file.file_path}.deletes.parquet"
    rows = pa.Table.from_arrays([pa.array([file.file_path] * len(places)), pa.array(places)], schema=schema)
    local = path.removeprefix("file://")
    pq.write_table(rows, local)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(places),
        file_size_in_bytes=Path(local).stat().st_size,
    )
    deletes.spec_id = file.spec_id
    transaction = table.transaction()
    producer = transaction.update_snapshot().fast_append()
    producer.new_manifest_writer = lambda spec: DeleteManifest(
        spec, table.schema(), producer.new_manifest_output(), producer.snapshot_id, "null"
    )
    producer.append_data_file(deletes)
    producer.commit()
    transaction.commit_transaction()
