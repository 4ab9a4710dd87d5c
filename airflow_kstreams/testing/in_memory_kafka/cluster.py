"""Implements the port ``ClusterPort`` in memory, with the changes that tests make to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from weakref import WeakSet

from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    GroupMember,
    Headers,
    Isolation,
    ReaderPort,
    TopicLimits,
    TopicPartition,
    TopicSpec,
    WriterPort,
)
from airflow_kstreams.streams.records.topic_limits import writer_limits
from airflow_kstreams.testing.in_memory_kafka.admin import InMemoryAdmin
from airflow_kstreams.testing.in_memory_kafka.broker import Broker, Commit
from airflow_kstreams.testing.in_memory_kafka.clock import ManualClock
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord, PartitionLog
from airflow_kstreams.testing.in_memory_kafka.reader import InMemoryReader
from airflow_kstreams.testing.in_memory_kafka.writer import (
    InMemoryIdempotentWriter,
    InMemoryTransactionalWriter,
)


class InMemoryKafka:
    """A cluster without a broker, for tests of whole runs: logs, transactions, groups, compaction.

    One thread uses it: nothing runs in the background, time passes by the clock alone, and the same calls
    give the same logs. A contract suite runs on it and on a real broker.

    :param clock: gives the time and waits; a ``ManualClock`` unless given.
    :param random: varies behaviour that a real cluster leaves open (fetch sizes, when records leave a
        producer, how long after a decision the transaction's markers arrive); without it everything happens
        at once.
    :param timeout_seconds: bound of every request.

    >>> kafka = InMemoryKafka()
    >>> kafka.create_topic("words", partitions=2)
    >>> writer = kafka.writer(transactional_id="app-0_0")
    >>> writer.init_transactions()
    >>> writer.begin()
    >>> writer.produce("words", b"1", b"kafka")
    >>> writer.flush()
    >>> kafka.values("words")
    []
    >>> writer.commit()
    >>> kafka.values("words")
    [b'1']
    """

    def __init__(
        self, *, clock: Clock | None = None, random: Random | None = None, timeout_seconds: float = 30.0
    ) -> None:
        self.clock: Clock = clock or ManualClock()
        self._timeout_seconds = timeout_seconds
        self._broker = Broker(self.clock, random)
        self._writers: list[InMemoryTransactionalWriter] = []
        self._readers: WeakSet[InMemoryReader] = WeakSet()

    # == the port

    @property
    def crossing(self) -> str:
        """Empty: records cross to no client."""
        return ""

    def reader(
        self,
        *,
        group_id: str,
        isolation: Isolation = "read_committed",
        follows: bool = False,
        small: bool = False,
    ) -> ReaderPort:
        """Make a reader.

        :param group_id: the group whose committed offsets it reads and writes.
        :param isolation: ``read_committed`` or ``read_uncommitted``.
        :param follows: of no effect here, where no broker is asked.
        :param small: of no effect here, where there is no client.
        """
        reader = InMemoryReader(
            self._broker, group_id=group_id, isolation=isolation, timeout_seconds=self._timeout_seconds
        )
        self._readers.add(reader)
        return reader

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make a writer: transactional with a transactional id, idempotent without one.

        :param transactional_id: claimed by ``init_transactions``.
        :param transaction_timeout_ms: time after which the broker aborts a transaction.
        :param limits: limits of each topic that the writer writes.
        :param bulk: makes no difference here: every error names its record.
        """
        del bulk
        if transactional_id is None:
            return InMemoryIdempotentWriter(
                self._broker, limits=writer_limits(limits), timeout_seconds=self._timeout_seconds
            )
        writer = InMemoryTransactionalWriter(
            self._broker,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            limits=writer_limits(limits),
            timeout_seconds=self._timeout_seconds,
        )
        self._writers.append(writer)
        return writer

    def admin(self) -> AdminPort:
        """Make an admin client."""
        return InMemoryAdmin(self._broker)

    # == input and output of tests

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> None:
        """Create a topic, unless it exists.

        :param name: the topic's name.
        :param partitions: number of its partitions.
        :param configs: settings by Kafka's names, dots as underscores: ``cleanup_policy="compact"``.
        """
        dotted = {config.replace("_", "."): value for config, value in configs.items()}
        self._broker.create(TopicSpec(name=name, partitions=partitions, configs=dotted))

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
    ) -> int:
        """Write one record outside any transaction and return its offset.

        :param topic: name of an existing topic.
        :param value: serialized; None for none.
        :param key: serialized; None for none.
        :param partition: -1 lets Java's partitioner decide.
        :param timestamp_ms: epoch milliseconds; 0 for the clock's time.
        :param headers: headers in their order.
        :raises KafkaClientError: there is no such topic or partition.
        """
        self._broker.catch_up()
        if partition < 0 and topic in self._broker.topics:
            partition = self._broker.topics[topic].partition_for(key)
        log = self._broker.log(TopicPartition(topic, partition), "sending")
        return self._broker.append(
            log, (key, value, timestamp_ms or self.clock.now_ms(), headers or None)
        ).position

    def records(self, topic: str, *, isolation: Isolation = "read_committed") -> list[LogRecord]:
        """Return the records that a reader sees of a topic now, by partition and offset.

        :param topic: the topic's name.
        :param isolation: the reader's isolation.
        """
        self._broker.catch_up()
        return [record for log in self._logs(topic) for record in log.read(log.start, 1 << 62, isolation)[0]]

    def values(self, topic: str, *, isolation: Isolation = "read_committed") -> list[bytes | None]:
        """Return the values a reader sees of a topic now, by partition and offset.

        :param topic: the topic's name.
        :param isolation: the reader's isolation.
        """
        return [record.value() for record in self.records(topic, isolation=isolation)]

    def topics(self) -> Sequence[str]:
        """Return the names of all topics, in the order they were created."""
        return list(self._broker.topics)

    def partitions(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of a topic.

        :param topic: the topic's name.
        """
        return [log.at for log in self._logs(topic)]

    def observe(self, observer: Callable[[Commit], None]) -> None:
        """Register a function that is called with every commit, in order.

        :param observer: called with each commit.
        """
        self._broker.observer = observer

    # == changes of clusters

    def join_group(self, group_id: str, client_id: str = "consumer") -> None:
        """Let a consumer that is no reader of this package join a group.

        :param group_id: the group.
        :param client_id: names the consumer.
        """
        members = self._broker.members.setdefault(group_id, [])
        members.append(
            GroupMember(member_id=f"{client_id}-{len(members)}", client_id=client_id, host="/127.0.0.1")
        )

    def leave_group(self, group_id: str) -> None:
        """Let every consumer leave a group.

        :param group_id: the group.
        """
        self._broker.members.pop(group_id, None)

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        """Let the log cleaner run over a topic.

        :param topic: the topic's name.
        :param drop_tombstones: whether tombstones are removed, too, except those that a reader has yet to
            pass, for which ``delete.retention.ms`` leaves time.
        """
        self._broker.catch_up()
        for log in self._logs(topic):
            log.compact(drop_tombstones_below=self._passed_by_readers(log) if drop_tombstones else 0)

    def compacted_topics(self) -> Sequence[str]:
        """Return the topics of which only the last record of each key is kept."""
        return [name for name, topic in self._broker.topics.items() if topic.compacted]

    def expire(self, before: Mapping[TopicPartition, int]) -> None:
        """Let retention delete the records below the given offsets.

        :param before: partition -> offset.
        """
        self.admin().delete_records(before)

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Make a replica the leader that lacks the records from an offset on.

        :param partition: the partition.
        :param end: the end of its log then.
        """
        self._broker.log(partition, "truncating").truncate(end)

    def expire_offsets(self, group_id: str, partitions: Collection[TopicPartition] | None = None) -> None:
        """Let the committed offsets of a group expire.

        :param group_id: the group.
        :param partitions: partitions of the offsets; all unless given.
        """
        self._broker.expire_offsets(group_id, partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions.

        :param topic: the topic's name.
        :param count: number of its partitions then.
        :raises KafkaClientError: there is no such topic, or it has more partitions.
        """
        self._broker.grow(topic, count)

    def configure_broker(self, **configs: str) -> None:
        """Change settings of the broker.

        :param configs: settings by Kafka's names, dots as underscores:
            ``transaction_max_timeout_ms="60000"``.
        """
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        self._broker.configs |= dotted
        limit = dotted.get("transaction.max.timeout.ms")
        if limit is not None:
            self._broker.max_transaction_timeout_ms = int(limit)

    def alter_topic(self, topic: str, **configs: str) -> None:
        """Change settings of a topic.

        :param topic: the topic's name.
        :param configs: settings by Kafka's names, dots as underscores.
        """
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        self._broker.alter(topic, dotted)

    def time_out_transaction(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id and fence its producer, as if its timeout had passed.

        :param transactional_id: the id.
        :return: whether one was open.
        """
        self._broker.catch_up()
        return self._broker.transactions.time_out(transactional_id)

    def restart(self, *, leaderless_ms: int = 0) -> None:
        """Close every connection: each writer may have repeated a request from now on.

        :param leaderless_ms: time in which partitions have no leader: no request finds their ends, and
            transactions that end meanwhile leave no markers, as with brokers that have KAFKA-20734; the next
            marker of the same producer decides.
        """
        self._broker.leaders_ms = self._broker.clock.now_ms() + leaderless_ms
        for writer in self._writers:
            writer.spoil()

    def hanging_transactions(self) -> Sequence[str]:
        """Return the transactional ids with a transaction that is open or not completed yet."""
        self._broker.catch_up()
        return self._broker.transactions.hanging()

    def _passed_by_readers(self, log: PartitionLog) -> int:
        positions = (reader.position(log.at) for reader in self._readers)
        return min((at for at in positions if at is not None), default=log.end("read_uncommitted"))

    def _logs(self, topic: str) -> Sequence[PartitionLog]:
        return self._broker.topics[topic].logs
