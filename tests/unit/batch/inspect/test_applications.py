"""The applications of a cluster, on the in-memory Kafka."""

from __future__ import annotations

from airflow_kstreams.batch.inspect.applications import read_applications
from airflow_kstreams.testing import ManualClock
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
