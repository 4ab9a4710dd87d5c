"""Brokers that come back after a crash end transactions without markers where a partition has no leader yet
(KAFKA-20734): whoever claims an id, or aborts, waits for leaders first, or results are seen twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.task import commit as task_commit
from airflow_kstreams.batch.task import runner as task_attempt
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.launches import lease_held, share_of
from tests.support.kafka.word_counts import APP, EXACT, WORDS, counting, counts, kafka_with_words

pytestmark = pytest.mark.promise("leaders-before-ends")

T = TypeVar("T")
_LEADERLESS_MS = 5_000


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_words()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return counting(kafka)


def crash_of(kafka: InMemoryKafka) -> Callable[[], None]:
    """The brokers die and come back, at first without leaders."""

    def crash() -> None:
        kafka.restart(leaderless_ms=_LEADERLESS_MS)
        raise KafkaClientError("no answer", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)

    return crash


class DyingWithTheBrokers:
    """The process dies at a commit, and the brokers with it: it does not abort what it began."""

    def __init__(self, kafka: InMemoryKafka, number: int) -> None:
        self._kafka, self._left, self._dead = kafka, number, False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self._left -= name == "writer.commit"
        if not self._dead and not self._left:
            self._dead = True
            self._kafka.restart(leaderless_ms=_LEADERLESS_MS)
        if self._dead:
            raise Crash
        return effect()


def open_partitions(kafka: InMemoryKafka) -> list[str]:
    admin = kafka.admin()
    found = admin.describe_topics(kafka.topics())
    partitions = [TopicPartition(topic, n) for topic, about in found.items() for n in range(about.partitions)]
    stable = admin.end_offsets(partitions, isolation="read_committed")
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    return [str(tp) for tp in partitions if stable[tp] < ends[tp]]


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_are_exact_when_leaders_come_late(
    app: Application, kafka: InMemoryKafka, number: int
) -> None:
    slice_ = app.begin("run")
    app.interceptor = Once("writer.commit", number, crash_of(kafka))
    app.task(slice_, 0, 0)
    app.interceptor = None
    app.finish("run")
    assert counts(kafka) == EXACT
    assert open_partitions(kafka) == []


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_are_exact_when_the_process_died_with_the_brokers(
    app: Application, kafka: InMemoryKafka, number: int
) -> None:
    slice_ = app.begin("run")
    with lease_held(kafka, slice_, kafka.clock):
        # The driver has launched the task before: it looks at nothing, and so waits for nothing, in between.
        share = share_of(kafka, slice_, 0, 0, kafka.clock)
        app.interceptor = DyingWithTheBrokers(kafka, number)
        with pytest.raises(Crash):
            app.launched(slice_, share)
        app.interceptor = None
        app.launched(slice_, share)
    app.finish("run")
    assert counts(kafka) == EXACT
    assert open_partitions(kafka) == []


@pytest.mark.parametrize("waits", [True, False])
def test_results_would_be_seen_twice_without_that_wait(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    if not waits:
        for module in (task_attempt, task_commit):
            monkeypatch.setattr(module, "await_leaders", lambda *_: None)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    app.topology = builder.build()
    slice_ = app.begin("run")
    app.interceptor = Once("writer.commit", 2, crash_of(kafka))
    app.task(slice_, 0, 0)
    seen = "".join((record.value() or b"").decode() for record in kafka.records("out"))
    assert seen == (WORDS if waits else "abbaab")


def test_task_is_fenced_with_leaders_when_its_run_was_given_up(
    app: Application, kafka: InMemoryKafka
) -> None:
    app.run("run-1")
    kafka.append("in", b"c", b"c")
    slice_ = app.begin("run-2")
    app.interceptor = Once("writer.commit", 1, crash_of(kafka))
    app.settings = {**app.settings, "task.max.attempts": 1}
    with pytest.raises(KafkaClientError):
        app.task(slice_, 0, 0)
    app.interceptor = None
    # No slice is left, and a person says of every input where to go on.
    kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    reader, inputs = kafka.reader(group_id=APP), kafka.partitions("in")
    reader.commit({tp: CommittedOffset(at.offset) for tp, at in reader.committed(inputs).items()})
    app.run("run-3")
    assert counts(kafka) == [*EXACT, (b"c", 1)]
    assert open_partitions(kafka) == []


def test_coordinator_claims_with_leaders(app: Application, kafka: InMemoryKafka) -> None:
    app.interceptor = Once("writer.commit", 1, crash_of(kafka))
    with pytest.raises(KafkaClientError):
        app.begin("run-1")
    app.interceptor = None
    kafka.append("in", b"c", b"c")
    app.run("run-2")
    assert counts(kafka) == [*EXACT, (b"c", 1)]
    assert [run.run_id for run in read_status(kafka, APP).runs] == ["run-2"]
    assert open_partitions(kafka) == []


def test_claim_fails_and_may_be_repeated_when_no_leader_comes(app: Application, kafka: InMemoryKafka) -> None:
    kafka.restart(leaderless_ms=3_600_000)
    with pytest.raises(KafkaClientError) as caught:
        app.begin("run-1")
    assert caught.value.is_retriable
