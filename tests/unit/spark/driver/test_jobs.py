from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen, RunPlan, Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.spark.driver import continuous_jobs, driver
from airflow_kstreams.spark.driver.continuous_jobs import ContinuousJobs, StopSignals, tasks_of
from airflow_kstreams.spark.driver.driver import RunJobs, dependencies
from airflow_kstreams.spark.driver.executors import most_hosts, packed, slots_of, spread
from airflow_kstreams.spark.driver.hosts import error_in
from airflow_kstreams.spark.driver.spark_session import check_session
from airflow_kstreams.streams.errors import (
    ERROR_MARKER,
    ConfigError,
    KafkaClientError,
    KStreamsError,
    ReportedError,
    RunError,
    RunSupersededError,
    SparkSessionError,
    TaskFencedError,
)
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.runtime.stream_task import TaskId


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
    monkeypatch.setattr(driver, "pause_seconds", lambda _: 0.0)
    monkeypatch.setattr(continuous_jobs, "pause_seconds", lambda _: 0.0)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_unfinished_tasks_are_launched_again_when_a_job_failed_in_passing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Script([fenced(), [1], []])
    assert [report.task_id for report in made.run()] == ["0_0", "0_1"]
    assert made.launched == [[0, 1], [0, 1], [1]]
    assert _warnings(caplog) == [
        "subtopology 0: launching its unfinished tasks again after TaskFencedError, launch 2 of 3",
        "subtopology 0 is done, after a launch that failed: fenced",
    ]


@pytest.mark.remedy("driver.RunJobs._given_up")
def test_retried_run_processes_what_is_left_when_no_launch_reached_the_stop_offsets() -> None:
    with pytest.raises(RunError, match="did not reach their stop offsets in 3 launches") as given_up:
        Script([[1], [1], [1]]).run()
    assert "then retry the run: its slice is kept" in given_up.value.fix
    retried = Script([[]])
    retried.left = [1]
    assert [report.task_id for report in retried.run()] == ["0_1"]


@pytest.mark.promise("errors-are-logged-once")
def test_last_error_is_raised_and_no_line_has_its_cause_when_no_launch_helped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Script([fenced(), fenced(), fenced()])
    with pytest.raises(TaskFencedError):
        made.run()
    assert len(made.launched) == 3
    assert _warnings(caplog) == [
        f"subtopology 0: launching its unfinished tasks again after TaskFencedError, launch {number} of 3"
        for number in (2, 3)
    ]


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


@pytest.mark.remedy("spark_session.check_session")
@pytest.mark.parametrize("value", ["true", "True", " TRUE "])
def test_speculation_is_refused_however_it_is_written(value: str) -> None:
    class Session:
        conf = {"spark.speculation": value}

    with pytest.raises(ConfigError, match="speculation") as refused:
        check_session(Session())  # type: ignore[arg-type]
    name, _, told = (
        refused.value.fix.removeprefix("set ").removesuffix(" for this application").partition("=")
    )
    Session.conf = {name: told}
    check_session(Session())  # type: ignore[arg-type]


A, B = TaskId(subtopology=0, group=0), TaskId(subtopology=1, group=0)


class Slots:
    """Two slots whose launches end as a script says, else run until they are told to stop.

    :param script: by task: errors of its launches, one after the other.
    """

    def __init__(self, script: dict[TaskId, list[KStreamsError]] | None = None, **options: Any) -> None:
        self.script = script or {}
        self.requested, self.told, self.cancelled = threading.Event(), threading.Event(), threading.Event()
        self.launched: list[TaskId] = []
        self.announced = 0
        self.deaf = options.pop("deaf", False)
        self.announce_error: KStreamsError | None = options.pop("announce_error", None)
        self.check: Callable[[], None] = options.pop("check", lambda: None)
        self.patience_seconds: float = options.pop("patience_seconds", 60.0)

    def run(self) -> list[TaskReport]:
        return ContinuousJobs(
            hosts=[[A], [B]],
            launch=self.launch,
            cancel=self.cancelled.set,
            check=self.check,
            stop=self.requested,
            announce=self.announce,
            patience_seconds=self.patience_seconds,
            periodically=self.periodically,
            clock=SystemClock(),
        ).run()

    def launch(self, tasks: Sequence[TaskId]) -> list[TaskReport]:
        (task,) = tasks
        self.launched.append(task)
        if self.script.get(task):
            raise self.script[task].pop(0)
        if self.deaf:
            self.cancelled.wait()
            raise RunError("cancelled", fix="nothing", run_id="c")
        self.told.wait()
        return [TaskReport(task_id=str(task), outcome="stopped")]

    def announce(self) -> None:
        self.announced += 1
        self.told.set()
        if self.announce_error is not None:
            raise self.announce_error

    def periodically(self) -> None:
        """Ask for the stop once both slots have been launched as often as the script says."""
        if len(self.launched) >= 2 and not any(self.script.values()):
            self.requested.set()


def fenced_continuously() -> TaskFencedError:
    return TaskFencedError("fenced", fix="wait", task_id="0_0")


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_every_slot_reports_when_a_stop_is_asked_for() -> None:
    slots = Slots()
    assert sorted(report.task_id for report in slots.run()) == ["0_0", "1_0"]
    assert slots.announced == 1
    assert not slots.cancelled.is_set()


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_one_slot_is_launched_again_alone_when_its_tasks_failed() -> None:
    slots = Slots({A: [fenced_continuously(), fenced_continuously()]})
    assert len(slots.run()) == 2
    assert sorted(slots.launched, key=str) == [A, A, A, B]


def test_cause_stands_whole_once_when_tasks_fail_by_it_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slots = Slots({A: [fenced_continuously(), fenced_continuously()], B: [fenced_continuously()]})
    slots.run()
    said = [text for text in caplog.messages if text.startswith("launching tasks")]
    assert len(said) == 3
    cause = fenced_continuously().cause
    assert [cause in text for text in said] == [True, False, False]
    assert all(text.endswith("again after the same TaskFencedError") for text in said[1:])


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_others_stop_cleanly_and_the_error_is_raised_when_launching_again_does_not_help() -> None:
    slots = Slots({A: [fenced_continuously(), fenced_continuously(), fenced_continuously()]})
    with pytest.raises(TaskFencedError):
        slots.run()
    assert slots.announced == 1
    assert not slots.cancelled.is_set()
    assert slots.launched.count(A) == 3


@pytest.mark.promise("no-more-spark-tasks-than-slots")
@pytest.mark.parametrize(
    "error",
    [
        ReportedError.from_dict({"type": "RecordError", "cause": "c", "fix": "f", "retriable": True}),
        ConfigError("c", fix="f"),
    ],
)
def test_nothing_is_launched_again_when_another_launch_cannot_help_a_continuous_run(
    error: KStreamsError,
) -> None:
    slots = Slots({B: [error]})
    with pytest.raises(type(error)):
        slots.run()
    assert slots.launched.count(B) == 1
    assert slots.announced == 1


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_failures_long_apart_do_not_add_up_when_the_tasks_were_well_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(continuous_jobs, "_WELL_SECONDS", 0.0)
    slots = Slots({A: [fenced_continuously() for _ in range(10)]})
    assert len(slots.run()) == 2
    assert slots.launched.count(A) == 11


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_driver_leaves_when_it_was_superseded_before_another_launch() -> None:
    def superseded() -> None:
        raise RunSupersededError("claimed", fix="nothing", run_id="c")

    slots = Slots({A: [fenced_continuously()]}, check=superseded)
    with pytest.raises(RunSupersededError):
        slots.run()
    assert slots.launched.count(A) == 1


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_tasks_are_cancelled_when_they_do_not_stop_in_time() -> None:
    slots = Slots(deaf=True, patience_seconds=0.0)
    with pytest.raises(RunError, match="cancelled"):
        slots.run()


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_stop_goes_on_when_it_could_not_be_announced_at_once() -> None:
    error = KafkaClientError("no answer", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)
    slots = Slots(announce_error=error)
    assert len(slots.run()) == 2
    assert slots.announced == 1, "every later renewal of the lease says it again"


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_tasks_of_every_subtopology_are_spread_when_there_are_fewer_slots() -> None:
    topology = TopologyPlan(
        application_id="app",
        topology_hash="h",
        subtopologies=(
            SubtopologyPlan(id=0, sources=("in",), sinks=("mid",)),
            SubtopologyPlan(id=1, sources=("mid",), sinks=("out",)),
        ),
    )
    plan = RunPlan(
        topology=topology,
        partitions={"in": 4, "mid": 4},
        topic_ids={},
        tasks={"0": 4, "1": 4},
        stop_hash="",
        begun_ms=0,
        ledger=LedgerSeen(topic_id="id", end=0),
    )
    run = ContinuousRun(run_id="c", generation=1, plan=plan)
    tasks = tasks_of(run)
    assert [[str(task) for task in host] for host in spread(tasks, 2)] == [
        ["0_0", "0_2", "1_0", "1_2"],
        ["0_1", "0_3", "1_1", "1_3"],
    ]
    assert [len(host) for host in spread(tasks, 3)] == [3, 3, 2]
    assert [len(host) for host in spread(tasks, 100)] == [1] * 8


# == slots


class Session:
    """A Spark session, as far as slots go."""

    def __init__(self, master: str, cores: Sequence[int], **conf: object) -> None:
        self.master, self.cores = master, list(cores)
        settings = {f"spark.{name.replace('_', '.')}": str(value) for name, value in conf.items()}
        self.conf = settings

    @property
    def sparkContext(self) -> Session:
        if self.master == "connect":
            raise AttributeError("no context here")
        return self

    @property
    def defaultParallelism(self) -> int:
        return self.cores.pop(0) if len(self.cores) > 1 else self.cores[0]


@pytest.mark.promise("no-more-spark-tasks-than-slots")
@pytest.mark.parametrize(
    ("session", "slots"),
    [
        (Session("local[3,4]", [3]), 3),
        (Session("local[4,4]", [4], task_cpus=2), 2),
        (Session("local[1]", [1], task_cpus=2), 1),
        (Session("spark://m:1", [2, 2, 4, 6], cores_max=6), 6),
        (Session("spark://m:1", [8], cores_max=6), 6),
        (Session("yarn", [2, 6], executor_instances=3, executor_cores=2), 6),
        (Session("connect", [], executor_instances=3, executor_cores=2), 6),
    ],
)
def test_slots_are_what_spark_has_and_no_more_than_was_asked_for(
    session: Session, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.spark.driver.executors._STEP_SECONDS", 0.0)
    assert slots_of(session) == slots  # type: ignore[arg-type]


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_fewer_slots_are_made_do_with_when_the_cluster_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.spark.driver.executors._REGISTRATION_SECONDS", 0.0)
    session = Session("spark://m:1", [4], cores_max=100)
    assert slots_of(session) == 4  # type: ignore[arg-type]


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_setting_is_named_when_spark_connect_does_not_tell() -> None:
    with pytest.raises(ConfigError, match="Spark Connect") as caught:
        slots_of(Session("connect", []))  # type: ignore[arg-type]
    assert "spark.cores.max" in caught.value.fix


@pytest.mark.promise("no-more-spark-tasks-than-slots")
@pytest.mark.parametrize(
    ("session", "hosts"),
    [
        (Session("local[2,4]", [2]), 100),
        (Session("spark://m:1", [200]), 800),
        (Session("yarn", [2], executor_instances=60, executor_cores=2), 480),
        (Session("connect", [], cores_max=50), 200),
        (Session("connect", []), 100),
    ],
)
def test_spark_tasks_of_a_slice_are_a_few_for_each_slot_and_wait_for_none(
    session: Session, hosts: int
) -> None:
    assert most_hosts(session) == hosts  # type: ignore[arg-type]


# == signals


@pytest.mark.promise("no-more-spark-tasks-than-slots")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_asks_for_a_stop_and_the_second_ends_the_process(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals() as signals:
        signals.install()
        assert not signals.requested.is_set()
        os.kill(os.getpid(), number)
        assert signals.requested.wait(10)
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.promise("no-more-spark-tasks-than-slots")
def test_signals_are_left_alone_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def use() -> None:
        with StopSignals() as signals:
            signals.install()
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]
