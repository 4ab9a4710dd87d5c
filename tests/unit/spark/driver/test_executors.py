from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NoReturn, Self, cast

import msgspec
import pytest
from py4j.protocol import Py4JNetworkError

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen, RunPlan, Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.spark.driver import hosts
from airflow_kstreams.spark.driver.executors import SparkExecutors, slots_of
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RunError, SparkSessionError
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.remedies import walked


class DeadSession:
    """A session whose JVM is gone: some calls find nobody, others lose the answer."""

    def __init__(self, error: Exception, *, at: str) -> None:
        self._error = error
        self._at = at

    def range(self, *_: object) -> DeadSession:
        return self._step("range")

    def mapInArrow(self, *_: object) -> DeadSession:
        return self._step("mapInArrow")

    def collect(self) -> DeadSession:
        return self._step("collect")

    def _step(self, name: str) -> DeadSession:
        if name == self._at:
            raise self._error
        return self


class SlowSession:
    """A session to which a job is on its way while its jobs are cancelled: only the second call meets it."""

    def __init__(self) -> None:
        self.planning = threading.Event()
        self.interrupts = 0
        self._interrupted = threading.Condition()
        self.sparkContext = SimpleNamespace(cancelAllJobs=self.interruptAll)  # asked before Spark 4

    def range(self, *_: object) -> Self:
        self.planning.set()
        with self._interrupted:
            assert self._interrupted.wait_for(lambda: self.interrupts >= 1, timeout=30)
        return self

    def mapInArrow(self, *_: object) -> Self:
        return self

    def collect(self) -> list[object]:
        with self._interrupted:
            met = self._interrupted.wait_for(lambda: self.interrupts >= 2, timeout=30)
        raise RuntimeError("Job cancelled" if met else "the job ran on")

    def interruptAll(self) -> None:
        with self._interrupted:
            self.interrupts += 1
            self._interrupted.notify_all()


class LiveSession:
    """A session on which every task reaches its stop offsets.

    :ivar conf: its settings.
    """

    sparkContext = SimpleNamespace(defaultParallelism=2, master="local[2]")

    def __init__(self) -> None:
        self.conf: dict[str, str] = {"spark.master": "local[2]"}

    def range(self, *_: object) -> Self:
        return self

    def mapInArrow(self, *_: object) -> Self:
        return self

    def collect(self) -> list[object]:
        report = HostReport(report=TaskReport(task_id="0_0"))
        return [SimpleNamespace(report=msgspec.json.encode(report))]


class ConnectSession:
    """A session of Spark Connect: this side has no context.

    :ivar conf: its settings.
    """

    def __init__(self, **conf: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in conf.items()}

    @property
    def sparkContext(self) -> NoReturn:
        raise RuntimeError("JVM_ATTRIBUTE_NOT_SUPPORTED")


def a_slice() -> Slice:
    topology = TopologyPlan(
        application_id="app",
        topology_hash="h",
        subtopologies=(SubtopologyPlan(id=0, sources=("in",), sinks=()),),
    )
    plan = RunPlan(
        topology=topology,
        partitions={"in": 1},
        topic_ids={"in": "id"},
        tasks={"0": 1},
        stop_hash="",
        begun_ms=0,
        ledger=LedgerSeen(topic_id="id", end=0),
    )
    return Slice(run_id="r", generation=1, plan=plan, inputs=())


def on(session: Any) -> SparkExecutors:
    return SparkExecutors(
        "app r",
        ApplicationFile(filename="app.py", text=""),
        settings=ApplicationSettings.parse("app"),
        client_config_path="",
        session=session,
    )


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "range"),
        (Py4JNetworkError("Answer from Java side is empty"), "mapInArrow"),
        (Py4JNetworkError("Answer from Java side is empty"), "collect"),
        (EOFError(), "collect"),
    ],
)
def test_lost_session_is_named_when_its_jvm_is_gone(error: Exception, at: str) -> None:
    with pytest.raises(SparkSessionError, match="lost Spark's JVM") as caught:
        on(DeadSession(error, at=at)).launch(a_slice(), [TaskShare(0, 0)])
    assert caught.value.is_retriable
    assert "retry the run" in caught.value.fix


GONE = Py4JNetworkError("Answer from Java side is empty")
NO_PYTHON = RuntimeError('java.io.IOException: Cannot run program "/nowhere/python3": error=2, No such file')
ENDED = RuntimeError("Task 0 in stage 2.0 failed 4 times: Python worker exited unexpectedly (crashed)")


@pytest.mark.parametrize(
    "error",
    [
        walked("hosts._spark_failure: look for what ended", GONE),
        walked("hosts._spark_failure: read the driver's log", RuntimeError("Stage cancelled")),
        walked("hosts._setup_error", NO_PYTHON),
        walked("hosts._ended_worker", ENDED),
    ],
)
def test_retry_processes_the_slice_when_what_the_error_names_is_mended(error: Exception) -> None:
    with pytest.raises(KStreamsError):
        on(DeadSession(error, at="collect")).launch(a_slice(), [TaskShare(0, 0)])
    assert on(LiveSession()).launch(a_slice(), [TaskShare(0, 0)]) == [TaskReport(task_id="0_0")]


@pytest.mark.remedy("executors._cores")
def test_spark_connect_knows_its_slots_when_the_settings_of_the_error_are_given() -> None:
    with pytest.raises(ConfigError) as refused:
        slots_of(cast("Any", ConnectSession()))
    assert refused.value.fix == "set spark.cores.max, or spark.executor.instances and spark.executor.cores"
    assert slots_of(cast("Any", ConnectSession(spark_cores_max="4"))) == 4
    both = ConnectSession(spark_executor_instances="3", spark_executor_cores="2")
    assert slots_of(cast("Any", both)) == 6


@pytest.mark.remedy("executors._number")
def test_slots_are_known_when_the_setting_is_a_number() -> None:
    with pytest.raises(ConfigError, match=r"spark\.cores\.max is 'many'"):
        slots_of(cast("Any", ConnectSession(spark_cores_max="many")))
    assert slots_of(cast("Any", ConnectSession(spark_cores_max="4"))) == 4


def test_other_failures_stay_what_they_are_when_the_session_lives() -> None:
    with pytest.raises(RunError, match="Stage cancelled"):
        on(DeadSession(RuntimeError("Stage cancelled"), at="collect")).launch(a_slice(), [TaskShare(0, 0)])


@pytest.mark.error_example("KS-SPARK-001")
@pytest.mark.remedy("hosts.started")
def test_cause_is_told_when_spark_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("\n[INVALID_DRIVER_MEMORY] System memory 419430400 must be at least 471859200.\n")

    monkeypatch.setattr(hosts, "open_session", refuse)
    with pytest.raises(SparkSessionError, match=r"Spark did not start.*INVALID_DRIVER_MEMORY") as caught:
        on(None).start()
    assert caught.value.is_retriable
    monkeypatch.setattr(hosts, "open_session", lambda *_: LiveSession())
    mended = on(None)
    mended.start()
    assert mended.launch(a_slice(), [TaskShare(0, 0)]) == [TaskReport(task_id="0_0")]


def test_job_that_is_on_its_way_is_cancelled_when_its_session_is() -> None:
    session = SlowSession()
    spark = on(session)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(spark.launch, a_slice(), [TaskShare(0, 0)])
        assert session.planning.wait(30)
        spark.cancel()
        with pytest.raises(RunError, match="Job cancelled"):
            late.result()


@pytest.mark.remedy("hosts.SparkHosts._launching")
def test_launch_is_refused_when_the_jobs_were_cancelled() -> None:
    session = SlowSession()
    spark = on(session)
    spark.cancel()
    with pytest.raises(SparkSessionError, match="cancelled before this one began") as caught:
        spark.launch(a_slice(), [TaskShare(0, 0)])
    assert caught.value.is_retriable
    assert not session.planning.is_set()
    assert on(LiveSession()).launch(a_slice(), [TaskShare(0, 0)]) == [TaskReport(task_id="0_0")]
