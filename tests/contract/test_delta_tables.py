"""What only Delta tables have: refused features, partition values as text, restores, the library's ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import RemoveAction, Transaction

from airflow_kstreams.streams.errors import (
    InvariantError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.table_plan import Column, DecimalType
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts, TableLook, TablePort
from airflow_kstreams.tables.delta import DeltaTablePort
from airflow_kstreams.tables.delta_files import add_action
from airflow_kstreams.tables.storage_errors import TablePlace
from tests.support.tables.object_store import object_stores
from tests.support.tables.stands import APP, SINK, Stand, commit_of, delta_stand, looked, row


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return delta_stand(f"{tmp_path}/carriers", {})


def _table(stand: Stand) -> DeltaTable:
    return DeltaTable(stand.location)


# Partition values

AT = datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
PARTITIONS: list[tuple[Column, Any, str]] = [
    (Column("p", "date", required=False), date(2024, 2, 3), "p = DATE '2024-02-03'"),
    (Column("p", "instant", required=False), AT, "p = TIMESTAMPTZ '2024-02-03 04:05:06.000007+00'"),
    (Column("p", DecimalType(10, 2), required=False), Decimal("-1.50"), "p = -1.5"),
    (Column("p", "boolean", required=False), False, "p = false"),
    (Column("p", "long", required=False), -3, "p = -3"),
    (Column("p", "text", required=False), "a=b/c d%20é\"'", "p = 'a=b/c d%20é\"'''"),
]


@pytest.mark.parametrize(
    ("column", "value", "where"), PARTITIONS, ids=[str(each[0].type) for each in PARTITIONS]
)
def test_files_of_each_type_of_partition_are_found_and_taken_out(
    stand: Stand, column: Column, value: Any, where: str
) -> None:
    port = stand.port()
    port.create((Column("id", "long"), column), ("p",))
    look = looked(port)
    assert (look.partition_by, look.refused) == (("p",), ())
    dated, null = stand.write(port, look, {"id": 1, "p": value}), stand.write(port, look, {"id": 2})
    port.commit(look, commit_of(1, dated, null))
    assert stand.read(f"SELECT id FROM {{table}} WHERE {where}") == [(1,)]
    assert stand.read("SELECT id FROM {table} WHERE p IS NULL") == [(2,)]
    port.commit(looked(port), commit_of(2, removed=[dated.path]))
    assert stand.ids() == [2]
    port.commit(looked(port), commit_of(3, removed=[null.path]))
    assert stand.ids() == []


def test_empty_text_is_refused_as_a_partition_because_readers_take_it_for_null(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    file = stand.write(port, look, row(1, carrier=""))
    with pytest.raises(TableRefusedError, match="cannot tell an empty text"):
        port.commit(look, commit_of(1, file))
    assert looked(port).marks == {}


@pytest.mark.parametrize("field", ["day(at)", "raw", "tags", "nothing"])
def test_partition_field_that_is_none_is_refused(stand: Stand, field: str) -> None:
    columns = (Column("id", "long"), Column("raw", "binary"))
    with pytest.raises(TableRefusedError, match="partition field"):
        stand.port().create(columns, (field,))
    assert stand.port().look() is None


def test_statistics_have_only_what_readers_take_exactly() -> None:
    columns = {
        "id": ColumnFacts(0, 1, 2),
        "x": ColumnFacts(0, float("-inf"), float("nan")),
        "exact": ColumnFacts(0, Decimal("1.5"), Decimal("12345678901234567890.5")),
        "late": ColumnFacts(1, False, True),
        "place.name": ColumnFacts(1, "a", "b"),
        "at": ColumnFacts(0, AT, AT),
        "day": ColumnFacts(0, date(2024, 1, 1), None),
    }
    file = FileFacts(path="/t/a.parquet", size=1, rows=3, columns=columns)
    said = json.loads(add_action("/t", [], file, 5).stats)
    assert said["numRecords"] == 3
    at = "2024-02-03T04:05:06.000007Z"
    assert said["minValues"] == {"id": 1, "exact": 1.5, "place": {"name": "a"}, "at": at, "day": "2024-01-01"}
    assert said["maxValues"] == {"id": 2, "place": {"name": "b"}, "at": at}
    assert said["nullCount"]["place"] == {"name": 1}


# Columns


def test_uuid_is_text_and_a_wider_type_is_refused(stand: Stand) -> None:
    port = stand.port()
    port.create((Column("key", "uuid"),), ())
    assert looked(port).columns == (Column("key", "text"),)
    with pytest.raises(TableRefusedError, match="a wider type"):
        port.widen(looked(port), added=(), widened=(Column("key", "long"),))


def test_types_of_other_writers_are_shown_and_sizes_are_read(stand: Stand) -> None:
    schema = pa.schema(
        [("n", pa.int32()), ("x", pa.float32()), ("at", pa.timestamp("us")), ("s", pa.int16())]
    )
    DeltaTable.create(
        stand.location, schema=Schema.from_arrow(schema), configuration={"delta.targetFileSize": "64MB"}
    )
    look = looked(stand.port())
    assert [str(column.type) for column in look.columns] == ["int", "float", "timestamp_ntz", "short"]
    assert (look.target_bytes, look.refused) == (64 << 20, ())


# Refused tables


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "setTransactionRetentionDuration"),
        ({"delta.enableDeletionVectors": "true"}, "deletion vectors"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.randomizeFilePrefixes": "true"}, "randomizeFilePrefixes"),
        ({"delta.enableRowTracking": "true"}, "rowTracking"),
        ({"delta.constraints.positive": "id > 0"}, "constraint positive"),
    ],
)
def test_table_is_refused_when_it_has_what_is_not_kept_here(
    stand: Stand, properties: dict[str, str], said: str
) -> None:
    stand.created()
    _rewritten(stand, lambda metadata, _: metadata["configuration"].update(properties))
    if said == "rowTracking":
        _rewritten(stand, _with_features("rowTracking"))
    assert said in " ".join(looked(stand.port()).refused)


@pytest.mark.parametrize("feature", ["rowTracking", "icebergCompatV2", "identityColumns", "clustering"])
def test_table_is_refused_when_it_lists_a_feature_that_is_not_written_here(
    stand: Stand, feature: str
) -> None:
    stand.created()
    _rewritten(stand, _with_features(feature))
    try:
        refused = looked(stand.port()).refused
    except TableRefusedError as error:
        refused = (str(error),)
    assert feature in " ".join(refused)


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["madeUp"], "writerFeatures": ["madeUp"]}, "madeUp"),
        ({"minReaderVersion": 3, "readerFeatures": ["catalogManaged"]}, "catalog-managed"),
        (
            {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"], "writerFeatures": []},
            "DeletionVectors",
        ),
        ({"minReaderVersion": 9, "writerFeatures": None}, "protocol"),
    ],
)
@pytest.mark.remedy("delta_errors._port_error")
def test_table_that_the_library_cannot_read_is_refused_with_the_feature(
    stand: Stand, protocol: dict[str, Any], said: str, tmp_path: Path
) -> None:
    stand.created()
    features = {"writerFeatures": ["catalogManaged", "inCommitTimestamp"], "minWriterVersion": 7, **protocol}
    known: dict[str, Any] = {}

    def change(_: dict[str, Any], found: dict[str, Any]) -> None:
        known.update(found)
        found.update({name: value for name, value in features.items() if value is not None})

    _rewritten(stand, change)
    with pytest.raises(TableRefusedError, match=said) as refused:
        stand.port().look()
    assert not refused.value.is_retriable
    other = delta_stand(f"{tmp_path}/other", {})
    assert looked(other.created()).refused == ()

    def dropped(_: dict[str, Any], found: dict[str, Any]) -> None:
        found.clear()
        found.update(known)

    _rewritten(stand, dropped)
    assert looked(stand.port()).refused == ()


def test_table_whose_protocol_has_identity_columns_is_refused_at_look_and_commit(stand: Stand) -> None:
    port = stand.created()
    # Versions of the protocol below 7 name no feature: the sixth is that of identity columns.
    _rewritten(stand, lambda _, protocol: protocol.update(minReaderVersion=2, minWriterVersion=6))
    look = looked(port)
    assert look.refused == ("it asks for writers that know identity columns (version 6 of Delta's protocol)",)
    with pytest.raises(TableRefusedError, match="IdentityColumns"):
        port.commit(look, commit_of(1))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("delta.generationExpression", "is generated"),
        ("delta.invariants", "has an invariant"),
        ("delta.identity.start", "is an identity column"),
    ],
)
def test_table_is_refused_when_a_column_asks_something_of_writers(stand: Stand, rule: str, said: str) -> None:
    stand.created()

    def with_rule(metadata: dict[str, Any], _: dict[str, Any]) -> None:
        schema = json.loads(metadata["schemaString"])
        schema["fields"][0]["metadata"][rule] = 1 if rule.endswith("start") else "id + 1"
        metadata["schemaString"] = json.dumps(schema)

    _rewritten(stand, with_rule)
    assert f"column id {said}" in looked(stand.port()).refused


def _with_features(*features: str) -> Any:
    def change(_: dict[str, Any], protocol: dict[str, Any]) -> None:
        protocol.update(minReaderVersion=1, minWriterVersion=7, writerFeatures=["appendOnly", *features])

    return change


def _rewritten(stand: Stand, change: Any) -> None:
    """Change the first version of a table's log, as another writer would have written it."""
    log = Path(stand.location) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    metadata = next(each["metaData"] for each in actions if "metaData" in each)
    protocol = next(each["protocol"] for each in actions if "protocol" in each)
    change(metadata, protocol)
    log.write_text("\n".join(map(json.dumps, actions)))


def test_storage_without_conditional_writes_is_refused(stand: Stand, tmp_path: Path) -> None:
    stand.created()
    unsafe = delta_stand(stand.location, {"delta.AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    (said,) = looked(unsafe.port()).refused
    assert "AWS_S3_ALLOW_UNSAFE_RENAME" in said


def test_removal_is_refused_when_the_table_is_for_appends_only(stand: Stand) -> None:
    port = stand.created()
    _table(stand).alter.set_table_properties({"delta.appendOnly": "true"})
    look = looked(port)
    assert look.refused == ()
    file = stand.write(port, look, row(1))
    port.commit(look, commit_of(1, file))
    with pytest.raises(TableRefusedError, match=r"delta\.appendOnly"):
        port.commit(looked(port), commit_of(2, removed=[file.path]))


# The history and the mark


def _versions(stand: Stand, count: int) -> tuple[TablePort, list[str]]:
    port = stand.created()
    return port, [port.commit(looked(port), commit_of(number + 1)).snapshot for number in range(count)]


def test_restore_to_a_later_version_keeps_the_earlier_ones(stand: Stand) -> None:
    port, versions = _versions(stand, 3)
    stand.other.roll_back(versions[1])
    look = looked(port)
    assert [port.holds(look, each) for each in versions] == [True, True, False]
    stand.other.roll_back(versions[2])
    assert [port.holds(looked(port), each) for each in versions] == [True, True, True]
    assert looked(port).marks == {SINK: 3}


def test_mark_survives_checkpoint_and_cleanup_of_the_log(stand: Stand) -> None:
    port, versions = _versions(stand, 3)
    stand.other.expire()
    logs = sorted(path.name for path in (Path(stand.location) / "_delta_log").glob("0*.json"))
    assert f"{int(versions[0]):020}.json" not in logs
    assert looked(port).marks == {SINK: 3}
    assert port.holds(looked(port), versions[0]) is None


def test_versions_are_numbered_by_the_log_though_an_entry_says_nothing(stand: Stand) -> None:
    port, versions = _versions(stand, 3)
    log = Path(stand.location) / "_delta_log" / f"{int(versions[1]):020}.json"
    log.write_text("\n".join(line for line in log.read_text().splitlines() if "commitInfo" not in line))
    found = {each.snapshot: each.summary.get("kstreams.run-id") for each in port.snapshots(looked(port))}
    assert found == {"0": None, versions[0]: "run-1", versions[1]: None, versions[2]: "run-3"}


def test_expiry_deletes_files_that_were_taken_out_when_their_time_is_over(stand: Stand) -> None:
    port = stand.created()
    _table(stand).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    old, kept = stand.write(port, looked(port), row(1)), stand.write(port, looked(port), row(2))
    unlisted = stand.write(port, looked(port), row(3))
    port.commit(looked(port), commit_of(1, old, kept))
    port.commit(looked(port), commit_of(2, removed=[old.path]))
    port.expire(looked(port), 1)
    look = looked(port)
    paths = [old.path, kept.path, unlisted.path]
    assert port.files(look).sizes(paths).keys() == {kept.path, unlisted.path}
    assert look.marks == {SINK: 2}
    assert stand.ids() == [2]


def test_expiry_keeps_the_newest_versions_whole_however_short_their_time_is(stand: Stand) -> None:
    port = stand.created()
    _table(stand).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    files = [stand.write(port, looked(port), row(number)) for number in range(3)]
    port.commit(looked(port), commit_of(1, *files))
    port.commit(looked(port), commit_of(2, removed=[files[0].path]))
    with_second = port.commit(looked(port), commit_of(3, removed=[files[1].path])).snapshot
    port.expire(looked(port), 9)
    assert looked(port).snapshot == with_second
    port.expire(looked(port), 2)
    assert port.files(looked(port)).sizes([file.path for file in files]).keys() == {
        files[1].path,
        files[2].path,
    }
    assert stand.ids() == [2]


class Overtaken(DeltaTablePort):
    """A port behind whose last look another writer commits, before its own commit is sent."""

    overtaken: Callable[[], object] = staticmethod(lambda: None)

    def _unmoved(self, look: TableLook) -> DeltaTable:
        table = super()._unmoved(look)
        self.overtaken()
        return table


def test_commit_is_not_moved_onto_the_version_of_another_writer_that_was_quicker(stand: Stand) -> None:
    stand.created()
    port = Overtaken(stand.location, {}, SINK, TablePlace(name=SINK))
    look = looked(port)
    file = stand.write(port, look, row(1))
    port.overtaken = lambda: stand.other.append(row(2, day=date(2024, 2, 1)))
    with pytest.raises(TableMovedError):
        port.commit(look, commit_of(1, file))
    with pytest.raises(TableMovedError):
        port.widen(looked(stand.port()), added=(Column("note", "text", required=False),), widened=())
    assert stand.ids() == [2, 2]
    assert looked(port).marks == {}


# What the library does, as far as it is not documented


def _write(table: DeltaTable, version: int, *actions: Any) -> None:
    table.create_write_transaction(
        list(actions),
        "append",
        table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(f"{APP}/{SINK}", version)]
        ),
    )


def test_library_refuses_a_stale_commit_and_takes_a_fresh_one_of_the_same_number(stand: Stand) -> None:
    stand.created()
    stale, other = _table(stand), _table(stand)
    _write(_table(stand), 1)
    with pytest.raises(CommitFailedError):
        _write(stale, 1)
    with pytest.raises(CommitFailedError):
        _write(other, 2)
    _write(_table(stand), 1)
    assert _table(stand).version() == 2


def test_library_takes_out_a_file_that_the_table_does_not_have(stand: Stand) -> None:
    stand.created()
    _write(_table(stand), 1, RemoveAction(path="none.parquet", data_change=True, deletion_timestamp=0))
    assert _table(stand).version() == 1


def test_library_keeps_a_mark_that_goes_back(stand: Stand) -> None:
    stand.created()
    _write(_table(stand), 5)
    _write(_table(stand), 2)
    assert looked(stand.port()).marks == {SINK: 2}


def test_public_file_system_of_the_library_cannot_be_written_to(stand: Stand) -> None:
    stand.created()
    filesystem = pa.fs.PyFileSystem(DeltaStorageHandler(stand.location, {}))
    with pytest.raises(TypeError, match="is not an instance of 'bytes'"):
        filesystem.open_output_stream("x").write(b"x")


# Storage


def test_storage_says_what_to_do_when_it_refuses_credentials(tmp_path: Path) -> None:
    with object_stores() as stores:
        store = stores.bucket(tmp_path)
        stand = delta_stand(f"s3://{store.bucket}/carriers", store.delta, store=store)
        port = stand.created()
        look = looked(port)
        stores.check_credentials()
        with pytest.raises(TableRefusedError, match="renew or correct the credentials") as refused:
            port.look()
        assert "tests-secret-key" not in str(refused.value)
        with pytest.raises(TableRefusedError, match="renew or correct the credentials"):
            port.commit(look, commit_of(1))


def test_storage_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    settings = {"delta.aws_endpoint_url": "http://127.0.0.1:9", "delta.aws_allow_http": "true"}
    settings |= {"delta.aws_access_key_id": "x", "delta.aws_secret_access_key": "y", "delta.aws_region": "z"}
    stand = delta_stand("s3://bucket/carriers", {**settings, "delta.max_retries": "0"})
    with pytest.raises(TableUnavailableError):
        stand.port().look()


def test_folder_that_may_not_be_written_is_refused() -> None:
    stand = delta_stand("/sys/kernel/kstreams-test", {})
    with pytest.raises(TableRefusedError, match="the right to read, write"):
        stand.created()


def test_folder_that_cannot_be_made_is_no_table_that_has_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableUnavailableError, match="Could not create local directory"):
        delta_stand(f"{tmp_path}/file/carriers", {}).created()


def test_file_of_another_folder_is_refused(stand: Stand, tmp_path: Path) -> None:
    port = stand.created()
    look = looked(port)
    with pytest.raises(InvariantError, match="a file lies in the folder of its table"):
        port.commit(
            look,
            commit_of(1, FileFacts(path=f"{tmp_path}/x.parquet", size=1, rows=1, partition=(None, None))),
        )
