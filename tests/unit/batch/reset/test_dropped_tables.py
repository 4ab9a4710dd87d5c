"""A reset that drops a run which writes to tables: what lands, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.streams.errors import ConfigError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt
from tests.support.remedies import walked
from tests.support.tables.scene import APP, TABLE, Down, Scene, restored

pytestmark = pytest.mark.promise("dropped-slices-lose-nothing", "rows-land-once")


@pytest.fixture
def scene() -> Scene:
    """A run that is finished, and one whose tasks are done."""
    scene = Scene()
    scene.run("r1")
    scene.send()
    app = scene.application()
    app.tasks(app.begin("r2"))
    return scene


def reset(scene: Scene, tables: TablesPort | None, **request: Any) -> ResetPlan:
    asked = ResetRequest(application_id=APP, delete_stop_offsets=True, **request)
    with ApplicationReset(scene.kafka, asked, clock=scene.clock, tables=tables) as tool:
        return tool.run()


@pytest.mark.remedy("targets.require_tables")
def test_slice_is_not_dropped_before_it_is_said_where_its_tables_are(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="it is not said where tables are") as refused:
        reset(scene, None)
    assert "--tables-config FILE" in refused.value.fix
    assert reset(scene, scene.tables).dropped_run == "r2"
    assert scene.rows() == scene.sent
    scene.run("r3")
    assert scene.rows() == scene.sent


def test_next_run_writes_behind_the_number_that_a_dropped_one_has_taken(scene: Scene) -> None:
    reset(scene, scene.tables)
    done = scene.run("r2")
    assert done.tables[TABLE].sequence == 3
    said = [each.snapshot.summary for each in scene.tables.state(TABLE).line()]
    assert [summary.get("kstreams.dropped") for summary in said] == [None, "true", None]
    assert scene.rows() == scene.sent


@pytest.mark.parametrize(
    "wrong",
    [
        walked("landing.Landing._refuse_other", wrong)
        for wrong in (lambda other: other.drop(), lambda other: other.change_partitioning(("text",)))
    ],
)
def test_slice_is_kept_when_its_table_cannot_take_what_it_has_listed(
    scene: Scene, wrong: Callable[[Any], object]
) -> None:
    state = scene.tables.state(TABLE)
    wrong(scene.other)
    with pytest.raises(TableRefusedError, match="cannot land in table"):
        reset(scene, scene.tables)
    restored(scene, state)
    scene.application().finish("r2")
    assert scene.rows() == scene.sent


def test_reset_goes_on_when_the_catalogue_answers_again(scene: Scene) -> None:
    with pytest.raises(TableUnavailableError) as down:
        reset(scene, FaultyTables(scene.tables, Down("table.commit")))
    assert down.value.is_retriable
    with pytest.raises(ConfigError, match="it is not said where tables are"):
        reset(scene, None)
    # Another reset than the one that was interrupted.
    reset(scene, scene.tables, internal_topics=(f"{APP}-table-files",))
    assert scene.rows() == scene.sent
    scene.run("r3")
    assert scene.rows() == scene.sent


def test_list_that_is_gone_or_has_records_of_others_does_not_keep_a_slice(scene: Scene) -> None:
    scene.kafka.append(f"{APP}-table-files", b"", b"other")
    assert reset(scene, scene.tables).dropped_run == "r2"
    assert scene.rows() == scene.sent
    scene.send()
    app = scene.application()
    app.tasks(app.begin("r3"))
    scene.kafka.admin().delete_topics([f"{APP}-table-files"])
    assert reset(scene, scene.tables).dropped_run == "r3"
    assert scene.rows() == scene.sent[:2], "the list alone knew the file"
    scene.run("r4")
    assert scene.rows() == [*scene.sent[:2], scene.sent[3]]


def landed(scene: Scene) -> None:
    """The process that finishes the run dies behind its commit to the table."""
    with pytest.raises(Crash):
        dying = CrashingAt(0, after=True, name="table.commit")
        scene.application(tables=FaultyTables(scene.tables, dying)).finish("r2")


def test_run_is_finished_when_its_rows_are_in_the_table(scene: Scene) -> None:
    landed(scene)
    done = reset(scene, scene.tables)
    assert (done.dropped_run, done.finished_run) == (None, "r2")
    scene.run("r3")
    assert scene.rows() == scene.sent


def test_run_is_dropped_when_its_rows_are_in_the_table_and_it_cannot_be_finished(scene: Scene) -> None:
    landed(scene)
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in")
    done = reset(scene, scene.tables)
    assert (done.dropped_run, done.finished_run) == ("r2", "")
    reset(scene, scene.tables, input_topics=("in",))
    scene.run("r3")
    assert scene.rows() == scene.sent
