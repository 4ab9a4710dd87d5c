"""The same suite on tables in memory, Iceberg (SQL and REST catalogues, S3) and Delta (a folder, S3).

What is committed is read by DuckDB, which shares no code with the writers; of tables in memory, the bytes of
their files are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import FileFacts, TablePort
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.tables.object_store import ObjectStores, object_stores
from tests.support.tables.rest_catalog import rest_catalog
from tests.support.tables.stands import (
    APP,
    COLUMNS,
    PARTITION_BY,
    SINK,
    Stand,
    commit_of,
    delta_stand,
    iceberg_stand,
    looked,
    memory_stand,
    row,
)

STANDS = ("memory", "iceberg sql", "iceberg rest", "delta")
#: For what depends on the storage.
EVERYWHERE = (*STANDS, "iceberg s3", "delta s3")


@pytest.fixture(scope="session")
def stores() -> Iterator[ObjectStores]:
    with object_stores() as served:
        yield served


@pytest.fixture(params=STANDS)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    with opened_stand(request.param, tmp_path, request) as made:
        yield made


@pytest.fixture(params=EVERYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    with opened_stand(request.param, tmp_path, request) as made:
        yield made


@contextmanager
def opened_stand(name: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Stand]:
    sql = {"iceberg.type": "sql", "iceberg.uri": f"sqlite:///{folder}/catalog.db"}
    match name:
        case "memory":
            yield memory_stand()
        case "iceberg sql":
            yield iceberg_stand({**sql, "iceberg.warehouse": f"file://{folder}"}, name="flights")
        case "iceberg rest":
            catalog = SqlCatalog("served", uri=f"sqlite:///{folder}/served.db", warehouse=f"file://{folder}")
            with rest_catalog(catalog) as server:
                yield iceberg_stand({"iceberg.type": "rest", "iceberg.uri": server.url}, name="flights")
            catalog.close()
        case "iceberg s3":
            store = request.getfixturevalue("stores").bucket(folder)
            settings = {**sql, **store.iceberg, "iceberg.warehouse": f"s3://{store.bucket}/warehouse"}
            yield iceberg_stand(settings, name="flights", store=store)
        case "delta":
            yield delta_stand(f"{folder}/carriers", {})
        case "delta s3":
            store = request.getfixturevalue("stores").bucket(folder)
            yield delta_stand(f"s3://{store.bucket}/carriers", store.delta, store=store)


class AnswersLost:
    """Loses the answer of calls of one name; or keeps what they do for later, or does it twice."""

    def __init__(self, name: str, *, later: bool = False, twice: bool = False) -> None:
        self._name, self._later, self._twice = name, later, twice
        self.kept: list[Any] = []

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        if name != self._name:
            return effect()
        if self._later:
            self.kept.append(effect)
        else:
            effect()
        if self._twice:
            return effect()
        raise TableUnavailableError("the answer was lost")


# The table


def test_table_is_absent_until_it_is_created_and_a_second_creation_leaves_it_alone(anywhere: Stand) -> None:
    port = anywhere.port()
    assert port.look(APP) is None
    port.create(COLUMNS, PARTITION_BY)
    first = looked(port)
    port.create((Column("other", "text"),), ())
    look = looked(anywhere.port())
    assert (look.columns, look.partition_by) == (COLUMNS, PARTITION_BY)
    assert (look.table_id, look.marks, look.refused) == (first.table_id, {}, ())


def test_table_that_was_made_anew_has_another_id(stand: Stand) -> None:
    port = stand.created()
    first = looked(port)
    port.commit(first, commit_of(1, stand.write(port, first, row(1))))
    before = looked(port)
    stand.other.make_anew()
    after = looked(port)
    assert after.table_id != first.table_id
    assert after.marks == {}
    assert port.holds(after, before.snapshot) is not True
    with pytest.raises(TableMovedError):
        port.commit(before, commit_of(2))
    assert stand.ids() == []


# Rows, summary and mark


def test_commit_adds_rows_of_all_types_with_summary_and_mark_in_one_snapshot(anywhere: Stand) -> None:
    port = anywhere.created()
    look = looked(port)
    committed = port.commit(
        look, commit_of(1, anywhere.write(port, look, row(1), row(2, tags=None, place=None)))
    )
    after = looked(anywhere.port())
    assert (after.snapshot, after.marks) == (committed.snapshot, {SINK: 1})
    assert committed.rewritten_bytes == 0
    made = port.snapshots(after)[-1]
    assert (made.snapshot, made.operation) == (committed.snapshot, "append")
    assert made.summary["kstreams.run-id"] == "run-1"
    assert made.made_ms > 0
    assert len(port.snapshots(after)) - len(port.snapshots(look)) == 1
    found = anywhere.read('SELECT id, day, carrier, "at", fare, late, minutes, raw FROM {table} ORDER BY id')
    at = datetime(2024, 1, 1, 5, 30, tzinfo=UTC)
    assert [(*values[:3], values[3].astimezone(UTC), *values[4:]) for values in found] == [
        (number, date(2024, 1, 1), "UA", at, Decimal("12.50"), True, 1.5, b"\x00\xff") for number in (1, 2)
    ]
    nested = anywhere.read("SELECT tags, counts['a'], place.x, place.name FROM {table} ORDER BY id")
    assert nested == [(["a", None], 1, 0.5, None), (None, 1, None, None)]


def test_commit_without_rows_makes_a_snapshot_with_the_mark(stand: Stand) -> None:
    port = stand.created()
    before = looked(port)
    snapshot = port.commit(before, commit_of(1)).snapshot
    look = looked(port)
    assert (look.snapshot, look.marks) == (snapshot, {SINK: 1})
    assert snapshot != before.snapshot
    assert stand.ids() == []


def test_marks_of_sinks_and_applications_are_kept_apart(stand: Stand) -> None:
    port = stand.created()
    for number, (app, sink) in enumerate([(APP, SINK), ("flight", SINK), (f"{APP}.flights", "carriers")], 1):
        port.commit(looked(port), commit_of(number, application_id=app, sink=sink))
    assert looked(port).marks == {SINK: 1}
    other = port.look("flight")
    assert other is not None
    assert other.marks == {SINK: 2}
    assert stand.port().look().marks == {}  # type: ignore[union-attr]


def test_partition_is_what_the_facts_say_and_null_is_one_of_its_own(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    dated = stand.write(port, look, row(1), row(2))
    undated = stand.write(port, look, row(3, day=None, carrier=None))
    port.commit(look, commit_of(1, dated, undated))
    where = "SELECT id FROM {table} WHERE %s ORDER BY id"
    assert stand.read(where % "day = DATE '2024-01-01'") == [(1,), (2,)]
    assert stand.read(where % "day IS NULL") == [(3,)]
    assert stand.read(where % "carrier IS NULL AND day IS NULL") == [(3,)]
    assert stand.read(where % "carrier = 'UA'") == [(1,), (2,)]


def test_rows_are_found_by_their_values_when_statistics_leave_files_out(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    long = "x" * 40
    files = [
        stand.write(port, look, _timed(low, minutes), _timed(low + 10, minutes + 1.0))
        for low, minutes in ((1, -2.5), (2, -0.5), (3, 100.0))
    ]
    port.commit(look, commit_of(1, *files, stand.write(port, look, row(40, carrier=long))))
    found = "SELECT id FROM {table} WHERE %s ORDER BY id"
    assert stand.read(found % "id >= 13") == [(13,), (40,)]
    assert stand.read(found % "id <= 1") == [(1,)]
    assert stand.read(found % "minutes <= -2.5") == [(1,)]
    assert stand.read(found % "minutes > 100.5") == [(13,)]
    assert stand.read(found % "\"at\" > TIMESTAMPTZ '2024-01-12 12:00:00+00'") == [(13,)]
    assert stand.read(found % "\"at\" < TIMESTAMPTZ '2024-01-01 02:00:00+00'") == [(1,)]
    assert stand.read(found % f"carrier = '{long}'") == [(40,)]


def _timed(number: int, minutes: float) -> dict[str, Any]:
    return row(number, minutes=minutes, fare=None, raw=None, at=datetime(2024, 1, number, tzinfo=UTC))


# The condition


CHANGES = {
    "append": lambda stand: stand.other.append(row(90, day=date(2024, 2, 1))),
    "own commit": lambda stand: stand.port().commit(looked(stand.port()), commit_of(7)),
    "column": lambda stand: stand.other.add_column("note"),
    "rollback": lambda stand: stand.other.roll_back(
        stand.port().snapshots(looked(stand.port()))[-2].snapshot
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_stale_commit_is_refused_and_adds_nothing(stand: Stand, change: str) -> None:
    port = stand.created()
    for number in (1, 2):
        port.commit(looked(port), commit_of(number, stand.write(port, looked(port), row(number))))
    stale = looked(port)
    file = stand.write(port, stale, row(3))
    CHANGES[change](stand)
    now = looked(stand.port())
    before = stand.ids()
    with pytest.raises(TableMovedError):
        port.commit(stale, commit_of(3, file))
    with pytest.raises(TableMovedError):
        stand.port().commit(stale, commit_of(3))
    after = looked(stand.port())
    assert (after.snapshot, after.marks) == (now.snapshot, now.marks)
    assert stand.ids() == before
    port.commit(after, commit_of(8, file))
    assert stand.ids() == sorted([*before, 3])


def test_only_one_of_two_writers_wins_when_both_looked_at_the_same_state(anywhere: Stand) -> None:
    first, second = anywhere.created(), anywhere.port()
    looks = looked(first), looked(second)
    file = anywhere.write(first, looks[0], row(1))
    first.commit(looks[0], commit_of(1, file))
    with pytest.raises(TableMovedError):
        second.commit(looks[1], commit_of(1, file))
    assert anywhere.ids() == [1]


def test_commit_beside_expiry_either_lands_whole_or_not_at_all(stand: Stand) -> None:
    port = stand.created()
    for number in (1, 2):
        port.commit(looked(port), commit_of(number, stand.write(port, looked(port), row(number))))
    look = looked(port)
    stand.other.expire()
    file = stand.write(port, look, row(3))
    try:
        port.commit(look, commit_of(3, file))
    except TableMovedError:
        port.commit(looked(port), commit_of(3, file))
    assert looked(port).marks == {SINK: 3}
    assert stand.ids() == [1, 2, 3]


def test_next_look_finds_the_mark_when_the_answer_was_lost(stand: Stand) -> None:
    stand.created()
    lost = FaultyTables(stand.client(), AnswersLost("table.commit")).table(stand)
    look = looked(lost)
    file = stand.write(lost, look, row(1))
    with pytest.raises(TableUnavailableError):
        lost.commit(look, commit_of(1, file))
    assert looked(lost).marks == {SINK: 1}
    with pytest.raises(TableMovedError):
        stand.port().commit(look, commit_of(1, file))
    assert stand.ids() == [1]


def test_late_commit_fails_its_condition_when_another_one_was_made(anywhere: Stand) -> None:
    anywhere.created()
    keeps = AnswersLost("table.commit", later=True)
    slow = FaultyTables(anywhere.client(), keeps).table(anywhere)
    look = looked(slow)
    file = anywhere.write(slow, look, row(1))
    with pytest.raises(TableUnavailableError):
        slow.commit(look, commit_of(1, file))
    assert looked(slow).marks == {}
    anywhere.port().commit(looked(anywhere.port()), commit_of(1, file))
    (late,) = keeps.kept
    with pytest.raises(TableMovedError):
        late()
    assert anywhere.ids() == [1]


def test_commit_that_is_made_twice_lands_once(anywhere: Stand) -> None:
    anywhere.created()
    twice = FaultyTables(anywhere.client(), AnswersLost("table.commit", twice=True)).table(anywhere)
    look = looked(twice)
    with pytest.raises(TableMovedError):
        twice.commit(look, commit_of(1, anywhere.write(twice, look, row(1))))
    assert looked(twice).marks == {SINK: 1}
    assert anywhere.ids() == [1]


# The mark and the history


def _three_commits(stand: Stand) -> tuple[TablePort, list[str]]:
    port = stand.created()
    return port, [
        port.commit(looked(port), commit_of(number, stand.write(port, looked(port), row(number)))).snapshot
        for number in (1, 2, 3)
    ]


def test_mark_survives_rollback_and_the_history_says_which_snapshots_are_left(anywhere: Stand) -> None:
    port, snapshots = _three_commits(anywhere)
    assert [port.holds(looked(port), each) for each in snapshots] == [True, True, True]
    anywhere.other.roll_back(snapshots[1])
    look = looked(port)
    assert look.marks == {SINK: 3}
    assert [port.holds(look, each) for each in snapshots] == [True, True, False]
    runs = [each.summary.get("kstreams.run-id", "") for each in port.snapshots(look, taken_back=True)]
    assert [run for run in runs if run] == ["run-1", "run-2", "run-3"]
    ours = {each.snapshot for each in port.snapshots(look, taken_back=True)}
    assert ours.issuperset(snapshots)
    port.commit(look, commit_of(4, anywhere.write(port, look, row(4))))
    look = looked(port)
    assert [port.holds(look, each) for each in snapshots] == [True, True, False]
    assert anywhere.ids() == [1, 2, 4]


def test_mark_survives_expiry_and_nothing_is_said_of_snapshots_that_were_forgotten(stand: Stand) -> None:
    port, snapshots = _three_commits(stand)
    stand.other.expire()
    look = looked(stand.port())
    assert look.marks == {SINK: 3}
    assert port.holds(look, snapshots[0]) is None
    assert port.holds(look, looked(port).snapshot) is True
    assert port.holds(look, "99999999999999999") is not True
    assert stand.ids() == [1, 2, 3]


def test_own_expiry_keeps_mark_and_rows(anywhere: Stand) -> None:
    port, _ = _three_commits(anywhere)
    before = looked(port)
    port.expire(before, 2)
    look = looked(port)
    assert look.marks == {SINK: 3}
    assert anywhere.ids() == [1, 2, 3]
    port.commit(look, commit_of(4, anywhere.write(port, look, row(4))))
    port.expire(looked(port), 1)
    assert port.snapshots(looked(port))
    assert looked(anywhere.port()).marks == {SINK: 4}
    assert anywhere.ids() == [1, 2, 3, 4]


# Columns


def test_added_column_keeps_old_rows_readable(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    port.commit(look, commit_of(1, stand.write(port, look, row(1))))
    note = Column("note", "text", required=False)
    before = looked(port)
    port.widen(before, added=(note,), widened=())
    look = looked(port)
    assert look.columns == (*COLUMNS, note)
    assert look.marks == {SINK: 1}
    port.commit(look, commit_of(2, stand.write(port, look, row(2, note="new"))))
    assert stand.read("SELECT id, note FROM {table} ORDER BY id") == [(1, None), (2, "new")]


def test_change_of_columns_is_refused_when_the_table_has_moved(stand: Stand) -> None:
    port = stand.created()
    stale = looked(port)
    stand.other.append(row(1))
    with pytest.raises(TableMovedError):
        port.widen(stale, added=(Column("note", "text", required=False),), widened=())
    assert looked(port).columns == COLUMNS


# Files


def test_files_are_put_in_the_place_of_others_in_one_snapshot(anywhere: Stand) -> None:
    port = anywhere.created()
    look = looked(port)
    kept, old = anywhere.write(port, look, row(1)), anywhere.write(port, look, row(2), row(3))
    undated = anywhere.write(port, look, row(5, day=None, carrier=None))
    port.commit(look, commit_of(1, kept, old, undated))
    look = looked(port)
    port.commit(
        look, commit_of(2, anywhere.write(port, look, row(3), row(4)), removed=[old.path, undated.path])
    )
    after = looked(port)
    assert anywhere.ids() == [1, 3, 4]
    assert after.marks == {SINK: 2}
    assert len(port.snapshots(after)) - len(port.snapshots(look)) == 1
    port.commit(after, commit_of(3, removed=[kept.path]))
    assert anywhere.ids() == [3, 4]


def test_files_that_a_snapshot_has_added_are_found_as_long_as_they_are_in_the_table(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    first, taken = stand.write(port, look, row(1)), stand.write(port, look, row(2), row(3))
    made = [port.commit(look, commit_of(1, first, taken)).snapshot]
    look = looked(port)
    second = stand.write(port, look, row(4, carrier="A B/C=D"), row(5, carrier="A B/C=D"))
    made.append(port.commit(look, commit_of(2, second)).snapshot)
    made.append(port.commit(looked(port), commit_of(3, removed=[taken.path])).snapshot)
    look = looked(port)
    assert [port.added(look, each) for each in made] == [{first.path: 1}, {second.path: 2}, {}]
    assert port.partitions(look) == {file.path: file.partition for file in (first, second)}
    port.commit(look, commit_of(4, removed=list(port.added(look, made[1]) or ())))
    assert stand.ids() == [1]
    assert port.added(looked(port), made[1]) == {}


def test_removal_of_a_file_that_is_not_in_the_table_is_refused(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    file = stand.write(port, look, row(1))
    with pytest.raises(TableRefusedError, match="is to be taken out"):
        port.commit(look, commit_of(1, removed=[file.path]))
    assert looked(port).marks == {}


def test_commit_of_many_files_opens_none_of_them(stand: Stand) -> None:
    port = stand.created()
    look = looked(port)
    partition = tuple(row(1)[name] for name in PARTITION_BY)
    files = [
        FileFacts(path=port.files(look).path(f"none-{number}.parquet"), size=10, rows=1, partition=partition)
        for number in range(2_000)
    ]
    port.commit(look, commit_of(1, *files))
    assert looked(port).marks == {SINK: 1}
    assert port.files(look).sizes([files[0].path]) == {}


def test_storage_writes_reads_lists_and_deletes_files(anywhere: Stand) -> None:
    port = anywhere.created()
    files = port.files(looked(port))
    path = files.path("app-1.parquet", [("day", date(2024, 1, 1)), ("carrier", "a/b c%20")])
    other = files.path("other-1.parquet")
    for name in (path, other):
        with files.create(name) as out:
            out.write(b"12")
            out.write(memoryview(b"34567"))
    assert files.sizes([path, other, files.path("app-2.parquet")]) == {path: 7, other: 7}
    with files.read(path) as stored:
        stored.seek(2)
        assert (stored.read(2), stored.tell(), stored.read()) == (b"34", 4, b"567")
    ((name, changed_ms),) = files.names("app-")
    assert name == path
    assert changed_ms > 0
    files.delete([path, files.path("app-2.parquet")])
    assert files.sizes([path, other]) == {other: 7}
    assert list(files.names("app-")) == []
    with pytest.raises((TableUnavailableError, TableMovedError)):
        files.read(path).read()


def test_dropped_mark_is_gone_or_kept_for_ever(stand: Stand) -> None:
    port = stand.created()
    port.commit(looked(port), commit_of(1))
    port.drop_mark(looked(port), APP, SINK)
    kept = {SINK: 1} if stand.format == "delta" else {}
    assert looked(port).marks == kept
    port.drop_mark(looked(port), APP, SINK)
    assert looked(port).marks == kept


def test_files_that_no_readable_snapshot_names_are_told_from_others(stand: Stand) -> None:
    port = stand.created()
    first, second, left = (stand.write(port, looked(port), row(number)) for number in (1, 2, 3))
    port.commit(looked(port), commit_of(1, first))
    port.commit(looked(port), commit_of(2, second, removed=[first.path]))
    paths = [first.path, second.path, left.path]
    assert port.named(looked(port), paths) == {first.path, second.path}
    assert port.named(looked(port), [left.path]) == port.named(looked(port), []) == set()
    stand.other.expire()
    assert port.named(looked(port), [second.path, left.path]) == {second.path}


def test_history_says_how_many_rows_each_snapshot_added_and_took_out(stand: Stand) -> None:
    port = stand.created()
    first = stand.write(port, looked(port), row(1), row(2))
    port.commit(looked(port), commit_of(1, first))
    port.commit(looked(port), commit_of(2))
    port.commit(looked(port), commit_of(3, stand.write(port, looked(port), row(3)), removed=[first.path]))
    stand.other.append(row(4))
    # A remove action of Delta need not say the rows of its file.
    removed = None if stand.format == "delta" else 2
    found = [(each.added, each.removed) for each in port.snapshots(looked(port))[-4:]]
    assert found == [(2, 0), (0, 0), (1, removed), (1, 0)]


def test_rows_are_counted_by_the_values_of_a_column(stand: Stand) -> None:
    port = stand.created()
    for sequence, carrier in enumerate(("UA", "AA", None, "UA"), 1):
        file = stand.write(port, looked(port), row(sequence, carrier=carrier))
        port.commit(looked(port), commit_of(sequence, file))
    expected = None if stand.format == "memory" else {"UA": 2, "AA": 1}
    assert port.row_counts(looked(port), "carrier") == expected
