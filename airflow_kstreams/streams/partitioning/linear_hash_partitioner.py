"""Places the keys of producers outside this package, by linear hashing.

Rule: a producer places among as many partitions as it knows of, and knows of more only after everything that
it wrote before is acknowledged. So of one key, what lies in an older partition was written before what lies
in a newer one, and a job that reads the older one to its end first reads the key's records in order.

Counts only rise: a broker that has not heard of a growth yet says less than another one said before. A
growth that cannot be asked for, or not be waited for, is put off, which costs nothing but time: the older
partition is one where readers look for the key, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.hints.function_checks import is_async
from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION, places_by_memory

_LOG = logging.getLogger(__name__)


class ProducerClient(Protocol):
    """What is asked of a producer; confluent-kafka's ``Producer`` has it."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return metadata with a mapping ``topics``, whose entry has a sized ``partitions``.

        :param timeout: seconds.
        """
        ...

    def flush(self, timeout: float) -> int:
        """Wait until everything is acknowledged, and return how many records are not.

        :param timeout: seconds.
        """
        ...


@dataclass(slots=True)
class _Known:
    """How many partitions a topic has, and from which moment on that is asked again."""

    count: int
    ask_at_seconds: float


class LinearHashPartitioner:
    """Says to which partition a producer writes a key, so that a topic may gain any number of partitions
    while jobs with state read it.

    Its answer is for ``produce(partition=)`` of confluent-kafka. It asks the producer how many partitions a
    topic has, and before it uses new ones it waits until all that the producer has written is acknowledged,
    so that a key's records stay in order. Places are those of Kafka's default partitioner until a topic
    grows, and every producer of a topic must be given the same count to begin with.

    Threads may share it. Where threads that share a producer also hand keys to each other, they hold
    :attr:`lock` over ``partition`` and ``produce``, so that none switches in between.

    :param initial_partitions: topic -> how many partitions it had when its first producers began.
    :param producer: writes the records; its partition counts are asked for. None: each call gives the count,
        and who calls waits for acknowledgements before a higher one.
    :param refresh_seconds: a topic's partitions are counted again no sooner than this. A call that does so
        waits for the cluster's answer.
    :param timeout_seconds: bound of each wait: for an answer, and for acknowledgements.
    :param monotonic: gives the time, seconds.
    :raises ConfigError: a count, the producer or a time cannot be.
    :ivar lock: held while it answers, asks and waits; the same thread may take it again.

    >>> from airflow_kstreams.streams import LinearHashPartitioner
    >>> partitioner = LinearHashPartitioner({"flights": 10})
    >>> [partitioner.partition("flights", b"foo", count) for count in (10, 16, 17)]
    [6, 6, 16]
    """

    def __init__(
        self,
        initial_partitions: Mapping[str, int],
        producer: ProducerClient | None = None,
        *,
        refresh_seconds: float = 60.0,
        timeout_seconds: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_initial(initial_partitions)
        _check_producer(producer)
        if refresh_seconds < 0 or timeout_seconds <= 0:
            raise ConfigError(
                f"LinearHashPartitioner is given refresh_seconds={refresh_seconds!r} and "
                f"timeout_seconds={timeout_seconds!r}",
                fix="give seconds: 0 or more between two looks, more than 0 to wait",
            )
        self.lock = threading.RLock()
        self._initial = dict(initial_partitions)
        self._producer = producer
        self._refresh_seconds = refresh_seconds
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._known: dict[str, _Known] = {}
        self._place = places_by_memory()

    def partition(self, topic: str, key: bytes | None, count: int | None = None) -> int:
        """Return the partition that a key belongs to.

        :param key: serialized, as it is written. None, and a record without key may lie anywhere.
        :param count: how many partitions the topic has, for callers that keep count themselves: then nothing
            is asked, and nothing waited for.
        :return: the partition; for a record without key -1, by which the client chooses.
        :raises ConfigError: it is no topic of this partitioner, the key is no bytes, the topic does not
            exist or has fewer partitions than it began with, or nothing says how many it has.
        :raises Exception: the producer's own error, when it cannot say for the first time how many there are.
        """
        initial = self._initial.get(topic)
        if initial is None:
            raise ConfigError(
                f"LinearHashPartitioner knows {', '.join(map(repr, sorted(self._initial)))}, not {topic!r}",
                fix=f"say how many partitions {topic!r} had when its producers began; to leave a topic to "
                "the client, give produce no partition",
            )
        if key is None:
            return ANY_PARTITION
        if not isinstance(key, bytes):
            raise ConfigError(
                f"LinearHashPartitioner is given a {type(key).__name__} as key of a record for {topic!r}, "
                "expected bytes",
                fix="serialize it first, a text by key.encode(), and write these bytes",
            )
        if count is None:
            with self.lock:
                count = self._count(topic, initial)
        elif count < initial:
            raise _fewer(topic, count, initial)
        return self._place(key, initial, count)

    def _count(self, topic: str, initial: int) -> int:
        """Return among how many partitions to place."""
        producer = self._producer
        if producer is None:
            raise ConfigError(
                f"nothing says LinearHashPartitioner how many partitions {topic!r} has",
                fix="make it with the producer, or give partition(..., count=)",
            )
        known, now_seconds = self._known.get(topic), self._monotonic()
        if known is None:
            found = self._found(producer, topic)
            if found < initial:
                raise _fewer(topic, found, initial)
            known = self._known[topic] = _Known(found, now_seconds + self._refresh_seconds)
        elif now_seconds >= known.ask_at_seconds:
            # Before anything else: to wait for acknowledgements runs callbacks, which may come here.
            known.ask_at_seconds = now_seconds + self._refresh_seconds
            self._look_again(producer, topic, known)
        return known.count

    def _look_again(self, producer: ProducerClient, topic: str, known: _Known) -> None:
        """Switch to a higher count, if there is one, once all that was written is acknowledged."""
        try:
            found = self._found(producer, topic)
        except Exception as error:
            _LOG.warning(
                "topic %s: looking for new partitions failed, keys go on to %d: %s", topic, known.count, error
            )
            return
        if found <= known.count:
            return
        unacknowledged = producer.flush(self._timeout_seconds)
        if unacknowledged:
            _LOG.warning(
                "topic %s has %d partitions now, but %d records are not acknowledged after %g s: keys go on "
                "to %d until they are",
                topic,
                found,
                unacknowledged,
                self._timeout_seconds,
                known.count,
            )
            return
        _LOG.info("topic %s has %d partitions now, %d before", topic, found, known.count)
        known.count = found

    def _found(self, producer: ProducerClient, topic: str) -> int:
        metadata = producer.list_topics(topic, self._timeout_seconds).topics.get(topic)
        count = 0 if metadata is None else len(metadata.partitions)
        if count == 0:
            reason = getattr(metadata, "error", None)
            raise ConfigError(
                f"topic {topic!r} has no partitions{f': {reason}' if reason else ''}",
                fix="create the topic, or correct its name",
            )
        return count


def _check_initial(initial_partitions: object) -> None:
    if isinstance(initial_partitions, Mapping) and initial_partitions:
        wrong = [
            topic
            for topic, count in initial_partitions.items()
            if not isinstance(topic, str) or type(count) is not int or count < 1
        ]
        if not wrong:
            return
    raise ConfigError(
        f"LinearHashPartitioner is given {initial_partitions!r}, expected the number of partitions that each "
        "topic began with",
        fix="give whole numbers from 1 on by topic, e.g. {'flights': 10}",
    )


def _check_producer(producer: object) -> None:
    if producer is None:
        return
    methods = [getattr(producer, name, None) for name in ("list_topics", "flush")]
    if not all(callable(method) and not is_async(method) for method in methods):
        raise ConfigError(
            f"LinearHashPartitioner is given a {type(producer).__name__} as producer, which has no methods "
            "list_topics and flush that wait",
            fix="give the confluent_kafka.Producer that writes; with another client, keep count yourself: "
            "partition(..., count=)",
        )


def _fewer(topic: str, count: int, initial: int) -> ConfigError:
    return ConfigError(
        f"topic {topic!r} has {count} partitions and cannot have begun with {initial}",
        fix="give the number that it had when its first producers began; if it was made anew, that of today",
    )
