"""What only Iceberg tables have: answers of a catalogue, partition fields, ids of columns, expiry."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FloatType, IntegerType, NestedField, StringType, TimestampType

from airflow_kstreams.streams.errors import (
    InvariantError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.table_plan import (
    Column,
    DecimalType,
    ListType,
    MapType,
    StructType,
    changes_for,
)
from airflow_kstreams.streams.tables.table_port import FileFacts, TablePort
from tests.support.tables.stands import APP, SINK, Stand, commit_of, iceberg_stand, looked, row

if TYPE_CHECKING:
    from pyiceberg.table import Table

IDENTIFIER = "flights.carriers"


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return iceberg_stand(_settings(tmp_path), name="flights")


def _settings(folder: Path) -> dict[str, str]:
    uri = f"sqlite:///{folder}/catalog.db"
    return {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": f"file://{folder}"}


def _table(stand: Stand) -> Table:
    table: Table = looked(stand.port()).state
    return table


def _arrow(table: Table, *rows: dict[str, Any]) -> pa.Table:
    schema = schema_to_pyarrow(table.schema())
    return pa.Table.from_pylist([{**each} for each in rows], schema=schema)


# The condition, and what pyiceberg does without one


def test_library_lets_two_stale_writers_set_a_property_and_the_port_does_not(stand: Stand) -> None:
    port = stand.created()
    port.commit(looked(port), commit_of(1))
    stale, first, second = looked(port), _table(stand), _table(stand)
    for each in (first, second):
        each.transaction().set_properties({"note": "x"}).commit_transaction()
    port.commit(looked(port), commit_of(2))
    with pytest.raises(TableMovedError):
        port.drop_mark(stale, APP, SINK)
    assert looked(port).marks == {SINK: 2}


def test_library_commits_a_run_a_second_time_after_a_conflict(stand: Stand) -> None:
    # Why the client's retries are off: the change is moved onto the new head and sent again.
    port = stand.created()
    stale = _table(stand)
    stand.other.append(row(1))
    stale.append(_arrow(stale, row(2)))
    assert stand.ids() == [1, 2]
    assert port.look() is not None


def test_stale_commit_is_refused_when_the_partitioning_was_changed(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    file = stand.write(port, look, row(1))
    with _table(stand).update_spec() as update:
        update.add_field("late", IdentityTransform(), "late")
    with pytest.raises(TableMovedError):
        port.commit(look, commit_of(1, file))
    after = looked(port)
    assert (after.spec_id, after.partition_by) == (1, ("day", "carrier", "late"))
    with pytest.raises(InvariantError, match="it has 2 values, for 3"):
        port.commit(after, commit_of(1, file))


# Partition fields

AT = datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
PARTITIONS: list[tuple[str, Any, Any, str]] = [
    ("year(at)", 54, {"at": AT}, "\"at\" >= TIMESTAMPTZ '2024-01-01 00:00:00+00'"),
    ("month(at)", 649, {"at": AT}, "\"at\" >= TIMESTAMPTZ '2024-02-01 00:00:00+00'"),
    ("day(at)", 19756, {"at": AT}, "\"at\" >= TIMESTAMPTZ '2024-02-03 00:00:00+00'"),
    ("hour(at)", 474148, {"at": AT}, "\"at\" >= TIMESTAMPTZ '2024-02-03 04:00:00+00'"),
    ("day(day)", 19756, {"day": AT.date()}, "day = DATE '2024-02-03'"),
    ("at", AT, {"at": AT}, "\"at\" = TIMESTAMPTZ '2024-02-03 04:05:06.000007+00'"),
    ("day", AT.date(), {"day": AT.date()}, "day = DATE '2024-02-03'"),
    ("fare", Decimal("1.5"), {"fare": Decimal("1.50")}, "fare = 1.50"),
    ("late", True, {"late": True}, "late"),
    ("truncate(2, carrier)", "äb", {"carrier": "äbc"}, "carrier = 'äbc'"),
    ("truncate(10, number)", -10, {"number": -3}, "number = -3"),
    ("number", -3, {"number": -3}, "number = -3"),
    ("key", UUID(int=5), {"key": UUID(int=5).bytes}, "key = UUID '00000000-0000-0000-0000-000000000005'"),
]
PARTITIONED = (
    Column("id", "long"),
    Column("at", "instant", required=False),
    Column("day", "date", required=False),
    Column("fare", DecimalType(10, 2), required=False),
    Column("late", "boolean", required=False),
    Column("carrier", "text", required=False),
    Column("number", "long", required=False),
    Column("key", "uuid", required=False),
)


@pytest.mark.parametrize(
    ("field", "value", "values", "where"), PARTITIONS, ids=[each[0] for each in PARTITIONS]
)
def test_files_of_each_kind_of_partition_are_found_and_taken_out(
    stand: Stand, field: str, value: Any, values: dict[str, Any], where: str
) -> None:
    port = stand.port()
    port.create(PARTITIONED, (field,))
    look = looked(port)
    assert look.partition_by == (field,)
    assert look.refused == ()
    dated = _written(stand, port, (value,), {"id": 1, **values})
    null = _written(stand, port, (None,), {"id": 2})
    port.commit(look, commit_of(1, dated, null))
    assert stand.read(f"SELECT id FROM {{table}} WHERE {where}") == [(1,)]
    (column,) = values
    assert stand.read(f'SELECT id FROM {{table}} WHERE "{column}" IS NULL') == [(2,)]
    port.commit(looked(port), commit_of(2, removed=[dated.path]))
    assert stand.ids() == [2]
    port.commit(looked(port), commit_of(3, removed=[null.path]))
    assert stand.ids() == []


def test_buckets_are_those_that_the_library_computes(stand: Stand) -> None:
    port = stand.port()
    port.create(PARTITIONED, ("bucket(16, carrier)", "bucket(4, number)"))
    table = _table(stand)
    carrier, number = (field.transform.transform(field_type) for field, field_type in _partition_types(table))
    values = {"carrier": "UA", "number": 34}
    file = _written(stand, port, (carrier("UA"), number(34)), {"id": 1, **values})
    port.commit(looked(port), commit_of(1, file))
    assert number(34) == 2017239379 % 4  # Iceberg's own example of a hash
    assert stand.read("SELECT id FROM {table} WHERE carrier = 'UA' AND number = 34") == [(1,)]


def _partition_types(table: Table) -> list[tuple[Any, Any]]:
    return [(field, table.schema().find_type(field.source_id)) for field in table.spec().fields]


def _written(stand: Stand, port: TablePort, partition: tuple[Any, ...], *rows: dict[str, Any]) -> FileFacts:
    """Write a file with the facts of its rows left out but for the partition."""
    look = looked(port)
    schema, files = stand.schema(look), port.files(look)
    path = files.path(f"file-{rows[0]['id']}.parquet", zip(look.partition_by, partition, strict=True))
    arrays = [pa.array([each.get(field.name) for each in rows], field.type) for field in schema]
    with files.create(path) as out:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out)
    return FileFacts(path=path, size=files.sizes([path])[path], rows=len(rows), partition=partition)


@pytest.mark.parametrize("field", ["week(at)", "hour(nothing)", "hour(carrier)", "truncate(at)"])
def test_partition_field_that_is_none_is_refused(stand: Stand, field: str) -> None:
    with pytest.raises(TableRefusedError, match="partition field"):
        stand.port().create(PARTITIONED, (field,))
    assert stand.port().look() is None


# Columns


def test_columns_and_parts_of_columns_get_ids_that_files_carry(stand: Stand) -> None:
    nested = Column(
        "legs",
        ListType(
            StructType(
                (Column("to", "text"), Column("stops", MapType("long", required=False), required=False))
            )
        ),
        required=False,
    )
    port = stand.port()
    port.create((Column("id", "long"), nested), ())
    look = looked(port)
    assert look.columns == (Column("id", "long"), nested)
    ids = _table(stand).schema().field_ids
    assert sorted(ids) == list(range(1, 8))
    file = _written(stand, port, (), {"id": 1, "legs": [{"to": "SFO", "stops": {"a": None}}]})
    port.commit(look, commit_of(1, file))
    port.widen(
        looked(port),
        added=(Column("more", StructType((Column("x", "double"),)), required=False),),
        widened=(),
    )
    assert sorted(_table(stand).schema().field_ids) == list(range(1, 10))
    assert stand.read('SELECT legs[1]."to", legs[1].stops, more FROM {table}') == [("SFO", {"a": None}, None)]


def test_widened_columns_keep_old_rows_readable(stand: Stand, tmp_path: Path) -> None:
    _made(stand, Schema(NestedField(1, "n", IntegerType(), required=True), NestedField(2, "x", FloatType())))
    _table(stand).append(
        pa.table(
            {"n": [1], "x": [0.5]},
            schema=pa.schema([pa.field("n", pa.int32(), nullable=False), ("x", pa.float32())]),
        )
    )
    port, rows = stand.port(), (Column("n", "long"), Column("x", "double", required=False))
    changes = changes_for(rows, looked(port).columns)
    port.widen(looked(port), added=changes.added, widened=changes.widened)
    assert looked(port).columns == rows
    file = _written(stand, port, (), {"n": 1 << 40, "x": 1e300, "id": 0})
    port.commit(looked(port), commit_of(1, file))
    assert stand.read("SELECT n, x FROM {table} ORDER BY n") == [(1, 0.5), (1 << 40, 1e300)]


def _made(stand: Stand, schema: Schema, **properties: str) -> None:
    """Make the table as another program would."""
    folder = stand.settings["iceberg.uri"]
    catalog = SqlCatalog("default", uri=folder, warehouse=stand.settings["iceberg.warehouse"])
    catalog.create_namespace("flights")
    catalog.create_table(IDENTIFIER, schema, partition_spec=PartitionSpec(), properties=properties)
    catalog.close()


def test_types_that_rows_cannot_have_are_shown_by_their_own_names(stand: Stand) -> None:
    _made(stand, Schema(NestedField(1, "at", TimestampType()), NestedField(2, "name", StringType())))
    changes = changes_for((Column("at", "instant", required=False),), looked(stand.port()).columns)
    assert changes.refused == ("at is instant, and timestamp in the table",)


# Refused tables


def test_table_is_refused_when_it_has_what_is_not_kept_here(stand: Stand) -> None:
    port = stand.created()
    provider = "pyiceberg.table.locations.SimpleLocationProvider"
    _table(stand).transaction().set_properties(
        {"write.wap.enabled": "true", "encryption.key-id": "x", "write.py-location-provider.impl": provider}
    ).commit_transaction()
    said = " ".join(looked(port).refused)
    for name in ("write.wap.enabled", "encryption.key-id", "write.py-location-provider.impl"):
        assert name in said


def test_table_of_another_format_version_is_refused(stand: Stand) -> None:
    _made(stand, Schema(NestedField(1, "n", IntegerType())), **{"format-version": "1"})
    assert looked(stand.port()).refused == ("it has format version 1, and only 2 is written here",)


def test_table_with_equality_deletes_is_refused(stand: Stand) -> None:
    port = stand.created()
    assert looked(port).refused == ()
    transaction = _table(stand).transaction()
    transaction.update_snapshot(
        {"added-equality-deletes": "3", "added-delete-files": "1"}
    ).fast_append().commit()
    transaction.commit_transaction()
    (said,) = looked(port).refused
    assert "equality deletes" in said


def test_settings_of_files_and_sorting_are_read(stand: Stand) -> None:
    port = stand.created()
    table = _table(stand)
    table.transaction().set_properties(
        {"write.target-file-size-bytes": "1000", "write.data.path": f"{table.location()}/else/where"}
    ).commit_transaction()
    with _table(stand).update_sort_order() as order:
        order.asc("carrier", IdentityTransform())
        order.desc("id", IdentityTransform())
    look = looked(port)
    assert (look.target_bytes, look.sort_by) == (1000, ("carrier",))
    assert "/else/where/" in port.files(look).path("x.parquet")


# Storage


def test_full_storage_is_unavailable_and_one_that_may_not_be_written_is_refused(stand: Stand) -> None:
    port = stand.created()
    files = port.files(looked(port))
    full = files.create("file:///dev/full")
    with pytest.raises(TableUnavailableError, match="free space"):
        full.write(b"x" * 10_000_000)
        full.close()
    with pytest.raises(TableRefusedError, match="the right to read, write"):
        files.create("file:///sys/kernel/kstreams-test").write(b"x")


# Expiry


def test_expiry_deletes_what_only_forgotten_snapshots_name(stand: Stand, tmp_path: Path) -> None:
    port = stand.created()
    files = [stand.write(port, looked(port), row(number)) for number in range(4)]
    port.commit(looked(port), commit_of(1, *files[:2]))
    port.commit(looked(port), commit_of(2, files[2], removed=[files[0].path]))
    port.commit(looked(port), commit_of(3, files[3]))
    port.expire(looked(port), 2)
    assert _all_named_exist(stand)
    look = looked(port)
    assert len(port.snapshots(look)) == 2
    # The overwrite is kept: the file that it has taken out is named by it alone, and no snapshot reads it.
    assert stand.ids() == [1, 2, 3]
    port.expire(looked(port), 1)
    assert _all_named_exist(stand)
    assert port.files(look).sizes([each.path for each in files]).keys() == {each.path for each in files[1:]}
    assert stand.ids() == [1, 2, 3]
    metadata = list((tmp_path / "flights/carriers/metadata").glob("snap-*.avro"))
    assert len(metadata) == 1
    assert looked(port).marks == {SINK: 3}


def _all_named_exist(stand: Stand) -> bool:
    """Return True if every manifest and file that a snapshot names exists."""
    table, files = _table(stand), stand.port().files(looked(stand.port()))
    manifests = [each for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)]
    named = {each.manifest_path for each in manifests}
    if files.sizes(named).keys() != named:
        return False
    entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
    paths = {entry.data_file.file_path for entry in entries}
    return files.sizes(paths).keys() == paths


def test_expiry_keeps_what_a_tag_names(stand: Stand) -> None:
    port = stand.created()
    file = stand.write(port, looked(port), row(1))
    tagged = port.commit(looked(port), commit_of(1, file)).snapshot
    _table(stand).manage_snapshots().create_tag(int(tagged), "first").commit()
    port.commit(looked(port), commit_of(2, removed=[file.path]))
    for number in (3, 4):
        port.commit(looked(port), commit_of(number))
    port.expire(looked(port), 1)
    assert port.files(looked(port)).sizes([file.path]) == {file.path: file.size}
    assert len(_table(stand).scan(snapshot_id=int(tagged)).to_arrow()) == 1
    assert len(_table(stand).metadata.snapshots) == 2


def test_expiry_is_refused_when_files_belong_to_others_and_when_the_table_has_moved(stand: Stand) -> None:
    port = stand.created()
    for number in (1, 2):
        port.commit(looked(port), commit_of(number))
    stale = looked(port)
    port.commit(stale, commit_of(3))
    with pytest.raises(TableMovedError):
        port.expire(stale, 1)
    assert len(port.snapshots(looked(port))) == 3
    _table(stand).transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    with pytest.raises(TableRefusedError, match=r"gc\.enabled"):
        port.expire(looked(port), 1)


def test_manifests_are_merged_unless_the_table_forbids_it(stand: Stand) -> None:
    port = stand.created()
    _table(stand).transaction().set_properties(
        {"commit.manifest.min-count-to-merge": "3"}
    ).commit_transaction()
    for number in range(6):
        port.commit(looked(port), commit_of(number + 1, stand.write(port, looked(port), row(number))))
    head = _table(stand).current_snapshot()
    assert head is not None
    assert len(head.manifests(_table(stand).io)) <= 3
    assert stand.ids() == list(range(6))


def test_library_refuses_a_stale_commit_by_the_class_that_is_mapped(stand: Stand) -> None:
    stand.created()
    _table(stand).transaction().set_properties({"commit.retry.num-retries": "0"}).commit_transaction()
    second = _table(stand)
    stand.other.append(row(1))
    with pytest.raises(CommitFailedException):
        second.append(_arrow(second, row(2)))
