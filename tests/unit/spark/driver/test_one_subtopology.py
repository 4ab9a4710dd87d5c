"""Drivers that run one subtopology each, on the in-memory Kafka: each alone can fail, and goes on alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.streams.errors import (
    ConfigError,
    RecordError,
    RunError,
    TopologyError,
    UpstreamNotDoneError,
)
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.reset_scene import APP, ResetScene
from tests.support.spark.run_times import BEGIN, END, FENCING, FINISH, PYTHON, STOPS, seconds_of_run

T = TypeVar("T")


@dataclass(kw_only=True)
class InProcess:
    """Executors that run tasks here, and note which.

    :param broken: tasks that fail.
    """

    scene: ResetScene
    broken: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Nothing has to be made ready."""

    def slots(self) -> int:
        return 1

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        reports = []
        for task in tasks:
            name = f"{slice_.run_id}: {task.subtopology}_{task.group}"
            if name in self.broken:
                raise RecordError(f"{name} failed", topic="", partition=-1, offset=-1, node="")
            reports.append(self.scene.task(slice_, task.subtopology, task.group))
            self.ran.append(name)
        return reports

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        raise NotImplementedError

    def cancel(self) -> None:
        """Nothing runs elsewhere."""

    def close(self) -> None:
        """Nothing is left."""


@pytest.fixture
def scene() -> ResetScene:
    """Three subtopologies in a row, of one task each."""
    made = ResetScene(partitions=1)
    made.send("a", "b", "a")
    return made


def drive(
    scene: ResetScene,
    executors: InProcess,
    run_id: str,
    subtopology: int | None,
    *,
    try_number: int = 1,
    topology_hash: str = "",
    cluster: ClusterPort | None = None,
) -> RunSummary | None:
    spec = RunSpec(
        application_id=APP,
        run_id=run_id,
        order=(0, try_number),
        subtopology=subtopology,
        topology_hash=topology_hash,
    )
    driver = Driver(
        spec,
        scene.topology,
        settings=scene.checked,
        cluster=cluster or scene.kafka,
        executors=executors,
        clock=scene.clock,
    )
    return driver.run()


def test_run_is_finished_when_each_subtopology_had_a_driver_of_its_own(scene: ResetScene) -> None:
    executors = InProcess(scene=scene)
    for subtopology in (0, 1, 2):
        assert drive(scene, executors, "r1", subtopology) is None
        assert executors.ran == [f"r1: {number}_0" for number in range(subtopology + 1)]

    assert scene.finish("r1").generation == 3
    assert dict(scene.counts()) == {"a": 2, "b": 1}


class Commits:
    """Counts the transactions of a driver."""

    def __init__(self) -> None:
        self.count = 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.count += name == "writer.commit"
        return effect()


def test_driver_renews_no_lease_before_a_launch_when_it_has_just_written(scene: ResetScene) -> None:
    commits = Commits()
    drive(scene, InProcess(scene=scene), "r1", None, cluster=FaultyCluster(scene.kafka, commits))
    # The begin, the stops of two subtopologies, a renewal when all have ended, the release of the lease.
    assert commits.count == 5


def test_driver_renews_its_lease_before_a_launch_when_its_last_write_is_old(scene: ResetScene) -> None:
    commits = Commits()
    executors = InProcess(scene=scene)
    executors.start = lambda: scene.clock.sleep(2)  # type: ignore[method-assign]
    drive(scene, executors, "r1", None, cluster=FaultyCluster(scene.kafka, commits))
    assert commits.count == 6


@pytest.mark.remedy("driver.Driver.run")
def test_run_is_processed_when_one_version_of_the_file_is_everywhere(scene: ResetScene) -> None:
    executors = InProcess(scene=scene)
    with pytest.raises(TopologyError, match="where the Airflow task read it"):
        drive(scene, executors, "r1", None, topology_hash="of an older version")
    drive(scene, executors, "r1", None, topology_hash=scene.topology.plan(APP).topology_hash)
    assert scene.finish("r1").generation == 1
    assert dict(scene.counts()) == {"a": 2, "b": 1}


def test_only_the_one_that_failed_runs_again_when_it_is_tried_again(scene: ResetScene) -> None:
    drive(scene, InProcess(scene=scene), "r1", 0)
    with pytest.raises(RecordError):
        drive(scene, InProcess(scene=scene, broken={"r1: 1_0"}), "r1", 1)
    scene.send("late")
    executors = InProcess(scene=scene)

    drive(scene, executors, "r1", 1, try_number=2)
    drive(scene, executors, "r1", 2)

    assert executors.ran == ["r1: 1_0", "r1: 2_0"]
    assert scene.finish("r1").records_in == 3
    assert dict(scene.counts()) == {"a": 2, "b": 1}


def test_nothing_runs_when_the_subtopology_was_done_already(scene: ResetScene) -> None:
    drive(scene, InProcess(scene=scene), "r1", 0)
    executors = InProcess(scene=scene)

    drive(scene, executors, "r1", 0, try_number=2)

    assert executors.ran == []


@pytest.mark.promise("finish-refuses-early")
def test_run_cannot_be_finished_when_a_subtopology_was_left_out(scene: ResetScene) -> None:
    drive(scene, InProcess(scene=scene), "r1", 0)
    drive(scene, InProcess(scene=scene), "r1", 1)

    with pytest.raises(RunError, match="is not finished"):
        scene.finish("r1")


def test_subtopology_is_refused_when_what_it_reads_is_not_done(scene: ResetScene) -> None:
    executors = InProcess(scene=scene)

    with pytest.raises(UpstreamNotDoneError, match="no done notification"):
        drive(scene, executors, "r1", 2)
    assert executors.ran == []


@pytest.mark.remedy("plan.refuse_unknown_subtopology")
def test_subtopology_is_refused_by_name_when_there_is_none(scene: ResetScene) -> None:
    with pytest.raises(ConfigError, match="no subtopology 7") as caught:
        drive(scene, InProcess(scene=scene), "r1", 7)
    assert "0, 1, 2" in caught.value.fix
    assert scene.ledger.lease is None, "nothing has begun"
    executors = InProcess(scene=scene)
    drive(scene, executors, "r1", 0)
    assert executors.ran == ["r1: 0_0"]


def test_whole_of_an_unfinished_run_comes_first_when_the_next_one_begins(scene: ResetScene) -> None:
    drive(scene, InProcess(scene=scene), "r1", 0)
    scene.send("a")
    executors = InProcess(scene=scene)

    drive(scene, executors, "r2", 0)

    assert executors.ran == ["r1: 1_0", "r1: 2_0", "r2: 0_0"]
    assert sorted(scene.ledger.all_runs()) == ["r1"]


def test_no_task_runs_when_there_is_nothing_new(scene: ResetScene) -> None:
    drive(scene, InProcess(scene=scene), "r1", None)
    scene.finish("r1")
    executors = InProcess(scene=scene)

    for subtopology in (0, 1, 2):
        drive(scene, executors, "r2", subtopology)

    assert executors.ran == []
    assert scene.finish("r2").empty


def test_driver_says_how_fast_its_tasks_were_when_another_finishes_the_run(
    scene: ResetScene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="airflow_kstreams.spark.driver"):
        drive(scene, InProcess(scene=scene), "r1", 0)
    (line,) = [message for message in caplog.messages if message.startswith("subtopology 0, ")]
    assert line.startswith("subtopology 0, 1 task: process-rate ")
    assert "commits measured" not in line, "the last commit, too"


def parts_of(records: Sequence[logging.LogRecord]) -> list[str]:
    """Return the parts of a run that its driver's log tells of, in their order."""
    as_printed = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    return [*seconds_of_run("\n".join(map(as_printed.format, records)), started=0, ended=0)]


def test_log_tells_the_parts_of_a_run(scene: ResetScene, caplog: pytest.LogCaptureFixture) -> None:
    scene.run("r1")
    scene.send("c")
    caplog.set_level(logging.INFO)
    caplog.clear()  # what was logged of the run before, if that was asked for
    drive(scene, InProcess(scene=scene), "r2", None)
    scene.finish("r2")

    subtopologies = [f"subtopology {number}" for number in range(3)]
    parts = [PYTHON, BEGIN, FENCING, STOPS, *subtopologies, FINISH, END]
    assert parts_of(caplog.records) == parts


def test_log_ends_within_a_subtopology_when_its_tasks_fail(
    scene: ResetScene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(RecordError):
        drive(scene, InProcess(scene=scene, broken={"r1: 1_0"}), "r1", None)

    assert parts_of(caplog.records) == [PYTHON, BEGIN, STOPS, "subtopology 0", "subtopology 1"]
