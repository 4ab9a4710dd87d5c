from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen, RunPlan, Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.spark.driver import jobs
from airflow_kstreams.spark.driver.executors import packed
from airflow_kstreams.spark.driver.hosts import error_in
from airflow_kstreams.spark.driver.jobs import RunJobs, dependencies
from airflow_kstreams.spark.driver.spark_session import check_session
from airflow_kstreams.streams.errors import (
    ERROR_MARKER,
    ConfigError,
    KStreamsError,
    ReportedError,
    RunSupersededError,
    SparkSessionError,
    TaskFencedError,
)
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan


def plan(*edges: tuple[int, tuple[str, ...], tuple[str, ...]]) -> TopologyPlan:
    return TopologyPlan(
        application_id="app",
        topology_hash="h",
        subtopologies=tuple(
            SubtopologyPlan(id=i, sources=sources, sinks=sinks) for i, sources, sinks in edges
        ),
    )


def test_subtopology_waits_for_every_writer_when_it_reads_an_intermediate_topic() -> None:
    diamond = plan(
        (0, ("in",), ("l", "r")), (1, ("l",), ("out",)), (2, ("r",), ("out",)), (3, ("out",), ("end",))
    )
    assert dependencies(diamond) == {0: set(), 1: {0}, 2: {0}, 3: {1, 2}}


def test_each_group_has_a_partition_of_its_own_when_one_thread_is_allowed() -> None:
    assert packed([0, 2, 5], 1, most=100) == ((0,), (2,), (5,))


def test_groups_share_partitions_when_more_threads_are_allowed() -> None:
    assert packed([0, 1, 2, 3, 4], 2, most=100) == ((0, 3), (1, 4), (2,))
    assert sorted(group for part in packed(range(7), 3, most=100) for group in part) == list(range(7))


def test_partitions_stay_a_few_when_there_are_many_groups() -> None:
    parts = packed(range(1_000), 1, most=100)
    assert {len(part) for part in parts} == {10}
    assert sorted(group for part in parts for group in part) == list(range(1_000))


def test_last_noted_error_is_found_when_spark_wraps_it_in_a_trace() -> None:
    def noted(cause: str) -> str:
        error = TaskFencedError(cause, fix="wait", task_id="0_1")
        return f"  TaskFencedError: {cause}\n{ERROR_MARKER}{json.dumps(error.to_dict())}"

    text = (
        f"An exception was thrown\n{noted('first')}\n\tat org.apache.spark\n{noted('second')}\n\tat java.lang"
    )
    found = error_in(text)
    assert found is not None
    assert (found.error_type, found.cause, found.fix) == ("TaskFencedError", "second", "wait")


def test_no_error_is_found_when_the_trace_is_sparks_own() -> None:
    assert error_in("java.lang.OutOfMemoryError\n\tat x.y") is None


class Script:
    """Launches that end as a script says: an error, or the groups that are left then."""

    def __init__(self, script: list[KStreamsError | list[int]]) -> None:
        self.script = script
        self.left = [0, 1]
        self.launched: list[list[int]] = []

    def run(self) -> list[TaskReport]:
        return RunJobs(
            slice_=a_slice(),
            launch=self.launch,
            cancel=lambda: None,
            unfinished=lambda sub: [TaskShare(sub, group) for group in self.left],
            check=lambda: None,
        ).run()

    def launch(self, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        self.launched.append([task.group for task in tasks])
        outcome = self.script.pop(0)
        if isinstance(outcome, KStreamsError):
            raise outcome
        self.left = outcome
        return [
            TaskReport(task_id=f"{task.subtopology}_{task.group}")
            for task in tasks
            if task.group not in outcome
        ]


def a_slice() -> Slice:
    run_plan = RunPlan(
        topology=plan((0, ("in",), ("out",))),
        partitions={"in": 2},
        topic_ids={"in": "id"},
        tasks={"0": 2},
        stop_hash="",
        begun_ms=0,
        ledger=LedgerSeen(topic_id="id", end=0),
    )
    return Slice(run_id="r", generation=1, plan=run_plan, inputs=())


def fenced() -> TaskFencedError:
    return TaskFencedError("fenced", fix="wait", task_id="0_1")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "pause_seconds", lambda _: 0.0)


def test_unfinished_tasks_are_launched_again_when_a_job_failed_in_passing() -> None:
    made = Script([fenced(), [1], []])
    assert [report.task_id for report in made.run()] == ["0_0", "0_1"]
    assert made.launched == [[0, 1], [0, 1], [1]]


def test_last_error_is_raised_when_no_launch_helped() -> None:
    made = Script([fenced(), fenced(), fenced()])
    with pytest.raises(TaskFencedError):
        made.run()
    assert len(made.launched) == 3


@pytest.mark.parametrize(
    "error",
    [
        ReportedError.from_dict({"type": "RecordError", "cause": "c", "fix": "f", "retriable": True}),
        ConfigError("c", fix="f"),
        RunSupersededError("c", fix="f", run_id="r"),
        SparkSessionError("c", fix="f"),
    ],
)
def test_nothing_is_launched_again_when_another_launch_cannot_help(error: KStreamsError) -> None:
    made = Script([error])
    with pytest.raises(type(error)):
        made.run()
    assert len(made.launched) == 1


@pytest.mark.parametrize("value", ["true", "True", " TRUE "])
def test_speculation_is_refused_however_it_is_written(value: str) -> None:
    class Session:
        conf = {"spark.speculation": value}

    with pytest.raises(ConfigError, match="speculation"):
        check_session(Session())  # type: ignore[arg-type]
