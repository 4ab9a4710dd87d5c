"""Orphans, the check beside the ledger, and expiry, on tables in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_kstreams.batch.inspect.tables.orphans import Orphans, find_orphans
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck, compare_tables
from airflow_kstreams.batch.run.tables.table_expiry import expire_tables
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.tables.beside_topics import TABLE
from tests.support.tables.landed_scene import BusyWriter, LandedScene, file_of

DAY_MS = 86_400_000
#: The files of tasks are named after these in memory; the product's begin with the application's name.
BEGINNING = "0_"


@pytest.fixture
def scene() -> LandedScene:
    return LandedScene()


def orphans(scene: LandedScene, *, days: int = 3, delete: bool = False) -> Orphans:
    return find_orphans(
        scene.kafka,
        scene.plan,
        scene.tables,
        beginning=BEGINNING,
        older_than_ms=days * DAY_MS,
        delete=delete,
        clock=scene.clock,
    )


def leave(scene: LandedScene, name: str) -> str:
    """Leave a file that an attempt wrote before it died."""
    port = scene.tables.table(scene.plan.tables[0])
    look = port.look()
    assert look is not None
    path = port.files(look).path(name)
    with port.files(look).create(path) as file:
        file.write(b"rows")
    return path


def test_files_of_snapshots_and_of_the_open_slice_are_no_orphans(scene: LandedScene) -> None:
    scene.run("r1")
    scene.run("r2")
    scene.other.roll_back("1")
    scene.other.roll_back("2")
    scene.listed("r3")
    left, foreign = leave(scene, "0_0-dead"), leave(scene, "other-file")
    found = orphans(scene)
    assert ([each.path for each in found.files], found.looked_at) == ([left], 4)
    assert (found.files[0].table, found.files[0].bytes, found.files[0].deleted) == (TABLE, 4, False)
    scene.application.finish("r3")
    assert [each.path for each in orphans(scene).files] == [left]
    # What only forgotten snapshots name is an orphan, too.
    assert foreign in scene.tables.stored


def test_only_old_orphans_are_deleted_and_only_when_told(scene: LandedScene) -> None:
    scene.run("r1")
    old = leave(scene, "0_0-old")
    scene.clock.sleep(4 * 86_400)
    young = leave(scene, "0_0-young")
    scene.listed("r2")
    scene.clock.sleep(60)
    kept = {path for path in scene.tables.stored if path not in (old, young)}
    assert [each.deleted for each in orphans(scene).files] == [False, False]
    assert old in scene.tables.stored
    found = orphans(scene, delete=True)
    assert [(each.path, each.deleted) for each in found.files] == [(old, True), (young, False)]
    assert {*scene.tables.stored} == {*kept, young}
    # However young they may be: what is listed stays.
    orphans(scene, days=0, delete=True)
    assert {*scene.tables.stored} == kept
    scene.application.finish("r2")


def checked(scene: LandedScene, *, allow_others: bool = False) -> TablesCheck:
    return compare_tables(scene.kafka, scene.plan, scene.tables, allow_others=allow_others, clock=scene.clock)


def test_tables_agree_with_the_ledger_after_runs_resumed_empty_and_compacted_ones(
    scene: LandedScene,
) -> None:
    scene.run("r1", 3)
    scene.application.run("nothing new")
    scene.listed("r2", 2)
    assert checked(scene).differences == ()
    scene.application.finish("r2")
    files = scene.tables.state(TABLE).files
    scene.other.compact(removed=list(files), added=[file_of(5)])
    found = checked(scene)
    assert found.differences == ()
    (table,) = found.tables
    assert (table.runs, table.forgotten, table.rows, table.counted) == (2, 0, 5, False)
    scene.other.expire(1)
    (table,) = checked(scene).tables
    assert (table.runs, table.forgotten) == (0, 2)


def _row_added(scene: LandedScene) -> None:
    scene.other.append(file_of(1))


def _rolled_back(scene: LandedScene) -> None:
    scene.other.roll_back("1")


def _dropped(scene: LandedScene) -> None:
    scene.other.drop()


def _made_anew(scene: LandedScene) -> None:
    scene.other.make_anew()


def _snapshot_of_an_unknown_run(scene: LandedScene) -> None:
    summary = {"kstreams.application-id": "app", "kstreams.run-id": "r9"}
    state = scene.tables.snapshot(TABLE, operation="append", added=[file_of(4)], summary=summary)
    scene.tables.states[TABLE] = state


def _second_snapshot_of_a_run(scene: LandedScene) -> None:
    summary = {"kstreams.application-id": "app", "kstreams.run-id": "r2"}
    state = scene.tables.snapshot(TABLE, operation="append", added=[file_of(2)], summary=summary)
    scene.tables.states[TABLE] = state


def _other_number_of_rows(scene: LandedScene) -> None:
    state = scene.tables.state(TABLE)
    kept = state.kept["2"]
    changed = replace(kept, snapshot=replace(kept.snapshot, added=7))
    scene.other.change(kept={**state.kept, "2": changed})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_row_added, "a snapshot of no run (append) changed rows: 1 added, 0 taken out"),
        (_rolled_back, "the table was rolled back or restored past it"),
        (_dropped, "the table is gone: the ledger has 2 runs in it"),
        (_made_anew, "and this is table table-2"),
        (_snapshot_of_an_unknown_run, "a run that the ledger does not have"),
        (_second_snapshot_of_a_run, "the run has a second snapshot, beside 2"),
        (_other_number_of_rows, "added another number of rows"),
    ],
)
def test_what_was_changed_by_hand_is_a_difference(
    scene: LandedScene, change: Callable[[LandedScene], None], said: str
) -> None:
    scene.run("r1", 3)
    scene.run("r2", 2)
    change(scene)
    texts = [each.text for each in checked(scene).differences]
    assert any(said in text for text in texts), texts


def test_rows_of_other_programs_are_no_difference_where_they_are_allowed(scene: LandedScene) -> None:
    scene.run("r1", 3)
    scene.other.append(file_of(1))
    assert checked(scene, allow_others=True).differences == ()
    assert len(checked(scene).differences) == 1


def test_expiry_keeps_the_newest_snapshots_of_each_table(scene: LandedScene) -> None:
    for number in range(5):
        scene.run(f"r{number}")
    (found,) = expire_tables(scene.tables, scene.plan, 2)
    assert (found.before, found.after) == (5, 2)
    scene.run("r5")
    assert checked(scene).differences == ()


@pytest.mark.error_example("KS-TABLE-001")
@pytest.mark.remedy("table_expiry._expired")
def test_expiry_beside_a_busy_writer_is_tried_again_later(scene: LandedScene) -> None:
    for number in range(3):
        scene.run(f"r{number}")
    with pytest.raises(TableUnavailableError, match="at each of 5 looks") as raised:
        expire_tables(FaultyTables(scene.tables, BusyWriter(scene.other, "table.expire")), scene.plan, 1)
    assert raised.value.fix == "try again later"
    (found,) = expire_tables(scene.tables, scene.plan, 1)
    assert found.after == 1
