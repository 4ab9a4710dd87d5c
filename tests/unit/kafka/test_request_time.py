"""The bound of all requests of a look together: what is handed to the client, on a clock of our own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka import admin as admin_module
from airflow_kstreams.kafka import reader as reader_module
from airflow_kstreams.kafka.admin import ClusterAdmin
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.connection import RequestTime
from airflow_kstreams.kafka.reader import BoundedReader
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import ManualClock

pytestmark = pytest.mark.promise("status-ends")

CONFIG = {"bootstrap.servers": "broker:9092"}
AT = TopicPartition("in", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def look(clock: ManualClock) -> RequestTime:
    return RequestTime("broker:9092", request_ms=4_000, look_ms=8_000, monotonic=clock.monotonic_seconds)


class SilentClient:
    """Answers the first contact; every wait for anything else lasts as long as it is allowed to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[float] = []

    def made(self, *_: object, **__: object) -> SilentClient:
        return self

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> object:
        return SimpleNamespace(topics={}, brokers={})

    def poll(self, timeout: float = -1) -> None:
        return None

    def assign(self, partitions: object) -> None:
        return None

    def consume(self, count: int, timeout: float) -> list[Any]:
        if timeout:
            self._wait(timeout)
        return []

    def committed(self, partitions: object, timeout: float) -> list[Any]:
        return self._times_out(timeout)

    def describe_topics(self, names: object, request_timeout: float) -> dict[str, Any]:
        return {"in": SimpleNamespace(result=lambda _: self._times_out(request_timeout))}

    def list_offsets(self, specs: object, request_timeout: float, isolation_level: object) -> dict[Any, Any]:
        return {AT: SimpleNamespace(result=lambda _: self._times_out(request_timeout))}

    def _times_out(self, seconds: float) -> NoReturn:
        self._wait(seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _wait(self, seconds: float) -> None:
        assert seconds > 0, "the client takes it for no limit"
        self.asked.append(seconds)
        self.clock.sleep(seconds)


@pytest.fixture
def client(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> SilentClient:
    client = SilentClient(clock)
    monkeypatch.setattr(admin_module, "AdminClient", client.made)
    monkeypatch.setattr(reader_module, "Consumer", client.made)
    for module in (admin_module, reader_module):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=clock.monotonic_seconds, sleep=clock.sleep)
        )
    return client


def test_wait_gets_what_is_left_when_it_is_less_than_a_request_may_take(
    look: RequestTime, clock: ManualClock
) -> None:
    assert (look.left(), look.left(0.2)) == (4, 0.2)
    clock.sleep(5)
    assert (look.left(), look.left(0.2)) == (3, 0.2)
    clock.sleep(3)
    with pytest.raises(KafkaClientError) as caught:
        look.left(0.2)
    error = caught.value
    assert error.cause == "broker unreachable at broker:9092: it did not give all answers within 8 s"
    assert "check bootstrap.servers" in error.fix and "--timeout" in error.fix
    assert error.is_retriable


def test_requests_are_not_bounded_together_when_nobody_asked_for_it(clock: ManualClock) -> None:
    alone = RequestTime("broker:9092", request_ms=4_000, monotonic=clock.monotonic_seconds)
    clock.sleep(3_600)
    assert (alone.left(), alone.left(0)) == (4, 0)


def test_cluster_can_still_be_shipped_when_it_has_a_bound() -> None:
    shipped = pickle.loads(pickle.dumps(KafkaCluster(CONFIG, look_ms=8_000)))
    assert shipped.bootstrap == "broker:9092"


ADMIN_CALLS: dict[str, Callable[[ClusterAdmin], object]] = {
    "topics": lambda admin: admin.describe_topics(["in"]),
    "ends": lambda admin: admin.end_offsets([AT], isolation="read_committed"),
    "starts": lambda admin: admin.start_offsets([AT]),
}


@pytest.mark.parametrize("call", ADMIN_CALLS.values(), ids=ADMIN_CALLS.keys())
def test_admin_requests_share_the_bound_when_none_is_answered(
    look: RequestTime, client: SilentClient, clock: ManualClock, call: Callable[[ClusterAdmin], object]
) -> None:
    admin = ClusterAdmin(CONFIG, request_time=look)
    clock.sleep(3)  # of other clients
    for _ in range(3):
        with pytest.raises(KafkaClientError, match="broker unreachable at broker:9092"):
            call(admin)
    assert client.asked == [4, 1]


def test_read_ends_when_nothing_comes_any_more(
    look: RequestTime, client: SilentClient, clock: ManualClock
) -> None:
    clock.sleep(5)
    reader = BoundedReader(CONFIG, group_id="app", isolation="read_committed", request_time=look)
    read = BoundedRead(reader, {AT: (0, 10)}, clock=clock)
    with pytest.raises(KafkaClientError, match="did not give all answers within 8 s"):
        list(read)
    assert sum(client.asked) == pytest.approx(3)


def test_committed_offsets_are_asked_for_no_longer_than_is_left(
    look: RequestTime, client: SilentClient, clock: ManualClock
) -> None:
    clock.sleep(5)
    reader = BoundedReader(CONFIG, group_id="app", isolation="read_committed", request_time=look)
    with pytest.raises(KafkaClientError, match="broker unreachable at broker:9092"):
        reader.committed([AT])
    assert client.asked == pytest.approx([1, 1.9])
