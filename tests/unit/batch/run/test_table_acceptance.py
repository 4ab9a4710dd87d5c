"""``tables accept``: a table that is not as the last run has left it, and is right as it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_kstreams.batch.inspect.tables.table_check import compare_tables
from airflow_kstreams.batch.run.tables.table_acceptance import AcceptedTable, accept_tables
from airflow_kstreams.inspect.lakehouse_tables import notes_of_check
from airflow_kstreams.streams.errors import RunBusyError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.kafka.waiting import WaitingClock
from tests.support.tables.beside_topics import TABLE
from tests.support.tables.landed_scene import APP, BusyWriter, LandedScene
from tests.support.tables.packed_rows import unpacked


@pytest.fixture
def scene() -> LandedScene:
    return LandedScene()


def accept(scene: LandedScene) -> AcceptedTable:
    (found,) = accept_tables(
        scene.kafka, scene.application.checked, scene.plan, scene.tables, clock=scene.clock
    )
    return found


def rows(scene: LandedScene) -> int:
    return len(scene.tables.rows(TABLE, unpacked))


def _dropped(scene: LandedScene) -> None:
    scene.other.drop()


def _made_anew(scene: LandedScene) -> None:
    scene.other.make_anew()


def _restored_from_a_backup(scene: LandedScene) -> None:
    state = scene.tables.state(TABLE)
    scene.other.change(head="1", kept={"1": state.kept["1"]}, marks={(APP, TABLE): 1})


def _rolled_back(scene: LandedScene) -> None:
    scene.other.roll_back("1")


@pytest.mark.parametrize(
    ("change", "left"),
    [(_dropped, 0), (_made_anew, 0), (_restored_from_a_backup, 2), (_rolled_back, 2)],
)
def test_runs_go_on_with_a_table_that_was_accepted(
    scene: LandedScene, change: Callable[[LandedScene], None], left: int
) -> None:
    scene.run("r1", 2)
    scene.run("r2", 3)
    change(scene)
    scene.send()
    with pytest.raises(TableRefusedError) as refused:
        scene.application.begin("r3")
    assert "or take it as it is: airflow-kstreams tables APP.py accept" in refused.value.fix
    assert accept(scene).changed
    assert rows(scene) == left
    assert accept(scene) == AcceptedTable(table=TABLE, changed=False, text="as the ledger has it")
    landed = scene.application.run("r3").tables[TABLE]
    # Sequences only grow: a committer of an earlier run that sleeps finds its own mark, or a later one.
    assert (landed.sequence, rows(scene)) == (3, left + 1)
    assert scene.tables.state(TABLE).marks == {(APP, TABLE): 3}


def test_rows_of_a_table_that_another_took_the_place_of_are_no_differences(scene: LandedScene) -> None:
    scene.run("r1", 2)
    scene.other.make_anew()
    accept(scene)
    scene.run("r2")
    found = compare_tables(scene.kafka, scene.plan, scene.tables, clock=scene.clock)
    assert found.differences == ()
    assert (found.tables[0].runs, found.tables[0].forgotten) == (1, 1)


def compared(scene: LandedScene) -> tuple[int, int, list[str]]:
    """Number of runs whose snapshots were compared, of those taken back, and the differences."""
    found = compare_tables(scene.kafka, scene.plan, scene.tables, clock=scene.clock)
    (table,) = found.tables
    return table.runs, table.taken_back, [each.text for each in found.differences]


@pytest.mark.parametrize("change", [_rolled_back, _restored_from_a_backup])
def test_runs_that_an_accepted_rollback_took_back_are_no_differences(
    scene: LandedScene, change: Callable[[LandedScene], None]
) -> None:
    for run_id in ("r1", "r2"):
        scene.run(run_id, 2)
    change(scene)
    missing = "its snapshot is not in the history: the table was rolled back or restored past it"
    assert compared(scene) == (2, 0, [missing])
    accept(scene)
    assert compared(scene) == (1, 1, [])
    # Later runs keep in mind what was accepted.
    scene.run("r3")
    scene.run("r4")
    scene.application.run("nothing new")
    assert compared(scene) == (3, 1, [])
    found = compare_tables(scene.kafka, scene.plan, scene.tables, clock=scene.clock)
    assert [*notes_of_check(found)] == [
        f"{TABLE}: 1 run taken back by an accepted rollback.",
        "Tables and ledger agree.",
    ]
    assert found.tables[0].rows == 4
    # Another rollback, past what was accepted, is a difference of every run that it takes back.
    scene.other.roll_back("")
    assert compared(scene) == (4, 0, [missing] * 4)


def test_run_under_way_keeps_in_mind_the_rollback_that_was_accepted(scene: LandedScene) -> None:
    scene.run("r1", 2)
    scene.run("r2", 2)
    scene.listed("r3")
    scene.other.roll_back("1")
    accept(scene)
    scene.application.finish("r3")
    assert compared(scene) == (2, 1, [])


def test_mark_that_the_ledger_has_lost_becomes_the_ledgers(scene: LandedScene) -> None:
    scene.run("r1")
    scene.other.change(marks={(APP, TABLE): 7})
    accept(scene)
    scene.run("r2")
    assert scene.tables.state(TABLE).marks == {(APP, TABLE): 8}


def test_run_under_way_lands_in_the_accepted_table(scene: LandedScene) -> None:
    scene.run("r1", 2)
    scene.listed("r2", 3)
    scene.other.make_anew()
    with pytest.raises(TableRefusedError):
        scene.application.finish("r2")
    found = accept(scene)
    assert (found.changed, found.text) == (True, "run r2 lands in it")
    assert not accept(scene).changed
    scene.application.finish("r2")
    assert rows(scene) == 3
    scene.run("r3")
    assert rows(scene) == 4


@pytest.mark.remedy("landing.Landing._refuse_rolled_back")
@pytest.mark.parametrize("accepted", [True, False])
def test_run_does_not_land_on_a_table_that_was_rolled_back_under_it(
    scene: LandedScene, accepted: bool
) -> None:
    scene.run("r1", 2)
    scene.listed("r2", 3)
    scene.other.roll_back("")
    with pytest.raises(TableRefusedError, match="rolled back or restored past snapshot 1") as refused:
        scene.application.finish("r2")
    assert "or take it as it is: airflow-kstreams tables APP.py accept" in refused.value.fix
    if accepted:
        assert accept(scene).changed
        assert not accept(scene).changed
    else:
        scene.other.roll_back("1")
    scene.application.finish("r2")
    assert rows(scene) == (3 if accepted else 5)
    scene.run("r3")
    assert rows(scene) == (4 if accepted else 6)


@pytest.mark.remedy("table_acceptance._AcceptedSlice._target")
def test_table_with_other_columns_is_not_accepted_for_files_that_were_written(scene: LandedScene) -> None:
    scene.listed("r1", 3)
    scene.other.make_anew()
    columns = scene.tables.state(TABLE).columns
    scene.other.change_columns((*columns, Column("more", "text")))
    with pytest.raises(TableRefusedError, match="not those that the run's files were written for"):
        accept(scene)
    scene.other.change_columns(columns)
    accept(scene)
    scene.application.finish("r1")
    assert rows(scene) == 3


def test_run_whose_mark_is_there_is_left_as_it_is(scene: LandedScene) -> None:
    scene.listed("r1", 3)
    scene.tables.table(scene.plan.tables[0])
    scene.other.change(marks={(APP, TABLE): 1}, table_id="another")
    assert not accept(scene).changed


def test_nothing_is_accepted_while_a_driver_is_at_work(scene: LandedScene) -> None:
    scene.run("r1", 2)
    scene.send(3)
    application = scene.application
    with closing(application.coordinator()) as driver:
        slice_ = application.begin("r2", coordinator=driver)
        scene.other.make_anew()
        state = scene.tables.state(TABLE)
        alive = WaitingClock(scene.clock, driver.lease.renew)
        with pytest.raises(RunBusyError, match="driver of r2"):
            accept_tables(scene.kafka, application.checked, scene.plan, scene.tables, clock=alive)
        assert scene.tables.state(TABLE) == state
        driver.lease.release()
    assert accept(scene).text == "run r2 lands in it"
    application.tasks(slice_)
    application.finish("r2")
    assert rows(scene) == 3


@pytest.mark.remedy("table_acceptance._fresh")
def test_acceptance_beside_a_busy_writer_is_made_once_that_is_done(scene: LandedScene) -> None:
    scene.run("r1")
    scene.other.make_anew()

    busy = FaultyTables(scene.tables, BusyWriter(scene.other, "table.commit"))
    with pytest.raises(TableUnavailableError, match="at each of 5 looks") as raised:
        accept_tables(scene.kafka, scene.application.checked, scene.plan, busy, clock=scene.clock)
    assert raised.value.fix == "accept it once they are done"
    assert accept(scene).changed
