from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen, RunPlan
from airflow_kstreams.spark.driver import jobs
from airflow_kstreams.spark.driver.driver import StopSignals
from airflow_kstreams.spark.driver.executors import most_hosts, slots_of, spread
from airflow_kstreams.spark.driver.jobs import ContinuousJobs, Stopping, tasks_of
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KStreamsError,
    ReportedError,
    RunError,
    RunSupersededError,
    TaskFencedError,
)
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.runtime.stream_task import TaskId

pytestmark = pytest.mark.promise("no-more-spark-tasks-than-slots")

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
            stopping=Stopping(
                requested=self.requested, announce=self.announce, patience_seconds=self.patience_seconds
            ),
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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "pause_seconds", lambda _: 0.0)


def fenced() -> TaskFencedError:
    return TaskFencedError("fenced", fix="wait", task_id="0_0")


def test_every_slot_reports_when_a_stop_is_asked_for() -> None:
    slots = Slots()
    assert sorted(report.task_id for report in slots.run()) == ["0_0", "1_0"]
    assert slots.announced == 1
    assert not slots.cancelled.is_set()


def test_one_slot_is_launched_again_alone_when_its_tasks_failed() -> None:
    slots = Slots({A: [fenced(), fenced()]})
    assert len(slots.run()) == 2
    assert sorted(slots.launched, key=str) == [A, A, A, B]


def test_others_stop_cleanly_and_the_error_is_raised_when_launching_again_does_not_help() -> None:
    slots = Slots({A: [fenced(), fenced(), fenced()]})
    with pytest.raises(TaskFencedError):
        slots.run()
    assert slots.announced == 1
    assert not slots.cancelled.is_set()
    assert slots.launched.count(A) == 3


@pytest.mark.parametrize(
    "error",
    [
        ReportedError.from_dict({"type": "RecordError", "cause": "c", "fix": "f", "retriable": True}),
        ConfigError("c", fix="f"),
    ],
)
def test_nothing_is_launched_again_when_another_launch_cannot_help(error: KStreamsError) -> None:
    slots = Slots({B: [error]})
    with pytest.raises(type(error)):
        slots.run()
    assert slots.launched.count(B) == 1
    assert slots.announced == 1


def test_failures_long_apart_do_not_add_up_when_the_tasks_were_well_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "_WELL_SECONDS", 0.0)
    slots = Slots({A: [fenced() for _ in range(10)]})
    assert len(slots.run()) == 2
    assert slots.launched.count(A) == 11


def test_driver_leaves_when_it_was_superseded_before_another_launch() -> None:
    def superseded() -> None:
        raise RunSupersededError("claimed", fix="nothing", run_id="c")

    slots = Slots({A: [fenced()]}, check=superseded)
    with pytest.raises(RunSupersededError):
        slots.run()
    assert slots.launched.count(A) == 1


def test_tasks_are_cancelled_when_they_do_not_stop_in_time() -> None:
    slots = Slots(deaf=True, patience_seconds=0.0)
    with pytest.raises(RunError, match="cancelled"):
        slots.run()


def test_stop_goes_on_when_it_could_not_be_announced_at_once() -> None:
    error = KafkaClientError("no answer", fix="retry", code="_TRANSPORT", retriable_code=True)
    slots = Slots(announce_error=error)
    assert len(slots.run()) == 2
    assert slots.announced == 1, "every later renewal of the lease says it again"


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


def test_fewer_slots_are_made_do_with_when_the_cluster_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.spark.driver.executors._REGISTRATION_SECONDS", 0.0)
    session = Session("spark://m:1", [4], cores_max=100)
    assert slots_of(session) == 4  # type: ignore[arg-type]


def test_setting_is_named_when_spark_connect_does_not_tell() -> None:
    with pytest.raises(ConfigError, match="Spark Connect") as caught:
        slots_of(Session("connect", []))  # type: ignore[arg-type]
    assert "spark.cores.max" in caught.value.fix


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
