"""Failures outside any claim: the Airflow task tells of them, and nothing is disturbed by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.inspect.status import RunStatus, read_status
from airflow_kstreams.batch.ledger.history import RunHistory
from airflow_kstreams.batch.run.lease.lease import Claimant
from airflow_kstreams.batch.run.reported_failures import is_to_be_reported, report_failure
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KilledError,
    KStreamsError,
    ReportedError,
    RunBusyError,
    RunSupersededError,
    SparkSessionError,
)
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.testing.faults import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.attempts_scene import AttemptsScene
from tests.support.kafka.ledger_history import APP, LEDGER

pytestmark = pytest.mark.promise("failures-are-kept")

T = TypeVar("T")
METADATA = f"{APP}-metadata"
NO_JAVA = SparkSessionError("spark-submit found no Java", fix="install it")


@pytest.fixture
def scene() -> Iterator[AttemptsScene]:
    yield AttemptsScene()


def report(
    scene: AttemptsScene,
    number: int,
    error: KStreamsError = NO_JAVA,
    *,
    run_id: str = "r",
    cluster: ClusterPort | None = None,
    ran_seconds: float = 0,
) -> bool:
    """Let the Airflow task of a driver report its failure, some seconds after it began."""
    caller = Claimant(run_id=run_id, order=(0, number), owner=f"try {number}", hold_lease=True)
    begun_ms = scene.kafka.clock.now_ms() - round(ran_seconds * 1_000)
    reported = report_failure(
        cluster or scene.kafka, APP, caller, error, part="driver", begun_ms=begun_ms, clock=scene.kafka.clock
    )
    scene.kafka.clock.sleep(1)
    return reported


def capture(scene: AttemptsScene, run_id: str = "r") -> None:
    coordinator = scene.coordinator()
    scene.begin(coordinator, 0, run_id, hold_lease=False)
    coordinator.close()


def look(scene: AttemptsScene) -> RunStatus:
    return read_status(scene.kafka, APP, clock=scene.kafka.clock)


def standing(scene: AttemptsScene) -> str:
    found = look(scene).standing
    return "" if found is None else found.text


def ways(history: RunHistory) -> list[tuple[str, str | None]]:
    return [(each.owner, None if each.how is None else each.how.value) for each in history.attempts]


def reported_records(scene: AttemptsScene) -> list[bytes | None]:
    return [
        each.value() for each in scene.kafka.records(METADATA) if each.key() == f"{APP}#reported".encode()
    ]


def test_status_shows_reports_and_the_next_driver_puts_them_into_the_ledger(
    scene: AttemptsScene,
) -> None:
    capture(scene)
    assert standing(scene).endswith("no driver works on it yet")
    scene.kafka.clock.sleep(1)
    assert report(scene, 1)
    assert report(scene, 2)
    assert (
        standing(scene) == "failed 1 s ago, no driver works on it: spark-submit found no Java [KS-SPARK-001]"
    )
    (run,) = look(scene).histories.runs
    assert ways(run) == [("try 1", "failed"), ("try 2", "failed")]

    scene.begin(scene.coordinator(), 3)

    assert reported_records(scene)[-1] is None
    assert ways(scene.history())[1:] == [("try 1", "failed"), ("try 2", "failed"), ("try 3", None)]
    assert standing(scene).startswith("running: try 3")


def test_nothing_is_claimed_to_report_while_a_driver_is_at_work_or_begins(scene: AttemptsScene) -> None:
    capture(scene)
    live, beginning = scene.coordinator(), scene.coordinator()
    slice_ = scene.begin(live, 1)
    with live.lease.keep(), live.attempt.ending():
        report(scene, 1, SparkSessionError("killed by SIGKILL"), ran_seconds=60)
        live.lease.renew()
        assert standing(scene).startswith("running: try 1")
        reports = scene.app.tasks(slice_)
        report(scene, 2)
        live.finish("r", reports=reports)
    # It lived on, and says itself how it ended; of the other try the task alone could report.
    assert ways(scene.history()) == [("try 0", "done"), ("try 2", "failed"), ("try 1", "finished")]
    assert reported_records(scene)[-1] is None
    assert not report(scene, 1, run_id="r")
    # A begin has claimed the coordinator's id, and has not written yet.
    beginning.session.claim()
    ledger = beginning.session.read_ledger()
    report(scene, 1, run_id="next")
    beginning.session.write(
        (),
        lease=beginning.lease.new(Claimant(run_id="next", order=(0, 2), owner="try 2", hold_lease=True), 1),
    )
    assert scene.ledger.held_lease is not None
    assert ledger.held_lease is None


@pytest.mark.parametrize("renewals", [0, 100])
def test_killed_driver_has_the_end_that_its_task_has_reported(scene: AttemptsScene, renewals: int) -> None:
    driver = scene.coordinator()
    scene.begin(driver, 1)
    for _ in range(renewals):
        driver.lease.renew()
    scene.kafka.clock.sleep(1)
    report(scene, 1, SparkSessionError("killed by SIGKILL"), ran_seconds=60)
    assert standing(scene) == "failed 1 s ago, no driver works on it: killed by SIGKILL [KS-SPARK-001]"
    scene.kafka.clock.sleep(3_600)
    scene.begin(scene.coordinator(), 1, "later")
    assert ways(scene.history()) == [("try 1", "failed"), ("try 1", None)]
    failure = scene.history().attempts[0].failure
    assert failure is not None
    assert failure.cause == "killed by SIGKILL"


def test_same_try_of_a_dag_run_that_was_made_again_reports_its_own(scene: AttemptsScene) -> None:
    scene.fail(1, ConfigError("a setting", fix="mend it"))
    scene.kafka.clock.sleep(1)
    assert report(scene, 1)
    (run,) = look(scene).histories.runs
    assert ways(run) == [("try 1", "failed"), ("try 1", "failed")]


def test_driver_that_lives_on_says_itself_how_it_ended(scene: AttemptsScene) -> None:
    coordinator = scene.coordinator()
    scene.begin(coordinator, 1)
    with coordinator.lease.keep(), coordinator.attempt.ending():
        report(scene, 1, SparkSessionError("killed by SIGKILL"), ran_seconds=60)
    assert standing(scene).startswith("its driver has done its part")


def test_failure_that_the_attempt_has_written_itself_is_not_reported_again(scene: AttemptsScene) -> None:
    scene.fail(1, ConfigError("a setting", fix="mend it"))
    assert not report(scene, 1, ConfigError("the same, as its task reads it"), ran_seconds=60)
    assert reported_records(scene) == []
    assert "a setting" in standing(scene)


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (NO_JAVA, True),
        (ConfigError("x", fix="y"), True),
        (RuntimeError("of Airflow's Spark provider"), True),
        (KafkaClientError("unreachable", fix="y", kafka_code="_TRANSPORT"), False),
        (KilledError("asked to"), False),
        (KeyboardInterrupt(), False),
        (RunBusyError("x", fix="y", run_id="r", owner="o", owner_run_id="r"), False),
        (ReportedError.from_dict(RunSupersededError("x", fix="y", run_id="r").to_dict()), False),
    ],
)
def test_what_a_task_reports(error: BaseException, reported: bool) -> None:
    assert is_to_be_reported(error) is reported


def test_later_run_that_cannot_start_is_shown_beside_the_one_before_it(scene: AttemptsScene) -> None:
    scene.fail(1, ConfigError("a setting", fix="mend it"))
    scene.kafka.clock.sleep(1)
    report(scene, 1, run_id="later")
    found = look(scene).standing
    assert found is not None
    assert found.run_id == "r"
    assert (
        found.waiting
        == "run later failed 1 s ago, no driver works on it: spark-submit found no Java [KS-SPARK-001]"
    )


def test_nothing_is_made_to_report_when_no_run_has_begun_yet(scene: AttemptsScene) -> None:
    assert not report(scene, 1)
    assert METADATA not in scene.kafka.admin().topic_names()


def test_topic_of_others_is_not_written(scene: AttemptsScene) -> None:
    scene.kafka.create_topic(METADATA)
    scene.kafka.append(METADATA, b"of others", b"theirs")
    assert not report(scene, 1)
    assert len(scene.kafka.records(METADATA)) == 1


class DiesBefore:
    """Ends the process before one of its calls that change something."""

    def __init__(self, number: int) -> None:
        self.left = number

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.left -= name.startswith("writer.")
        if self.left == 0:
            raise Crash(name)
        return effect()


def dying() -> Iterator[tuple[AttemptsScene, DiesBefore]]:
    """Yield scenes, each with a death one call later, until no call is left to die at."""
    for number in count(1):
        scene = AttemptsScene()
        capture(scene)
        death = DiesBefore(number)
        yield scene, death
        if death.left > 0:
            return


def test_crash_of_the_reporting_task_at_any_call_leaves_a_sound_application() -> None:
    reported = []
    for scene, death in dying():
        with suppress(Crash):
            report(scene, 1, cluster=FaultyCluster(scene.kafka, death))
        reported.append(len(reported_records(scene)))
        scene.finish(2)
        of_task = [("try 1", "failed")] * reported[-1]
        assert ways(scene.history()) == [("try 0", "done"), *of_task, ("try 2", "finished")]
    assert {*reported} == {0, 1}


def test_crash_of_a_begin_at_any_call_keeps_what_was_reported_once() -> None:
    deaths = 0
    for scene, death in dying():
        report(scene, 1)
        with suppress(Crash):
            scene.begin(scene.coordinator(FaultyCluster(scene.kafka, death)), 2)
        deaths += death.left <= 0
        (run,) = look(scene).histories.runs
        assert ways(run).count(("try 1", "failed")) == 1
        scene.kafka.clock.sleep(3_600)
        scene.finish(3)
        assert ways(scene.history()).count(("try 1", "failed")) == 1
        assert ways(scene.history())[-1] == ("try 3", "finished")
    assert deaths > 5


def test_record_of_reported_failures_that_cannot_be_read_disturbs_nothing(scene: AttemptsScene) -> None:
    capture(scene)
    report(scene, 1)
    scene.kafka.append(METADATA, b"\xff", f"{APP}#reported".encode())
    assert standing(scene).endswith("no driver works on it yet")
    scene.finish(2)
    assert ways(scene.history()) == [("try 0", "done"), ("try 2", "finished")]
    assert reported_records(scene)[-1] is None
    assert LEDGER in scene.kafka.admin().topic_names()
