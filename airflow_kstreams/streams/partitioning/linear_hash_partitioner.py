"""Places the keys of producers outside this package, by linear hashing.

Rule: a producer places keys among the partitions that it has counted, and counts more only after everything
that it wrote before is acknowledged. So a key's records in an older partition were written before those in a
newer one, and a job that reads the older one to its end first reads the key's records in order.

Counts only rise: a broker that does not know of a growth yet gives a lower count than another one gave
before. If the count or the acknowledgements do not come, the growth is put off, which is safe: readers look
for the key in the older partition, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.hints.function_checks import is_async
from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION, places_by_memory
from airflow_kstreams.streams.printable import package_log

_LOG = package_log(__name__)


class ProducerClient(Protocol):
    """The calls of a producer that the partitioner makes, those of confluent-kafka's ``Producer``."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return metadata with a mapping ``topics``, whose entry has a sized ``partitions``.

        :param timeout: seconds.
        """
        ...

    def flush(self, timeout: float) -> int:
        """Wait until everything is acknowledged, and return the number of records that are not.

        :param timeout: seconds.
        """
        ...


@dataclass(slots=True)
class _Known:
    """The number of partitions of a topic, and the time from which it is asked for again."""

    count: int
    ask_at_seconds: float


class LinearHashPartitioner:
    """Chooses the partition of a key, so that a topic may gain any number of partitions while jobs with state
    read it.

    Pass its answer to confluent-kafka's ``produce(partition=)``. It asks the producer for a topic's partition
    count, and before it uses new partitions it waits until all that the producer has written is acknowledged,
    so that a key's records stay in order. Until a topic grows, keys lie where Kafka's default partitioner
    puts them, and every producer of a topic must be given the same first count.

    Threads may share it. Threads that share a producer and pass keys to each other hold :attr:`lock` over
    ``partition`` and ``produce``, so that no other thread adopts a new count in between.

    :param initial_partitions: topic -> its partition count when its first producers began.
    :param producer: writes the records and gives partition counts. None: each call gives the count, and the
        caller waits for acknowledgements before a higher one.
    :param refresh_seconds: shortest time between two counts of a topic's partitions. A call that counts waits
        for the cluster's answer.
    :param timeout_seconds: bound of each wait: for an answer, and for acknowledgements.
    :param monotonic: the monotonic clock, in seconds.
    :raises ConfigError: a count, the producer or a time is not usable.
    :ivar lock: reentrant lock, held while a call asks, waits and answers.

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

        :param key: serialized; None for a record without key, which may lie anywhere.
        :param count: the topic's partition count, for callers that count themselves: then the call neither
            asks nor waits.
        :return: the partition; for a record without key -1, by which the client chooses.
        :raises ConfigError: the topic is none of this partitioner's, does not exist, or has fewer partitions
            than at first, its count is not known, or the key is not bytes.
        :raises Exception: the producer's own error, when the first count fails.
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
        """Return the number of partitions to place keys among."""
        producer = self._producer
        if producer is None:
            raise ConfigError(
                f"LinearHashPartitioner cannot know how many partitions {topic!r} has",
                fix="make it with the producer, or give partition(..., count=)",
            )
        known, now_seconds = self._known.get(topic), self._monotonic()
        if known is None:
            found = self._found(producer, topic)
            if found < initial:
                raise _fewer(topic, found, initial)
            known = self._known[topic] = _Known(found, now_seconds + self._refresh_seconds)
        elif now_seconds >= known.ask_at_seconds:
            # Set first: waiting for acknowledgements runs callbacks, which may call this method.
            known.ask_at_seconds = now_seconds + self._refresh_seconds
            self._look_again(producer, topic, known)
        return known.count

    def _look_again(self, producer: ProducerClient, topic: str, known: _Known) -> None:
        """Adopt a higher count, if there is one, once all that was written is acknowledged."""
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
                "topic %s has %s now, but %s not acknowledged after %g s: keys go on to %d until then",
                topic,
                counted(found, "partition"),
                counted(unacknowledged, "record"),
                self._timeout_seconds,
                known.count,
            )
            return
        _LOG.info("topic %s has %s now, %d before", topic, counted(found, "partition"), known.count)
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
        f"topic {topic!r} has {counted(count, 'partition')} and cannot have begun with {initial}",
        fix="give the number that it had when its first producers began; if it was made anew, that of today",
    )
