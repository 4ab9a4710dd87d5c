from __future__ import annotations

import doctest
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.streams import ConfigError, LinearHashPartitioner, partition_of_key
from airflow_kstreams.streams.partitioning import linear_hash_partitioner

pytestmark = pytest.mark.promise("producers-acknowledge-before-they-switch")

_KEYS = [b"%d" % number for number in range(200)]


class Producer:
    """Says how many partitions topics have, and flushes.

    :ivar counts: of the topics that exist.
    :ivar did: what was asked of it, in order.
    :ivar unacknowledged: what a flush leaves.
    :ivar error: raised in place of an answer.
    :ivar on_flush: runs in the midst of one.
    """

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.did: list[tuple[str, float]] = []
        self.unacknowledged = 0
        self.error: Exception | None = None
        self.on_flush: Callable[[], object] = lambda: None

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.did.append(("count", timeout))
        if self.error is not None:
            raise self.error
        # As the client does: a topic that is not there has an entry with an error.
        missing = None if topic in self.counts else "unknown topic"
        entry = SimpleNamespace(partitions=dict.fromkeys(range(self.counts.get(topic, 0))), error=missing)
        return SimpleNamespace(topics={topic: entry})

    def flush(self, timeout: float) -> int:
        self.did.append(("flush", timeout))
        self.on_flush()
        return self.unacknowledged

    @property
    def asked(self) -> list[str]:
        return [what for what, _ in self.did]


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def producer() -> Producer:
    return Producer(flights=10)


@pytest.fixture
def partitioner(producer: Producer, clock: Clock) -> LinearHashPartitioner:
    return LinearHashPartitioner(
        {"flights": 10}, producer, refresh_seconds=60, timeout_seconds=7, monotonic=clock
    )


def places(partitioner: LinearHashPartitioner) -> list[int]:
    return [partitioner.partition("flights", key) for key in _KEYS]


def among(count: int) -> list[int]:
    return [partition_of_key(key, 10, count) for key in _KEYS]


def test_keys_are_placed_by_linear_hashing_when_the_caller_counts() -> None:
    partitioner = LinearHashPartitioner({"flights": 10})
    for count in (10, 13, 20, 41):
        assert [partitioner.partition("flights", key, count) for key in _KEYS] == among(count)


def test_counts_are_asked_for_once_when_the_interval_has_not_passed(
    partitioner: LinearHashPartitioner, producer: Producer, clock: Clock
) -> None:
    assert places(partitioner) == among(10)
    clock.seconds += 59.9
    producer.counts["flights"] = 13
    assert places(partitioner) == among(10)
    assert producer.did == [("count", 7)]


def test_acknowledgements_are_waited_for_before_a_higher_count_is_used(
    partitioner: LinearHashPartitioner, producer: Producer, clock: Clock
) -> None:
    places(partitioner)
    producer.counts["flights"] = 13
    clock.seconds += 60
    during: list[list[int]] = []
    producer.on_flush = lambda: during.append(places(partitioner))  # as delivery callbacks may
    assert places(partitioner) == among(13)
    assert during == [among(10)]
    assert producer.did == [("count", 7), ("count", 7), ("flush", 7)]


def test_nothing_is_flushed_when_the_topic_has_not_grown(
    partitioner: LinearHashPartitioner, producer: Producer, clock: Clock
) -> None:
    for _ in range(3):
        places(partitioner)
        clock.seconds += 60
    assert producer.asked == ["count"] * 3


def test_keys_stay_where_they_were_when_records_are_not_acknowledged(
    partitioner: LinearHashPartitioner,
    producer: Producer,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    places(partitioner)
    producer.counts["flights"], producer.unacknowledged = 13, 4
    clock.seconds += 60
    assert places(partitioner) == among(10)
    assert "4 records not acknowledged after 7 s" in caplog.text
    producer.unacknowledged = 0
    assert places(partitioner) == among(10)  # the next try is due in an interval
    clock.seconds += 60
    assert places(partitioner) == among(13)
    assert producer.asked == ["count", "count", "flush", "count", "flush"]


@pytest.mark.parametrize("broken", ["error", "missing"])
def test_keys_stay_where_they_were_when_the_cluster_does_not_answer(
    broken: str,
    partitioner: LinearHashPartitioner,
    producer: Producer,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    places(partitioner)
    if broken == "error":
        producer.error = OSError("broker is down")
    else:
        producer.counts.clear()
    clock.seconds += 60
    assert places(partitioner) == among(10)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert ("broker is down" if broken == "error" else "unknown topic") in record.getMessage()


def test_keys_stay_where_they_were_when_a_broker_has_not_heard_of_the_growth(
    partitioner: LinearHashPartitioner, producer: Producer, clock: Clock
) -> None:
    producer.counts["flights"] = 13
    assert places(partitioner) == among(13)
    producer.counts["flights"] = 10
    clock.seconds += 60
    assert places(partitioner) == among(13)


def test_the_producers_own_error_is_raised_when_no_count_is_known(
    partitioner: LinearHashPartitioner, producer: Producer
) -> None:
    producer.error = OSError("broker is down")
    with pytest.raises(OSError, match="broker is down"):
        partitioner.partition("flights", b"key")
    producer.error = None
    assert places(partitioner) == among(10)


def test_each_topic_has_its_own_counts_when_there_are_several() -> None:
    partitioner = LinearHashPartitioner({"flights": 10, "airports": 3}, Producer(flights=12, airports=4))
    assert places(partitioner) == among(12)
    found = [partitioner.partition("airports", key) for key in _KEYS]
    assert found == [partition_of_key(key, 3, 4) for key in _KEYS]


def test_threads_wait_when_another_one_switches(
    partitioner: LinearHashPartitioner, producer: Producer, clock: Clock
) -> None:
    places(partitioner)
    producer.counts["flights"] = 13
    clock.seconds += 60
    flushing, acknowledged = threading.Event(), threading.Event()

    def flush() -> None:
        flushing.set()
        assert acknowledged.wait(30)

    producer.on_flush = flush
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(places(partitioner))) for _ in range(4)]
    threads[0].start()
    assert flushing.wait(30)
    assert not partitioner.lock.acquire(blocking=False)
    for thread in threads[1:]:
        thread.start()
    acknowledged.set()
    for thread in threads:
        thread.join(30)
    assert results == [among(13)] * 4
    assert producer.asked == ["count", "count", "flush"]


def test_client_chooses_the_partition_when_a_record_has_no_key(
    partitioner: LinearHashPartitioner, producer: Producer
) -> None:
    assert partitioner.partition("flights", None) == -1
    assert partitioner.partition("flights", None, 13) == -1
    assert not producer.did
    assert partitioner.partition("flights", b"", 13) == partition_of_key(b"", 10, 13)


def test_topic_is_refused_when_its_first_count_is_not_given(partitioner: LinearHashPartitioner) -> None:
    with pytest.raises(ConfigError, match=r"knows 'flights', not 'airports'.*\n.*no partition$"):
        partitioner.partition("airports", None)


@pytest.mark.parametrize("key", ["JFK", bytearray(b"JFK"), 7])
def test_key_is_refused_when_it_is_not_bytes(partitioner: LinearHashPartitioner, key: Any) -> None:
    with pytest.raises(ConfigError, match=f"given a {type(key).__name__} as key of a record for 'flights'"):
        partitioner.partition("flights", key)


def test_count_is_refused_when_the_topic_cannot_have_begun_with_more(
    partitioner: LinearHashPartitioner, producer: Producer
) -> None:
    producer.counts["flights"] = 9
    for count in (None, 9):
        with pytest.raises(ConfigError, match="'flights' has 9 partitions and cannot have begun with 10"):
            partitioner.partition("flights", b"key", count)


def test_topic_is_refused_when_it_does_not_exist(
    partitioner: LinearHashPartitioner, producer: Producer
) -> None:
    producer.counts.clear()
    with pytest.raises(ConfigError, match="'flights' has no partitions: unknown topic"):
        partitioner.partition("flights", b"key")


def test_call_is_refused_when_nothing_counts_partitions() -> None:
    with pytest.raises(ConfigError, match=r"cannot know how many partitions 'flights' has"):
        LinearHashPartitioner({"flights": 10}).partition("flights", b"key")


@pytest.mark.parametrize("initial", [{}, None, ["flights"], {"flights": 0}, {"flights": True}, {7: 3}])
def test_partitioner_is_refused_when_first_counts_are_none(initial: Any) -> None:
    with pytest.raises(ConfigError, match="expected the number of partitions that each topic began with"):
        LinearHashPartitioner(initial)


class Asynchronous(Producer):
    async def flush(self, timeout: float) -> int:  # type: ignore[override]
        return 0


@pytest.mark.parametrize("producer", [object(), SimpleNamespace(list_topics=print), Asynchronous()])
def test_partitioner_is_refused_when_the_producer_cannot_count_and_flush(producer: Any) -> None:
    with pytest.raises(ConfigError, match="has no methods list_topics and flush that wait"):
        LinearHashPartitioner({"flights": 10}, producer)


@pytest.mark.parametrize("times", [{"refresh_seconds": -1}, {"timeout_seconds": 0}])
def test_partitioner_is_refused_when_a_time_cannot_be(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"refresh_seconds=.* and timeout_seconds="):
        LinearHashPartitioner({"flights": 10}, **times)


def test_examples_run_when_a_docstring_has_them() -> None:
    result = doctest.testmod(linear_hash_partitioner)
    assert result.attempted and not result.failed
