"""Shows sensors and triggers a Kafka cluster, with as few requests as possible.

A view is used in rounds. In a round it asks once for the ends of all topics that the last round looked at, in
two requests however many sensors wait, and reads a topic again only if its end has moved. Records of input
topics that an application has not processed are fetched only where offsets alone do not decide, and counted
once, from the offset at which the last round stopped. The content that a round has read is kept for the next;
topics that a whole round did not look at are forgotten, and their clients are closed. So a view costs one
consumer, one admin client, and one consumer more for each application whose progress is followed
(:meth:`ClusterView.group`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.known_applications import has_topics, ids_alike
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, read_metadata
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    ReaderPort,
    TopicDescription,
    TopicPartition,
)
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
#: Group id of the consumer that reads ledgers and counts records. It joins nothing and commits nothing.
WATCHER_GROUP = "airflow-kstreams-waiting"
_MAX_RECORDS = 10_000
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
#: Topic id and last stable offset: the content read from a topic holds as long as both stay.
_Mark = tuple[str, int]


class ClusterView:
    """The port ``View`` of :mod:`airflow_kstreams.batch.inspect.conditions`, on any cluster.

    A context manager; one thread at a time.

    :param cluster: the cluster to look at.
    """

    def __init__(self, cluster: ClusterPort, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._admin: AdminPort | None = None
        self._reader: ReaderPort | None = None
        self._groups: RoundMemory[str, ReaderPort] = RoundMemory()
        #: One description in a tuple; an empty tuple where there is no such topic.
        self._described: RoundMemory[str, tuple[TopicDescription, ...]] = RoundMemory()
        self._ends: RoundMemory[TopicPartition, int] = RoundMemory()
        self._logs: RoundMemory[str, tuple[_Mark, object]] = RoundMemory()
        self._committed: RoundMemory[
            tuple[str, tuple[TopicPartition, ...]], tuple[object, dict[TopicPartition, int]]
        ] = RoundMemory()
        self._counts = NewRecordCounts(self._clock, self._shared_admin, self._shared_reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the clients. What they have read is kept; the next look makes new clients."""
        clients: list[AdminPort | ReaderPort] = [*self._groups.clear().values()]
        clients += [client for client in (self._admin, self._reader) if client is not None]
        self._admin = self._reader = None
        _close_all(clients)

    def refresh(self) -> None:
        """Begin a round: forget the topics that no look of the last round needed, and ask anew for the ends
        of the others.

        What cannot be asked for in one request is asked for when a condition needs it: a topic that cannot be
        read fails only the conditions that look at it.

        :raises KafkaClientError: the cluster does not answer.
        """
        self._counts.next_round()
        for memory in (self._logs, self._committed, self._described, self._ends):
            memory.next_round()
        topics, partitions = tuple(self._described.clear()), self._ends.clear()
        try:
            _close_all(self._groups.next_round().values())
            described = self._shared_admin().describe_topics(topics) if topics else {}
            still = [tp for tp in partitions if tp.topic in described]
            still = [tp for tp in still if tp.partition < described[tp.topic].partitions]
            ends = self._shared_admin().end_offsets(still, isolation="read_committed") if still else {}
        except KafkaClientError as error:
            log.info("topics are looked at one by one after an error: %s", error.cause)
            self.close()
            self.refuse_lost_cluster(*topics[:1])
        else:
            self._described.recall({topic: _one_or_none(described.get(topic)) for topic in topics})
            self._ends.recall(ends)

    def refuse_lost_cluster(self, *topics: str) -> None:
        """Ask the cluster a plain question.

        :param topics: topics to ask about, whether they exist or not.
        :raises KafkaClientError: the cluster does not answer.
        """
        try:
            self._shared_admin().describe_topics(topics)
        except AccessDeniedError as error:
            log.debug("the cluster answers: %s", error.cause)

    def now_ms(self) -> int:
        """Return the wall clock, epoch milliseconds."""
        return self._clock.now_ms()

    def ledger(self, application_id: str) -> Ledger:
        """Return the application's ledger, without records that an open transaction hides."""
        topic = ProtocolTopics(application_id).ledger
        # Single runs are asked for later, when the client of this round may be closed.
        known = self._logs.get(topic)
        before = known[1] if known is not None and isinstance(known[1], Ledger) else None
        read = partial(read_ledger, reading=lambda: nullcontext(self._shared_reader()), before=before)
        return self._log(application_id, topic, read, absent=Ledger())

    def facts(self, application_id: str, *, unless_finished: str = "") -> RunFacts:
        """Join the ledger with the metadata topic, see :class:`RunFacts`.

        :param unless_finished: id of a run; if the ledger has it as finished, the metadata topic is not read.
        """
        ledger = self.ledger(application_id)
        if unless_finished and ledger.is_finished(unless_finished):
            return RunFacts(application_id, ledger, Folded(state=RunState.FINISHED))
        topic = ProtocolTopics(application_id).metadata
        return RunFacts(application_id, ledger, self._log(application_id, topic, read_metadata, absent=None))

    def group(self, application_id: str) -> ReaderPort:
        """Return a reader that gives the offsets committed by the application's group."""
        reader = self._groups.get(application_id)
        if reader is None:
            reader = self._cluster.reader(group_id=application_id)
            self._groups.put(application_id, reader)
        return reader

    def committed(
        self, application_id: str, partitions: Collection[TopicPartition], *, moving: bool
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the application's group committed.

        They are asked for with a reader of their own, which is closed at once: many applications may wait for
        data, and few have moved since the last round.

        :param moving: whether to ask in every round; if not, only when ledger or metadata have moved.
        """
        topics = ProtocolTopics(application_id).protocol
        logs = [self._logs.get(topic) for topic in topics]
        mark = tuple(log and log[0] for log in logs)
        key = (application_id, tuple(partitions))
        kept = self._committed.get(key)
        if kept is None or kept[0] != mark or moving:
            # What an open transaction is about to commit does not count, and is not waited for.
            reader = self._cluster.reader(group_id=application_id, isolation="read_uncommitted")
            with closing(reader):
                found = {tp: at.offset for tp, at in reader.committed(partitions).items()}
            kept = (mark, found)
            self._committed.put(key, kept)
        return kept[1]

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return every partition of topics.

        :raises ConfigError: a topic does not exist.
        """
        described = {topic: self._describe(topic) for topic in topics}
        found = {topic: description for topic, description in described.items() if description is not None}
        missing = [topic for topic in described if topic not in found]
        if missing:
            raise ConfigError(
                f"no such topic: {', '.join(repr(topic) for topic in missing)}",
                fix="create it, or correct its name",
            )
        return described_partitions(found, found)

    def ids_alike(self, application_id: str) -> str | None:
        """Return the known ids that are spelt like an application's, as a question in brackets that may be
        empty; None if the cluster has topics of the application itself. Committed offsets are not asked for.
        """
        # These are described in every round already; all names are asked for only where they are missing.
        if any(map(self._describe, ProtocolTopics(application_id).protocol)):
            return None
        topics = self._shared_admin().topic_names()
        return None if has_topics(application_id, topics) else ids_alike(application_id, topics)

    def offsets_left(
        self, partitions: Collection[TopicPartition], processed: Mapping[TopicPartition, int]
    ) -> int:
        """Return the number of offsets from the processed ones to the last stable ones, which no number of
        new records exceeds: transaction markers, aborted and compacted records take offsets, too.
        """
        return sum(max(0, end - processed.get(tp, 0)) for tp, end in self._ends_of(partitions).items())

    def new_records(
        self,
        application_id: str,
        partitions: Collection[TopicPartition],
        processed: Mapping[TopicPartition, int],
        *,
        at_most: int,
    ) -> NewRecords:
        """Count committed records at or past the processed offsets, or the log starts, up to a number."""
        return self._counts.up_to(
            self._ends_of(partitions),
            application_id=application_id,
            processed=processed,
            at_most=at_most,
        )

    def _log(self, application_id: str, topic: str, read_log: Callable[..., T], *, absent: T | None) -> T:
        """Return the content of a one-partition topic, read again if its end has moved.

        :param read_log: :func:`read_ledger` or :func:`read_metadata`.
        :param absent: value to return if the topic does not exist; None to call ``read_log`` then.
        """

        def read() -> T:
            return read_log(
                self._cluster,
                application_id,
                admin=self._shared_admin(),
                reader=self._shared_reader(),
                wait_ms=0,
                clock=self._clock,
            )

        described = self._describe(topic)
        if described is None:
            return read() if absent is None else absent
        partition = TopicPartition(topic, 0)
        mark = (described.topic_id, self._ends_of([partition])[partition])
        kept = self._logs.get(topic)
        if kept is None or kept[0] != mark:
            # Records that arrive after the mark was taken are read now, and once more next time.
            kept = (mark, read())
            self._logs.put(topic, kept)
        return kept[1]  # type: ignore[return-value]  # what read() gave for this topic

    def _describe(self, topic: str) -> TopicDescription | None:
        kept = self._described.get(topic)
        if kept is None:
            kept = _one_or_none(self._shared_admin().describe_topics([topic]).get(topic))
            self._described.put(topic, kept)
        return kept[0] if kept else None

    def _ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        kept = {tp: end for tp in partitions if (end := self._ends.get(tp)) is not None}
        missing = [tp for tp in partitions if tp not in kept]
        if missing:
            found = self._shared_admin().end_offsets(missing, isolation="read_committed")
            for tp, end in found.items():
                self._ends.put(tp, end)
            kept |= found
        return kept

    def _shared_admin(self) -> AdminPort:
        if self._admin is None:
            self._admin = self._cluster.admin()
        return self._admin

    def _shared_reader(self) -> ReaderPort:
        if self._reader is None:
            self._reader = self._cluster.reader(group_id=WATCHER_GROUP)
        return self._reader


def _one_or_none(found: T | None) -> tuple[T, ...]:
    return () if found is None else (found,)


def _close_all(clients: Iterable[AdminPort | ReaderPort]) -> None:
    """Close clients, the others, too, when one cannot be closed."""
    with ExitStack() as ending:
        for client in clients:
            ending.callback(client.close)


@dataclass(slots=True, kw_only=True)
class _Count:
    """Records of one partition counted so far.

    :param processed: offset up to which runs had processed the partition; counting starts there, or at the
        log's start if that lies behind it.
    :param start: first offset that is counted.
    :param position: offset at which counting goes on.
    :param count: number of records in ``[start, position)``.
    :param oldest_ms: timestamp of the first of these records, epoch milliseconds.
    """

    processed: int
    start: int
    position: int
    count: int = 0
    oldest_ms: int | None = None

    def is_stale(self, processed: int, end: int) -> bool:
        """Whether runs went on, a reset moved the offsets, or the topic was made anew since."""
        return self.processed != processed or self.position > max(end, self.start)


class NewRecords(NamedTuple):
    """Records that no run has processed yet.

    :param total: number of records, counted no further than was asked for.
    :param per_topic: topic -> number of its records.
    :param oldest_ms: smallest timestamp among the first new records of the partitions, epoch milliseconds;
        None without records.
    """

    total: int
    per_topic: Mapping[str, int]
    oldest_ms: int | None


class NewRecordCounts:
    """Counts that go on from round to round, as far as they are asked for.

    :param admin: returns an admin client, where one is needed.
    :param reader: returns a reader, where one is needed; its earlier assignment is lost.
    """

    def __init__(
        self, clock: Clock, admin: Callable[[], AdminPort], reader: Callable[[], ReaderPort]
    ) -> None:
        self._clock, self._admin, self._reader = clock, admin, reader
        self._counts: RoundMemory[tuple[str, TopicPartition], _Count] = RoundMemory()

    def next_round(self) -> None:
        """Forget the counts that were not asked for in the last round."""
        self._counts.next_round()

    def up_to(
        self,
        ends: Mapping[TopicPartition, int],
        *,
        application_id: str,
        processed: Mapping[TopicPartition, int],
        at_most: int,
    ) -> NewRecords:
        """Count committed records from the processed offsets, or the log starts, to the ends, up to a number.

        :param ends: last stable offset of each partition.
        """
        counts = self._counts_from(application_id, processed, ends)
        waiting = {tp for tp, count in counts.items() if count.position < ends[tp]}
        total = sum(count.count for count in counts.values())
        if waiting and total < at_most:
            self._go_on(counts, waiting, ends, at_most - total)
        per_topic: dict[str, int] = {}
        for tp, count in counts.items():
            per_topic[tp.topic] = per_topic.get(tp.topic, 0) + count.count
        oldest = [count.oldest_ms for count in counts.values() if count.oldest_ms is not None]
        return NewRecords(sum(per_topic.values()), per_topic, min(oldest, default=None))

    def _counts_from(
        self,
        application_id: str,
        processed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, _Count]:
        """Return the kept counts of partitions, with new counts in place of stale ones."""
        counts = {tp: self._counts.get((application_id, tp)) for tp in ends}
        kept = {
            tp: count
            for tp, count in counts.items()
            if count is not None and not count.is_stale(processed.get(tp, 0), ends[tp])
        }
        asked = [tp for tp in ends if tp not in kept]
        log_starts = self._admin().start_offsets(asked) if asked else {}
        for tp in asked:
            at = processed.get(tp, 0)
            start = max(at, log_starts[tp])
            kept[tp] = _Count(processed=at, start=start, position=start)
            self._counts.put((application_id, tp), kept[tp])
        return {tp: kept[tp] for tp in ends}

    def _go_on(
        self,
        counts: Mapping[TopicPartition, _Count],
        waiting: Collection[TopicPartition],
        ends: Mapping[TopicPartition, int],
        left: int,
    ) -> None:
        """Go on counting, until the ends or until enough were found."""
        spans = {tp: (counts[tp].position, ends[tp]) for tp in sorted(waiting)}
        most = min(left, _MAX_RECORDS)
        read = BoundedRead(self._reader(), spans, clock=self._clock, max_records=most)
        for fetched in read:
            for tp, records in fetched.items():
                count = counts[tp]
                if count.oldest_ms is None:
                    count.oldest_ms = records[0].timestamp()[1]
                count.count += len(records)
                left -= len(records)
            read.max_records = min(left, _MAX_RECORDS)
            if left <= 0:
                read.stop()
        for tp, position in read.positions.items():
            counts[tp].position = position


class RoundMemory(Generic[K, V]):
    """A mapping that forgets the keys that a whole round did not ask for.

    >>> seen = RoundMemory()
    >>> seen.put("a", 1)
    >>> seen.put("b", 2)
    >>> seen.next_round()
    {}
    >>> seen.get("a")
    1
    >>> seen.next_round()
    {'b': 2}
    >>> seen.get("a"), seen.get("b")
    (1, None)
    """

    def __init__(self) -> None:
        self._asked: dict[K, V] = {}
        self._recalled: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, None without one; it is kept for the next round, too."""
        if key in self._recalled:
            self._asked.setdefault(key, self._recalled.pop(key))
        return self._asked.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep the value of a key that was asked for."""
        self._asked[key] = value

    def recall(self, values: Mapping[K, V]) -> None:
        """Keep values that were not asked for yet in this round."""
        self._recalled |= values

    def next_round(self) -> dict[K, V]:
        """Begin a round.

        :return: the values that the last round did not ask for, which are forgotten.
        """
        forgotten, self._recalled, self._asked = self._recalled, self._asked, {}
        return forgotten

    def clear(self) -> dict[K, V]:
        """Forget everything.

        :return: all values that were remembered.
        """
        forgotten = self._recalled | self._asked
        self._recalled, self._asked = {}, {}
        return forgotten
