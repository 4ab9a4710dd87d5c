"""A reset by which records with rows in tables are read again: what becomes of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest, tables_choice
from airflow_kstreams.batch.reset.scenario import shift_by, to_offset
from airflow_kstreams.streams.errors import ConfigError, RunError, TableRefusedError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.tables.table_port import FileFacts, TablesPort
from airflow_kstreams.testing.faults import FaultyTables
from airflow_kstreams.testing.in_memory_tables import OtherWriter
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt
from tests.support.remedies import walked
from tests.support.tables.scene import APP, TABLE, Scene, restored

FIRST, SECOND = ["line 1"], ["line 2", "line 3"]


pytestmark = pytest.mark.promise("rows-land-once")


@pytest.fixture
def scene() -> Scene:
    """A run of one record, and one of two."""
    scene = Scene()
    scene.run("r1")
    scene.send()
    scene.run("r2")
    return scene


def reset(scene: Scene, tables: TablesPort | None = None, choice: str = "", **request: Any) -> ResetPlan:
    request = {"input_topics": ("in",), **request}
    asked = ResetRequest(application_id=APP, tables=tables_choice(choice), **request)
    with ApplicationReset(scene.kafka, asked, clock=scene.clock, tables=tables or scene.tables) as tool:
        return tool.run()


def rerun(scene: Scene) -> list[str]:
    scene.application().run("again")
    return scene.rows()


@pytest.mark.remedy("reset.ApplicationReset._refuse_rows")
@pytest.mark.parametrize(("choice", "expected"), [("remove", FIRST + SECOND), ("keep", FIRST + 2 * SECOND)])
def test_reset_asks_what_becomes_of_rows_that_come_again(
    scene: Scene, choice: str, expected: list[str]
) -> None:
    back: dict[str, Any] = {"scenario": to_offset(1)}
    with pytest.raises(
        RunError, match="their records would be read again, and their rows come again"
    ) as asked:
        reset(scene, **back)
    assert f"--tables {choice}" in asked.value.fix
    done = reset(scene, choice=choice, **back)
    assert [run.run_id for run in done.rows_again] == ["r2"]
    assert rerun(scene) == sorted(expected)


def test_reset_that_moves_no_offset_back_asks_nothing(scene: Scene) -> None:
    assert reset(scene, scenario=to_offset(3)).rows_again == ()


@pytest.mark.remedy("removed_rows.RowRemoval.refuse_unfit")
def test_rows_of_a_run_that_is_taken_back_in_part_are_not_taken_out(scene: Scene) -> None:
    with pytest.raises(RunError, match="run 'r2' would be taken back in part"):
        reset(scene, choice="remove", scenario=shift_by(-1))
    assert scene.rows() == FIRST + SECOND
    reset(scene, choice="remove", scenario=shift_by(-2))
    assert rerun(scene) == FIRST + SECOND


def compact(other: OtherWriter, scene: Scene) -> None:
    """Another engine puts one file in the place of two."""
    files = scene.tables.state(TABLE).files
    old, new = list(files)[-1], "memory://compacted"
    scene.tables.stored[new] = scene.tables.stored[old]
    facts = files[old]
    other.compact(removed=[old], added=[FileFacts(path=new, size=facts.size, rows=facts.rows)])


@pytest.mark.parametrize(
    "wrong",
    [
        walked("removed_rows.RowRemoval._paths", compact),
        walked("removed_rows.RowRemoval._paths", lambda other, scene: other.expire(1)),
        walked("removed_rows.RowRemoval._look: restore the table", lambda other, scene: other.drop()),
    ],
)
def test_rows_that_others_have_touched_are_not_taken_out(
    scene: Scene, wrong: Callable[[OtherWriter, Scene], object]
) -> None:
    state = scene.tables.state(TABLE)
    wrong(scene.other, scene)
    with pytest.raises(TableRefusedError, match="--tables keep") as refused:
        reset(scene, choice="remove")
    if "restore the table" in refused.value.fix:
        restored(scene, state)
    rows = scene.rows()
    reset(scene, choice="keep")
    assert rerun(scene) == sorted(rows + FIRST + SECOND)


@pytest.mark.remedy("removed_rows.RowRemoval._look: {SAY_WHERE_TABLES_ARE}")
def test_rows_are_not_taken_out_before_it_is_said_where_tables_are(scene: Scene) -> None:
    asked = ResetRequest(application_id=APP, input_topics=("in",), tables="remove")
    with (
        ApplicationReset(scene.kafka, asked, clock=scene.clock) as tool,
        pytest.raises(ConfigError, match="it is not said where tables are"),
    ):
        tool.run()
    reset(scene, choice="remove")
    assert rerun(scene) == FIRST + SECOND


@pytest.mark.parametrize("wrong", [compact, lambda other, scene: other.drop()], ids=["compacted", "dropped"])
def test_interrupted_removal_ends_with_rows_kept_when_others_have_touched_them(
    scene: Scene, wrong: Callable[[OtherWriter, Scene], object]
) -> None:
    state = scene.tables.state(TABLE)
    with pytest.raises(Crash):
        reset(scene, FaultyTables(scene.tables, CrashingAt(0, name="table.commit")), choice="remove")
    wrong(scene.other, scene)
    with pytest.raises(TableRefusedError):
        reset(scene, choice="remove")
    reset(scene, choice="keep")
    if TABLE not in scene.tables.states:
        restored(scene, state)
    rows = scene.rows()
    assert rerun(scene) == sorted(rows + FIRST + SECOND)


def test_rows_of_a_dropped_run_are_known_to_a_later_reset(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    app.tasks(app.begin("r3"))
    reset(scene, input_topics=(), delete_stop_offsets=True)
    with pytest.raises(RunError, match="run 'r3' has rows"):
        reset(scene, scenario=to_offset(3))
    reset(scene, choice="remove", scenario=to_offset(3))
    assert scene.rows() == FIRST + SECOND
    assert rerun(scene) == scene.sent
    with pytest.raises(RunError, match="run 'again' has rows"):
        reset(scene, scenario=to_offset(3))


@pytest.mark.remedy("reset_plan.ResetRequest.check: reset by --input-topics")
def test_acceptance_of_earlier_offsets_asks_too_and_takes_nothing_out(scene: Scene) -> None:
    partition: dict[str, Any] = {
        "input_topics": (),
        "accept": (TopicPartition("in", 0),),
        "scenario": to_offset(1),
    }
    with pytest.raises(RunError, match="run 'r2' has rows"):
        reset(scene, **partition)
    with pytest.raises(ConfigError, match="takes no run back"):
        reset(scene, choice="remove", **partition)
    reset(scene, choice="keep", **partition)
    assert rerun(scene) == sorted(FIRST + 2 * SECOND)


@pytest.mark.remedy("reset_plan.tables_choice")
def test_choice_is_refused_when_it_is_none(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="'drop' is no choice"):
        reset(scene, choice="drop")
    assert tables_choice(None) == ""
