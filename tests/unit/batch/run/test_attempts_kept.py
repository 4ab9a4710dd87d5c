"""What runs leave in the ledger of their attempts, whichever way these end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kstreams.batch.ledger.history import Attempt, Histories, How, RunHistory
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KilledError,
    RunBusyError,
    RunError,
    RunSupersededError,
    TopologyError,
)
from tests.support.kafka.attempts_scene import AttemptsScene, copying, copying_twice
from tests.support.kafka.ledger_history import LEDGER

pytestmark = pytest.mark.promise("failures-are-kept")


@pytest.fixture
def scene() -> Iterator[AttemptsScene]:
    yield AttemptsScene()


def ways(history: RunHistory) -> list[tuple[str, str | None]]:
    return [(each.part, None if each.how is None else each.how.value) for each in history.attempts]


def test_failure_of_a_driver_is_written_with_the_release_of_its_lease(scene: AttemptsScene) -> None:
    scene.fail(1, KafkaClientError("in-0@7: no answer", fix="look at the broker", kafka_code="_TRANSPORT"))
    last = scene.history().last
    assert last is not None
    assert (last.how, last.owner, last.order, last.generation) == (How.FAILED, "try 1", (0, 1), 1)
    assert last.ended_ms - last.begun_ms >= 2_000
    failure = last.failure
    assert failure is not None
    assert (failure.kind, failure.kafka_code) == ("KafkaClientError", "_TRANSPORT")
    assert (failure.cause, failure.remedy) == ("in-0@7: no answer", "look at the broker")
    # Begin: history, checkpoint, lease; the release: history, lease. Nothing else was written.
    keys = [record.key() for record in scene.kafka.records(LEDGER)]
    assert keys == [b"__history__", b"__checkpoint__", b"__lease__", b"__history__", b"__lease__"]
    assert scene.ledger.held_lease is None


def test_finished_run_keeps_its_earlier_attempts(scene: AttemptsScene) -> None:
    scene.fail(1, ConfigError("a setting", fix="mend it"))
    scene.fail(2, ValueError("'a value'"))
    scene.fail(3, KilledError("asked to"))
    scene.finish(4)
    history = scene.history()
    assert ways(history) == [
        ("driver", "failed"),
        ("driver", "failed"),
        ("driver", "stopped"),
        ("driver", "finished"),
    ]
    assert [each.generation for each in history.attempts] == [1, 2, 3, 4]
    assert [each.kind for each in (a.failure for a in history.failed) if each] == [
        "ConfigError",
        "ValueError",
    ]
    assert len(history.takeovers) == 3
    entry = scene.ledger.find("r")
    assert entry is not None
    assert entry.attempts == 4
    assert scene.ledger.histories().runs == ()
    assert b"a value" not in b"".join(record.value() or b"" for record in scene.kafka.records(LEDGER))


def test_steps_of_a_finished_run_are_those_of_run_subtopology_and_tasks(scene: AttemptsScene) -> None:
    scene.finish()
    last = scene.history().last
    assert last is not None
    of_run = {step.name for step in last.steps if step.subtopology < 0}
    of_tasks = {step.name for step in last.steps if step.subtopology == 0}
    assert of_run == {"freeze", "fence", "finish"}
    assert of_tasks == {"fence", "restore", "process", "commit"}
    assert all(step.begun_ms <= step.ended_ms for step in last.steps)


def test_steps_of_each_task_stand_once_when_each_subtopology_has_one() -> None:
    scene = AttemptsScene(copying_twice())
    scene.finish()
    last = scene.history().last
    assert last is not None
    of_tasks = [(step.name, step.task) for step in last.steps if step.task]
    assert {task for _, task in of_tasks} == {"0_0", "1_0"}
    assert len(of_tasks) == len(set(of_tasks))


def test_next_begin_notes_a_driver_that_ended_without_a_word(scene: AttemptsScene) -> None:
    scene.begin(scene.coordinator(), 1)
    begun = scene.history().last
    assert begun is not None
    assert begun.how is None
    scene.kafka.clock.sleep(3_600)
    # It is of the same run and a later try, which need not wait for the lease.
    scene.begin(scene.coordinator(), 2)
    assert ways(scene.history()) == [("driver", "taken over"), ("driver", None)]
    # Another run waits until the lease has run out.
    other = scene.coordinator()
    scene.begin(other, 1, "later")
    history = scene.history()
    assert ways(history) == [("driver", "taken over"), ("driver", "lost"), ("driver", None)]
    last = history.last
    assert last is not None
    assert (last.for_run, last.generation) == ("later", 3)


def test_superseded_driver_writes_nothing(scene: AttemptsScene) -> None:
    first, second = scene.coordinator(), scene.coordinator()
    scene.begin(first, 1)
    scene.begin(second, 2)
    written = len(scene.kafka.records(LEDGER))
    with pytest.raises(RunSupersededError), first.lease.keep() as lease, first.attempt.ending():
        lease.check()
    first.close()
    assert len(scene.kafka.records(LEDGER)) == written
    second.lease.renew()  # and the live one is not fenced
    second.close()
    assert ways(scene.history()) == [("driver", "taken over"), ("driver", "done")]


def test_capture_is_told_by_the_slice_and_counts_once_a_driver_comes(scene: AttemptsScene) -> None:
    scene.begin(scene.coordinator(), 0, hold_lease=False)
    assert b"__history__" not in [record.key() for record in scene.kafka.records(LEDGER)]
    scene.fail(1, ConfigError("x"))
    capture = scene.history().attempts[0]
    assert (capture.part, capture.owner, capture.how) == ("capture", "try 0", How.DONE)
    assert [step.name for step in capture.steps] == ["fence", "freeze"]
    assert ways(scene.history())[1:] == [("driver", "failed")]


@pytest.mark.parametrize("hold_lease", [True, False])
def test_begin_that_fails_keeps_its_cause_though_nothing_began(
    scene: AttemptsScene, *, hold_lease: bool
) -> None:
    missing = copying("absent")
    for number in (1, 2):
        coordinator = scene.coordinator()
        with pytest.raises(TopologyError):
            scene.begin(coordinator, number, topology=missing, hold_lease=hold_lease)
        coordinator.close()
    part = "driver" if hold_lease else "capture"
    assert ways(scene.history()) == [(part, "failed"), (part, "failed")]
    failure = scene.history().failure
    assert failure is not None
    assert "absent" in failure.cause
    assert scene.ledger.unwritten
    scene.finish(3)
    assert ways(scene.history()) == [(part, "failed"), (part, "failed"), ("driver", "finished")]


def test_finish_that_fails_keeps_its_cause_and_the_run_goes_on(scene: AttemptsScene) -> None:
    coordinator = scene.coordinator()
    slice_ = scene.begin(coordinator, 1)
    coordinator.close()
    finishing = scene.coordinator()
    with pytest.raises(RunError):
        finishing.finish("r", order=(0, 1), owner="finish")
    finishing.close()
    assert ways(scene.history()) == [("driver", "done"), ("finish", "failed")]
    driver = scene.coordinator()
    slice_ = scene.begin(driver, 2)
    scene.app.tasks(slice_)
    driver.close()
    finishing = scene.coordinator()
    finishing.finish("r", order=(0, 2), owner="finish")
    finishing.close()
    assert ways(scene.history())[2:] == [("driver", "done"), ("finish", "finished")]


def test_refused_caller_has_made_no_attempt(scene: AttemptsScene, monkeypatch: pytest.MonkeyPatch) -> None:
    live = scene.coordinator()
    scene.begin(live, 1)
    slept = scene.kafka.clock.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        live.lease.renew()

    monkeypatch.setattr(scene.kafka.clock, "sleep", sleep)
    with pytest.raises(RunBusyError):
        scene.begin(scene.coordinator(), 1, "other")
    assert scene.ledger.history("other") is None
    live.close()
    assert ways(scene.history()) == [("driver", "done")]


def test_begin_goes_on_when_the_history_cannot_be_read(
    scene: AttemptsScene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other_version:
        other_version.setattr(Histories, "encode", lambda _: b"no history")
        scene.fail(1, ConfigError("x"))
    assert scene.ledger.histories() == Histories(unreadable=1)
    scene.finish(2)
    assert "cannot be read and begins anew" in caplog.text
    assert ways(scene.history()) == [("driver", "finished")]


def test_runs_that_never_finish_stay_beside_the_others(scene: AttemptsScene) -> None:
    missing = copying("absent")
    for name in ("a", "b"):
        coordinator = scene.coordinator()
        with pytest.raises(TopologyError):
            scene.begin(coordinator, 1, name, topology=missing)
        coordinator.close()
    scene.finish()
    assert [run.run_id for run in scene.ledger.histories().runs] == ["a", "b"]
    assert isinstance(scene.history("a").last, Attempt)
