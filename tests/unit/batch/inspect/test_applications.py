"""The applications of a cluster, on the in-memory Kafka."""

from __future__ import annotations

from airflow_kstreams.batch.inspect.applications import read_applications
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.testing import ManualClock
from tests.support.kafka.attempts_scene import AttemptsScene
from tests.support.kafka.word_counts import counting, kafka_with_words


def test_applications_are_listed_with_their_last_runs() -> None:
    kafka = kafka_with_words()
    counting(kafka).run("one")
    kafka.create_topic("other-runs")
    kafka.append("other-runs", b"no ledger", b"k")

    found = read_applications(kafka, clock=kafka.clock)

    ours, other = found.applications
    assert ours.last is not None
    assert (ours.application_id, ours.finished, ours.last.run_id, ours.works_on) == ("app", 1, "one", None)
    assert (other.application_id, other.finished, other.last) == ("other", None, None)
    (why,) = found.not_seen
    assert why.startswith("other: ")


def test_application_whose_last_attempt_failed_is_told_from_one_at_work() -> None:
    scene = AttemptsScene()
    scene.fail(1, ConfigError("in-0@7 holds no number"))

    (failed,) = read_applications(scene.kafka, clock=scene.kafka.clock).applications

    assert (failed.failed, failed.works_on, failed.last) == ("r", None, None)
    coordinator = scene.coordinator()
    scene.begin(coordinator, 2)
    (working,) = read_applications(scene.kafka, clock=scene.kafka.clock).applications
    assert (working.failed, working.works_on) == (None, "r")
    coordinator.close()
    scene.finish()
    (done,) = read_applications(scene.kafka, clock=scene.kafka.clock).applications
    assert (done.failed, done.works_on, done.finished) == (None, None, 1)


def test_ledgers_are_read_until_the_time_is_over() -> None:
    kafka = kafka_with_words()
    counting(kafka).run("one")

    class Late(ManualClock):
        def monotonic_seconds(self) -> float:
            self.sleep(6)
            return super().monotonic_seconds()

    found = read_applications(kafka, clock=Late(now_ms=1))

    assert [(each.application_id, each.finished) for each in found.applications] == [("app", None)]
    assert found.not_seen == ("the time was over: 1 ledger could not be read, from that of app on",)
