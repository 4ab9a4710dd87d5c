"""The end of a run lands its files in its tables, and refuses a table that its files were not written for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import DataLossError, RunError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.testing import FaultyCluster
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.remedies import walked
from tests.support.tables.scene import APP, TABLE, Down, Scene, restored

_HOUR_SECONDS = 3_600


@pytest.fixture
def scene() -> Scene:
    return Scene()


def processed(scene: Scene, run_id: str = "r1") -> Slice:
    """A run whose tasks are done, and whose finish is to come."""
    scene.send()
    app = scene.application()
    slice_ = app.begin(run_id)
    app.tasks(slice_)
    return slice_


CASES = [
    walked("landing.Landing._refuse_other", wrong)
    for wrong in (
        lambda other: other.drop(),
        lambda other: other.make_anew(),
        lambda other: other.change_partitioning(("text",)),
        lambda other: other.change_columns((Column("text", "long"),)),
        # Partitionings and schemas of Delta have no numbers.
        lambda other: other.change(partition_by=("text",)),
        lambda other: other.change(columns=(Column("text", "long"),)),
        lambda other: other.change(refused=("its rows are deleted by equality",)),
    )
]


@pytest.mark.parametrize("wrong", CASES)
def test_table_that_files_were_not_written_for_is_refused_until_it_is_restored(
    scene: Scene, wrong: Callable[[Any], object]
) -> None:
    processed(scene)
    state = scene.tables.state(TABLE)
    wrong(scene.other)
    with pytest.raises(TableRefusedError, match="cannot land in table"):
        scene.application().finish("r1")
    restored(scene, state)
    scene.application().finish("r1")
    assert scene.rows() == scene.sent


@pytest.mark.parametrize("call", ["table.look", "table.commit"])
def test_finish_lands_what_is_sealed_once_the_catalogue_answers_again(scene: Scene, call: str) -> None:
    processed(scene)
    with pytest.raises(TableUnavailableError) as down:
        scene.application(tables=FaultyTables(scene.tables, Down(call))).finish("r1")
    assert down.value.is_retriable
    scene.application().finish("r1")
    assert scene.rows() == scene.sent


class AnswerLost:
    """Commits take effect, and their answers are lost; then something happens to the table."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        result = effect()
        if name == "table.commit":
            self.then()
            raise TableUnavailableError("no answer")
        return result


@pytest.mark.promise("rows-land-once")
@pytest.mark.parametrize("forgotten", [False, True])
def test_rollback_past_a_commit_whose_answer_was_lost_is_seen_by_the_next_begin(
    scene: Scene, forgotten: bool
) -> None:
    scene.run("r1")
    (first,) = scene.tables.state(TABLE).kept
    processed(scene, "r2")

    def rolled_back() -> None:
        scene.other.roll_back(first)
        if forgotten:
            scene.other.expire(1)

    lost = FaultyTables(scene.tables, AnswerLost(rolled_back))
    landed = scene.application(tables=lost).finish("r2").tables[TABLE]
    # What is not kept any more cannot be told from what was expired.
    assert landed.snapshot == ("" if forgotten else str(int(first) + 1))
    if not forgotten:
        with pytest.raises(
            TableRefusedError, match="rolled back or restored past snapshot 2, commit 2 of run 'r2'"
        ):
            scene.run("r3")
        scene.other.roll_back(landed.snapshot)
        scene.application().run("r3")
        assert scene.rows() == scene.sent


@pytest.mark.remedy("landing.Landing._refuse_missing")
def test_file_that_is_gone_is_a_loss_when_it_has_waited_for_an_hour(scene: Scene) -> None:
    processed(scene)
    (path,) = scene.tables.stored
    kept = scene.tables.stored.pop(path)
    scene.clock.sleep(_HOUR_SECONDS)
    with pytest.raises(DataLossError, match="1 file for table"):
        scene.application().finish("r1")
    scene.tables.stored[path] = kept
    scene.application().finish("r1")
    assert scene.rows() == scene.sent


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"other", b""), (TABLE.encode(), b""), (TABLE.encode(), b"\x91\xa1a")]
)
def test_record_that_no_task_has_written_is_refused_in_the_list(
    scene: Scene, key: bytes | None, value: bytes
) -> None:
    processed(scene)
    scene.kafka.append(f"{APP}-table-files", value, key)
    with pytest.raises(RunError, match="no task of the application has written that"):
        scene.application().finish("r1")
    assert scene.rows() == []


class AbortsTooEasily:
    """A task's commit takes effect and its answer is lost; its client then says that it has aborted it."""

    def __init__(self) -> None:
        self.lost = False

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "writer.abort" and self.lost:
            return None
        result = effect()
        if name == "writer.commit" and not self.lost:
            self.lost = True
            raise TableUnavailableError("no answer")
        return result

    def cluster(self, scene: Scene) -> ClusterPort:
        return FaultyCluster(scene.kafka, self)


@pytest.mark.promise("rows-land-once")
def test_files_of_a_transaction_that_may_have_come_through_are_kept(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    slice_ = app.begin("r1")
    app.interceptor = AbortsTooEasily()
    with pytest.raises(TableUnavailableError):
        app.tasks(slice_)
    whole = scene.application()
    whole.tasks(slice_)
    whole.finish("r1")
    assert scene.rows() == scene.sent
    assert len(scene.tables.stored) == 1


def test_files_of_a_transaction_that_failed_are_deleted(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    slice_ = app.begin("r1")
    app.interceptor = Refuses()
    with pytest.raises(TableUnavailableError):
        app.tasks(slice_)
    assert scene.tables.stored == {}


class Refuses:
    """The broker refuses a task's offsets, after its files are listed."""

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "writer.send_offsets":
            raise TableUnavailableError("refused")
        return effect()
