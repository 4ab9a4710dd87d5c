"""A broker that comes back after a crash reports transactions as aborted without their markers (KAFKA-20734):
what they hold must not be seen when the same transactional id commits again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch import task_attempt
from airflow_kstreams.batch.leftovers import open_partitions
from airflow_kstreams.batch.metadata_records import metadata_topic
from airflow_kstreams.batch.status import read_status
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.testing import InMemoryKafka
from tests.interception import InterceptedApplication, Once
from tests.word_counts import APP, EXACT, WORDS, counting, counts, kafka_with_words

T = TypeVar("T")


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_words()


@pytest.fixture
def app(kafka: InMemoryKafka) -> InterceptedApplication:
    return counting(kafka)


def crash_of(kafka: InMemoryKafka, transactional_id: str) -> Callable[[], None]:
    """The broker dies with the id's transaction open, comes back and forgets its markers."""

    def crash() -> None:
        assert kafka.time_out_transaction(transactional_id, marked=False)
        kafka.restart()
        raise KafkaClientError("no answer", fix="retry", code="_TRANSPORT", retriable_code=True)

    return crash


@pytest.mark.parametrize("number", [1, 2, 5])
def test_next_attempt_shows_nothing_of_what_was_abandoned(
    app: InterceptedApplication, kafka: InMemoryKafka, number: int
) -> None:
    slice_ = app.begin("run")
    app.interceptor = Once("writer.commit", number, crash_of(kafka, f"{APP}-0_0"))
    app.task(slice_, 0, 0)
    app.interceptor = None
    app.finish("run")
    assert counts(kafka) == EXACT
    assert open_partitions(kafka.admin(), kafka.topics()) == []


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_abandoned_would_be_seen_without_that(
    app: InterceptedApplication, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    if not ended:
        monkeypatch.setattr(task_attempt, "end_leftovers", lambda *_, **__: None)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    app.topology = builder.build()
    slice_ = app.begin("run")
    app.interceptor = Once("writer.commit", 2, crash_of(kafka, f"{APP}-0_0"))
    app.task(slice_, 0, 0)
    seen = "".join((record.value() or b"").decode() for record in kafka.records("out"))
    assert seen == (WORDS if ended else "abbaab")


def test_next_run_shows_nothing_of_it_when_the_run_was_given_up(
    app: InterceptedApplication, kafka: InMemoryKafka
) -> None:
    app.run("run-1")
    kafka.append("in", b"c", b"c")
    slice_ = app.begin("run-2")
    app.interceptor = Once("writer.commit", 1, crash_of(kafka, f"{APP}-0_0"))
    app.settings = {**app.settings, "task.max.attempts": 1}
    with pytest.raises(KafkaClientError):
        app.task(slice_, 0, 0)
    app.interceptor = None
    kafka.admin().delete_topics([metadata_topic(APP)])  # as a reset of the stop offsets does
    app.run("run-3")
    assert counts(kafka) == [*EXACT, (b"c", 1)]
    assert open_partitions(kafka.admin(), kafka.topics()) == []


def test_coordinator_ends_what_it_left_open_itself(app: InterceptedApplication, kafka: InMemoryKafka) -> None:
    app.interceptor = Once("writer.commit", 1, crash_of(kafka, f"{APP}-coordinator"))
    with pytest.raises(KafkaClientError):
        app.begin("run-1")
    app.interceptor = None
    assert open_partitions(kafka.admin(), kafka.topics())
    kafka.append("in", b"c", b"c")
    app.run("run-2")
    assert counts(kafka) == [*EXACT, (b"c", 1)]
    assert [run.run_id for run in read_status(kafka, APP).runs] == ["run-2"]


class Killed(BaseException):
    """The process is gone."""


class DyingInCommit:
    """From its second commit on, nothing of the process reaches the cluster any more."""

    def __init__(self) -> None:
        self.commits = 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.commits += name == "writer.commit"
        if self.commits > 1:
            raise Killed
        return effect()


def test_new_driver_reads_offsets_at_once_when_the_former_ones_task_died_in_its_commit(
    app: InterceptedApplication, kafka: InMemoryKafka
) -> None:
    slice_ = app.begin("run")
    app.interceptor = DyingInCommit()
    with pytest.raises(Killed):
        app.task(slice_, 0, 0)
    app.interceptor = None
    assert f"{APP}-0_0" in kafka.hanging_transactions()
    died_ms = kafka.clock.now_ms()

    taken = app.begin("run", (0, 2))

    assert taken.generation == slice_.generation + 1
    assert kafka.hanging_transactions() == []
    assert open_partitions(kafka.admin(), kafka.topics()) == []
    assert kafka.clock.now_ms() - died_ms < app.checked.transaction_timeout_ms, "nobody waited for a timeout"
    app.tasks(taken)
    app.finish("run")
    assert counts(kafka) == EXACT
