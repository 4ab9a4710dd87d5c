"""Defines the small ports between the engine and Kafka.

``kafka/`` implements them on the real client, ``testing/`` in memory. Records keep the method names of the
Kafka client's own message so that the hot path needs no wrapper object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.permissions import Operation

#: Isolation of a reader: it gets every record, or only those of committed transactions.
Isolation = Literal["read_uncommitted", "read_committed"]

#: Record headers in order, names may repeat.
Headers = list[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """One partition of a topic; orders by (topic, partition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class CommittedOffset(NamedTuple):
    """A committed offset, the next one to read, with its metadata string (at most 4096 bytes)."""

    offset: int
    metadata: str = ""


class Record(Protocol):
    """A consumed record, with the methods of ``confluent_kafka.Message``."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Headers | None: ...
    def leader_epoch(self) -> int | None:
        """Return the leader epoch under which the record was written, None if the broker does not give it."""
        ...


#: Keys or values of records, as Arrow keeps them: a bit for each record that has one, the first in the lowest
#: bit, None if all have one; number of the records that have none; 32-bit numbers that say where each begins
#: in the bytes, and where the last one ends; all of them in a row.
BytesColumn = tuple[bytes | None, int, bytes, bytes]
#: Makes the columns of keys and of values of a list of records. It raises ``TypeError`` if a record has come
#: another way, ``OverflowError`` if they are too large for a column.
ColumnsOf = Callable[[Sequence[Record]], tuple[BytesColumn, BytesColumn]]


class TimedRecords(list[Record]):
    """Fetched records of one partition, with a list of their timestamps beside them.

    :param records: the records, in offset order.
    :param timestamps_ms: timestamp of each, epoch milliseconds.
    :param columns_of: function that makes columns of such records; None if there is none.
    """

    __slots__ = ("columns_of", "timestamps_ms")

    def __init__(
        self, records: Iterable[Record], timestamps_ms: list[int], columns_of: ColumnsOf | None = None
    ) -> None:
        super().__init__(records)
        self.timestamps_ms = timestamps_ms
        self.columns_of = columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """The broker's description of a topic; ``topic_id`` changes when a topic is deleted and created again.

    :param name: name of the topic.
    :param topic_id: Kafka's id of the topic, as text.
    :param partitions: number of its partitions.
    :param replicas: number of replicas of the partition with the fewest.
    """

    name: str
    topic_id: str
    partitions: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create.

    :param name: name of the topic.
    :param partitions: number of its partitions.
    :param replication_factor: number of replicas; -1 for the broker's default.
    :param configs: setting -> value, by Kafka's names.
    """

    name: str
    partitions: int
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a consumer group; readers of this package never join one.

    :param member_id: id from the group's coordinator.
    :param client_id: id from the client.
    :param host: host that it connects from.
    """

    member_id: str
    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.lstrip('/')}"


class TopicConfigs(NamedTuple):
    """Settings of topics, and the reasons for missing ones: the topic does not exist, or this user may not
    see them.
    """

    found: Mapping[str, Mapping[str, str]]
    refused: Mapping[str, KafkaClientError]


class Allowed(NamedTuple):
    """The operations that a user may make, as far as brokers tell the user.

    :param topics: topic -> its operations, none for one that the user may not describe; topics that do not
        exist are absent.
    :param groups: consumer group -> its operations, none for one that the user may not describe; groups that
        do not exist are absent.
    :param cluster: operations on the cluster; None if the user may not see them.
    """

    topics: Mapping[str, frozenset[Operation]]
    groups: Mapping[str, frozenset[Operation]]
    cluster: frozenset[Operation] | None


class TopicLimits(NamedTuple):
    """Limits of the records that a topic takes.

    :param max_bytes: the largest batch that the topic takes.
    :param before_ms: most milliseconds by which a record may be dated before the broker's time.
    :param after_ms: most milliseconds by which a record may be dated after the broker's time.
    """

    max_bytes: int
    before_ms: int = 2**63 - 1
    after_ms: int = 2**63 - 1


class Fetched(NamedTuple):
    """The result of one poll.

    :param records: partition -> its records, in offset order; where their timestamps came beside them, as
        :class:`TimedRecords`.
    :param ends: partition found at its end -> the offset after the last one that this reader can read now;
        under read_committed the last stable offset, past any transaction markers and aborted records before
        it.
    """

    records: Mapping[TopicPartition, Sequence[Record]]
    ends: Mapping[TopicPartition, int]


class ReaderPort(Protocol):
    """Reads assigned partitions from given offsets; never joins a group; never commits by itself."""

    def assign(self, starts: Mapping[TopicPartition, int]) -> None: ...
    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched: ...
    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's stable committed offsets; partitions without one are absent."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit outside any transaction (``at_least_once``), and wait for the broker."""
        ...

    def close(self) -> None: ...


class WriterPort(Protocol):
    """Writes records; with a transactional id, in transactions.

    ``produce(topic, value, key, partition, timestamp_ms, headers)`` is a plain attribute so that the hot path
    binds the client's method itself; partition -1 leaves the choice to Java's partitioner; timestamp None is
    the time of sending, and the client writes 0 as 1. ``flush`` and ``commit`` raise delivery failures.
    """

    @property
    def produce(self) -> Callable[..., None]: ...
    @property
    def suspect(self) -> bool:
        """True if a commit, abort or offset call failed or may have been repeated: never use it again."""
        ...

    def init_transactions(self) -> None: ...
    def begin(self) -> None: ...
    def flush(self) -> None: ...
    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class AdminPort(Protocol):
    """Asks the broker for topics and offsets. The configured client timeout bounds every call."""

    def topic_names(self) -> set[str]:
        """Return the names of all topics that this user may see."""
        ...

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Describe topics; missing ones are absent from the result."""
        ...

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        """Return the effective settings of topics, by Kafka's names, in one request.

        :raises KafkaClientError: the broker did not answer, or could not for now.
        """
        ...

    def broker_configs(self) -> dict[str, str]:
        """Return the effective settings of one broker, by Kafka's names.

        :raises KafkaClientError: among others, this user may not see them.
        """
        ...

    def broker_addresses(self) -> dict[int, tuple[str, int]]:
        """Return where clients find each broker: id -> host and port, as it advertises them on the listener
        that this client uses. A cluster without a network has none.
        """
        ...

    def allowed(self, topics: Collection[str], groups: Collection[str]) -> Allowed | None:
        """Return what this user may do; None if the brokers have no authorizer, so that every user may do
        everything.

        :param topics: the topics to ask for.
        :param groups: the consumer groups to ask for.
        """
        ...

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        """Create topics and wait until they are visible; existing ones are left alone."""
        ...

    def create_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions and wait until they have leaders; a topic that has ``count`` already
        is left alone, as after a request whose answer was lost.

        :param count: number of partitions after the request.
        :raises KafkaClientError: there is no such topic, it has more partitions, or the broker refuses.
        """
        ...

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic, by Kafka's names; its others stay. What asks for them sees the change a
        moment later.

        :raises KafkaClientError: there is no such topic, or the broker refuses a setting.
        """
        ...

    def delete_topics(self, names: Collection[str]) -> None: ...
    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset under read_committed, else the high watermark."""
        ...

    def end_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch at the end of each log, the largest of its records, or -1 if the broker
        does not give it.
        """
        ...

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]: ...
    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset dated at or after a time, epoch milliseconds, whether committed or not; the
        date of a transaction marker is the time it was written. Partitions without such an offset are absent.
        """
        ...

    def group_ids(self) -> set[str]:
        """Return the ids of all consumer groups that this user may see."""
        ...

    def group_members(self, group_id: str) -> tuple[GroupMember, ...]:
        """Return the members of a consumer group; a group that does not exist has none."""
        ...

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None: ...
    def close(self) -> None: ...


class ClusterPort(Protocol):
    """Makes clients of one Kafka cluster."""

    @property
    def crossing(self) -> str:
        """How records cross between Python and the client, for reports; empty where there is no client."""
        ...

    def reader(
        self,
        *,
        group_id: str,
        isolation: Isolation = "read_committed",
        follows: bool = False,
        small: bool = False,
    ) -> ReaderPort:
        """Make a reader.

        :param follows: whether it waits for records that nobody may have written yet: it asks the broker less
            often then, and learns later that a log ends.
        :param small: whether it reads little: then how records cross is not worth a look at the client.
        """
        ...

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make a writer.

        :param transactional_id: id for transactions; None for a writer without transactions.
        :param transaction_timeout_ms: milliseconds after which the broker aborts a transaction.
        :param limits: topic that the writer writes -> its limits: the writer takes the largest record that
            any of them takes, and its batches are small enough for all of them. None for the client's own
            limits.
        :param bulk: whether its transactions hold many records, and another writer makes a failed one again:
            then its error need not name the record that was refused, but that of the second writer does.
        """
        ...

    def admin(self) -> AdminPort: ...


class Clock(Protocol):
    """Wall clock and monotonic clock."""

    def now_ms(self) -> int: ...
    def monotonic_seconds(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


#: Any value that JSON can hold.
Json = Any
