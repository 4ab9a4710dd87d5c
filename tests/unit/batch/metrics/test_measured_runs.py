"""Runs on the in-memory Kafka, whose clock moves only where a function or a commit takes time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.metrics import figures
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskMetrics, TaskReport
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

RECORDS = 50
RECORD_SECONDS, COMMIT_SECONDS, RESTORE_SECONDS = 0.02, 0.25, 2.0


@dataclass
class SlowBroker:
    """What tasks see: commits, and reads of changelogs, take time; a commit may fail.

    :param fails: numbers of the commits that never come to be.
    """

    clock: Clock
    fails: frozenset[int] = frozenset()
    commits: int = 0

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "writer.commit":
            self.clock.sleep(COMMIT_SECONDS)
            self.commits += 1
            if self.commits in self.fails:
                raise KafkaClientError("no answer", fix="", kafka_code="_TIMED_OUT", retriable_code=True)
        result = effect()
        if name == "reader.poll" and any("changelog" in tp.topic for tp in result.records):
            self.clock.sleep(RESTORE_SECONDS)
        return result


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_000_000))
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    return kafka


def topology(clock: Clock) -> Topology:
    """Every record takes its time, every fifth is dropped."""

    def slow(value: str) -> str:
        clock.sleep(RECORD_SECONDS)
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counted = builder.stream("in").map_values(slow).group_by_key().count(store="s")
    counted.to_stream().map_values(str).send_to("out")
    return builder.build()


def application(kafka: InMemoryKafka) -> Application:
    settings = {"commit.every.records": 10, "autostop.at": "eol"}
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=topology(kafka.clock),
        settings=settings,
    )


def tasks(app: Application, run_id: str, *, fails: frozenset[int] = frozenset()) -> list[TaskReport]:
    """Begin a run, and run its tasks on a slow broker."""
    slice_ = app.begin(run_id)
    app.interceptor = SlowBroker(app.clock or ManualClock(), fails)
    try:
        return app.tasks(slice_)
    finally:
        app.interceptor = None


def send(kafka: InMemoryKafka) -> None:
    for number in range(RECORDS):
        kafka.append("in", b"v", None if number % 5 == 0 else b"k%d" % number)


def test_report_says_how_fast_a_task_was(kafka: InMemoryKafka) -> None:
    send(kafka)
    (report,) = tasks(application(kafka), "r")

    found = figures([report])
    assert found["process-total"] == RECORDS
    assert found["process-latency-avg"] == pytest.approx(1_000 * RECORD_SECONDS)
    assert found["process-latency-p50"] == pytest.approx(1_000 * RECORD_SECONDS, rel=0.05)
    assert found["process-latency-p99"] == pytest.approx(1_000 * RECORD_SECONDS, rel=0.05)
    assert found["commit-total"] == 5
    assert found["commit-latency-avg"] == found["commit-latency-max"] == pytest.approx(1_000 * COMMIT_SECONDS)
    assert found["dropped-records-total"] == RECORDS / 5
    seconds = RECORDS * RECORD_SECONDS + 5 * COMMIT_SECONDS
    assert found["process-rate"] == pytest.approx(RECORDS / seconds)
    assert found["dropped-records-rate"] == pytest.approx(RECORDS / 5 / seconds)
    assert found["records-lag"] == 0


def test_run_says_it_when_it_is_finished_and_keeps_it_in_its_details(kafka: InMemoryKafka) -> None:
    send(kafka)
    app = application(kafka)
    tasks(app, "r")
    summary = app.finish("r")

    (line,) = [line for line in finished_text(summary).splitlines() if "subtopology" in line]
    assert line == (
        "  subtopology 0, 1 task: process-rate 25.0/s, process-latency p50 20.0 ms, p99 20.0 ms, "
        "commit-latency avg 250.0 ms, max 250.0 ms (4 of 5 commits measured)"
    )
    ledger = read_ledger(kafka, "app", clock=kafka.clock)
    entry = ledger.find("r")
    assert entry is not None
    assert ledger.detailed(entry).tasks == summary.tasks
    assert [task.metrics is not None for task in summary.tasks] == [True]
    assert entry.tasks == (), "what stays for good has none"


def test_last_commit_is_measured_when_the_driver_that_ran_the_task_finishes_the_run(
    kafka: InMemoryKafka,
) -> None:
    send(kafka)
    app = application(kafka)
    (told,) = tasks(app, "r")
    other = msgspec.structs.replace(told, commits=4, metrics=TaskMetrics())
    with closing(app.coordinator()) as coordinator:
        summary = coordinator.finish("r", reports=[told, other])

    assert summary.tasks == (told,)
    assert "max 250.0 ms (" not in finished_text(summary)
    assert told.metrics is not None
    assert told.metrics.commit.count == 5


def test_report_of_another_commit_says_nothing_when_a_run_is_finished(kafka: InMemoryKafka) -> None:
    send(kafka)
    app = application(kafka)
    (told,) = tasks(app, "r")
    earlier = msgspec.structs.replace(told, commits=4, metrics=TaskMetrics())
    with closing(app.coordinator()) as coordinator:
        (report,) = coordinator.finish("r", reports=[earlier]).tasks

    assert report.metrics is not None
    assert report.metrics.commit.count == 4, "all but the last one"


def test_restore_rate_is_known_when_a_store_was_restored(kafka: InMemoryKafka) -> None:
    send(kafka)
    application(kafka).run("one")
    send(kafka)
    (report,) = tasks(application(kafka), "two")

    found = figures([report])
    assert report.restored == RECORDS * 4 / 5
    assert found["restore-rate"] == pytest.approx(report.restored / RESTORE_SECONDS)
    assert found["process-rate"] == pytest.approx(
        RECORDS / (RECORDS * RECORD_SECONDS + 5 * COMMIT_SECONDS)
    ), "restoring is not processing"


@pytest.mark.promise("latencies-add-up")
def test_each_record_counts_once_when_an_attempt_dies_in_a_commit(kafka: InMemoryKafka) -> None:
    send(kafka)
    (report,) = tasks(application(kafka), "r", fails=frozenset({3}))

    assert (report.attempts, report.records_in) == (2, RECORDS)
    assert report.metrics is not None
    assert report.metrics.process.count == RECORDS, "what was not committed is void"
    assert report.commits == 5
    # Of the first attempt, its second commit is not known: the one after it never came.
    assert report.metrics.commit.count == 4


def test_a_task_says_it_in_one_line_of_the_log_at_its_end(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    send(kafka)
    with caplog.at_level("INFO", logger="airflow_kstreams.batch.task"):
        tasks(application(kafka), "r", fails=frozenset({2}))
    assert [message for message in caplog.messages if message.startswith("task 0_0 done")] == [
        "task 0_0 done: 50 records in, 40 out, 10 dropped, 8 restored, 5 commits, process-rate 25.0/s, "
        "process-latency p50 20.0 ms, p99 20.0 ms, commit-latency avg 250.0 ms, max 250.0 ms "
        "(4 of 5 commits measured), restore-rate 4.0/s"
    ]


def test_lag_to_stop_is_seen_when_a_task_is_on_its_way(kafka: InMemoryKafka) -> None:
    send(kafka)
    app = application(kafka)
    slice_ = app.begin("r")
    app.interceptor = SlowBroker(kafka.clock, frozenset(range(3, 1_000)))
    with pytest.raises(KafkaClientError):
        app.tasks(slice_)
    app.interceptor = None

    (report,) = read_status(kafka, "app", clock=kafka.clock).tasks

    assert report.records_in == 20
    assert figures([report])["records-lag"] == 30
