"""Tables of runs, of status, plan and doctor, and those of the command, on tables in memory."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams import inspect
from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.inspect.tables.listed_files import LandedRows, WaitingRows
from airflow_kstreams.batch.inspect.tables.seen_tables import read_tables
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.cli.documents.status_document import status_document
from airflow_kstreams.cli.tables.status_tables import status_tables
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.errors import ConfigError, RunError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.tables.beside_topics import TABLE
from tests.support.tables.landed_scene import APP, LandedScene
from tests.support.tables.scene import Down


@pytest.fixture
def scene() -> LandedScene:
    return LandedScene()


def test_status_shows_the_snapshots_of_runs_and_the_rows_that_wait(scene: LandedScene) -> None:
    scene.run("r1", 3)
    scene.listed("r2", 2)
    found = read_status(scene.kafka, APP, clock=scene.clock)
    assert found.waiting == (WaitingRows(table=TABLE, rows=2, files=1),)
    document = status_document(found, runs=5, records=False)
    assert document.rows_waiting == found.waiting
    assert [*document.runs[0].tables] == [LandedRows(table=TABLE, sequence=1, snapshot="1", rows=3, files=1)]
    text = "\n".join(map(str, status_tables(found, 5)))
    assert f"listed, not landed   {TABLE}: 2 rows in 1 file" in text
    assert "Snapshots of tables" in text
    scene.application.finish("r2")
    assert read_status(scene.kafka, APP, clock=scene.clock).waiting == ()


def test_record_that_no_task_wrote_is_said_and_the_rest_is_shown(scene: LandedScene) -> None:
    scene.listed("r1", 2)
    for key in (b"not-ours", TABLE.encode()):
        scene.kafka.append("app-table-files", b"by hand", key)
    waiting = (WaitingRows(table=TABLE, rows=2, files=1),)
    status, full = read_status(scene.kafka, APP, clock=scene.clock), inspect.run(APP, "r1", scene.kafka)
    seen = inspect.tables(APP, scene.topology, scene.kafka, scene.tables)
    for found in (status, full, seen):
        (text,) = found.not_seen
        assert text.startswith(
            "a part of the list of files of run 'r1': in app-table-files-0, offset 2 lists a file of no "
            "table of this topology, and 1 more record. No task of the application has written that"
        )
        assert found.waiting == waiting
    document = status_document(status, runs=5, records=False)
    assert [*document.not_seen] == [*status.not_seen]
    shown = "\n".join(map(str, status_tables(status, 5)))
    for each in (shown, full._repr_html_(), seen._repr_html_()):
        assert "app-table-files-0, offset 2" in each
    # The run itself does not land with it.
    with pytest.raises(RunError, match="offset 2 lists a file of no table"):
        scene.application.finish("r1")


def test_run_in_full_has_its_snapshots_and_counts_in_tables_and_html(scene: LandedScene) -> None:
    scene.run("r1", 3)
    scene.application.run("nothing new")
    full = inspect.run(APP, "r1", scene.kafka)
    assert [(each.table, each.rows) for each in full.run.tables] == [(TABLE, 3)]
    assert full.audit is not None
    # The list of files is no output.
    places = {(row.place, row.what): row.records for row in full.audit.rows}
    assert places == {("in", "read"): 3, ("out", "written"): 3, (f"table:{TABLE}", "written"): 3}
    assert full.run.records_out == 6
    assert "Snapshots of tables" in full._repr_html_()
    # The ledger repeats the last commit in the entry of a run that made none.
    assert inspect.run(APP, "nothing new", scene.kafka).run.tables == ()
    scene.listed("r2")
    assert f"{TABLE}: 1 row in 1 file" in inspect.run(APP, "r2", scene.kafka)._repr_html_()


def test_driver_prints_rows_of_tables_beside_records_of_topics(scene: LandedScene) -> None:
    scene.send(2)
    text = finished_text(scene.application.run("r1"))
    assert f"table:{TABLE}: 2 written" in text
    assert "app-table-files" not in text


def planned(scene: LandedScene, topology: Topology, *, tables: Any = None) -> inspect.NextRun:
    settings = {"processing.guarantee": "exactly_once"}
    return inspect.plan(APP, scene.kafka, topology=topology, tables=tables, settings=settings)


def test_plan_rehearses_what_the_begin_does_to_tables_and_changes_none(scene: LandedScene) -> None:
    scene.send()
    plan = planned(scene, scene.topology, tables=scene.tables)
    assert (plan.kind, plan.not_seen) == ("new", ())
    assert [(each.name, each.state, each.sequence) for each in plan.tables] == [(TABLE, "to be created", 1)]
    assert scene.tables.states == {}
    assert "to be created" in plan._repr_html_()
    scene.run("r1")
    scene.send()
    noted = LandedScene({"timestamp_column": "at"}).topology
    scene.tables.states[TABLE] = scene.tables.state(TABLE)
    plan = planned(scene, scene.topology, tables=scene.tables)
    assert [(each.state, each.sequence) for each in plan.tables] == [("ready", 2)]
    plan = planned(scene, noted, tables=scene.tables)
    assert plan.refused is not None
    assert "at is required, and the table does not have it" in plan.refused.cause


def test_plan_without_settings_of_tables_says_that_they_were_not_looked_at(scene: LandedScene) -> None:
    scene.run("r1")
    scene.send()
    plan = planned(scene, scene.topology)
    assert plan.kind == "new"
    assert [(each.state, each.sequence) for each in plan.tables] == [(None, 2)]
    assert plan.not_seen == (f"the tables {TABLE}, for it is not said where they are (--tables-config FILE)",)


def test_list_has_mark_ledger_and_last_commit_of_each_table(scene: LandedScene) -> None:
    scene.run("r1", 3)
    scene.other.append()
    (table,) = read_tables(scene.kafka, scene.plan, scene.tables, clock=scene.clock).tables
    assert (table.format, table.location, table.state) == ("iceberg", TABLE, "ready")
    assert (table.mark, table.sequence, table.last_snapshot, table.snapshot) == (1, 1, "1", "2")
    assert (table.run_id, table.rows, table.files) == ("r1", 3, 1)
    columns = (*scene.tables.state(TABLE).columns, Column("more", "text"))
    scene.other.change_columns(columns)
    seen = inspect.tables(APP, scene.topology, scene.kafka, scene.tables)
    (table,) = seen.tables
    assert table.state == "refused"
    assert table.refused is not None
    assert "more is required in the table" in table.refused.cause
    assert "more is required in the table" in seen._repr_html_()
    assert (
        "Tables and ledger agree"
        in inspect.check_tables(APP, scene.topology, scene.kafka, scene.tables)._repr_html_()
    )


def test_list_needs_to_know_where_tables_are_and_their_answer(scene: LandedScene) -> None:
    scene.run("r1")
    with pytest.raises(ConfigError, match="not said where tables are"):
        read_tables(scene.kafka, scene.plan, None, clock=scene.clock)
    with pytest.raises(TableUnavailableError, match="no answer"):
        read_tables(
            scene.kafka, scene.plan, FaultyTables(scene.tables, Down("table.look")), clock=scene.clock
        )


def doctor(scene: LandedScene, tables: Any) -> list[Finding]:
    subject = Subject(plan=scene.plan, settings=scene.application.checked, tables=tables, first_run=True)
    found = diagnose(scene.kafka, subject, clock=scene.clock)
    return [each for each in found if each.check == "tables"]


@pytest.mark.error_example("KS-TABLE-004")
@pytest.mark.remedy("table_checks._of_table")
def test_doctor_says_before_the_first_run_what_begin_would_refuse(scene: LandedScene) -> None:
    (missing,) = doctor(scene, None)
    assert (missing.level, missing.code) == (Level.ERROR, "no-table-settings")
    assert "--tables-config FILE" in missing.fix
    (down,) = doctor(scene, FaultyTables(scene.tables, Down("table.look")))
    assert (down.level, down.code, down.text) == (Level.ERROR, "catalogue-unreachable", "no answer")
    (new,) = doctor(scene, scene.tables)
    assert (new.level, new.text) == (Level.OK, f"{TABLE} is to be created, no commit yet")
    scene.tables.table(scene.plan.tables[0]).create((Column("other", "text"),), ())
    (refused,) = doctor(scene, scene.tables)
    assert (refused.level, refused.code) == (Level.ERROR, "table-refused")
    assert "rows do not fit" in refused.text
    assert refused.fix == "change the row type or the table, then retry the run"
    scene.other.drop()
    scene.run("r1")
    scene.other.change(refused=("it is read-only",))
    (refused,) = doctor(scene, scene.tables)
    assert "it is read-only" in refused.text
