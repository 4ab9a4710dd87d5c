"""Keeps the state that clients of an in-memory Kafka share: topics, groups, transactions, due actions.

:class:`TransactionCoordinator` imitates the transaction coordinator: producer ids, epochs, decisions, and
their markers. A decision (commit or abort) is final at once; its markers reach the partitions and groups
later, each at its own time, and until then the last stable offsets do not move. The next transaction of the
same id, and a producer that claims the id, must wait for the markers.

Fencing: claiming an id raises its epoch at once and aborts the older epoch's open transaction; a transaction
that outlives its timeout is aborted and its producer fenced in the same way. Requests of an older epoch are
refused from then on. A request of the *same* epoch is not: it ends or extends the open transaction, because
requests name no transaction. That makes repeated requests dangerous.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import is_legal_topic
from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key
from airflow_kstreams.streams.ports import (
    Clock,
    CommittedOffset,
    GroupMember,
    TopicDescription,
    TopicLimits,
    TopicPartition,
    TopicSpec,
)
from airflow_kstreams.streams.records.topic_limits import BROKER_LIMITS, BROKER_MAX_BYTES
from airflow_kstreams.testing.in_memory_kafka.log import (
    OFFSET_METADATA_MAX,
    Content,
    LogRecord,
    PartitionLog,
    Transaction,
    offsets_bytes,
)


class FencedError(Exception):
    """The request is of an older epoch."""


class ConcurrentError(Exception):
    """The previous transaction's markers are still being written: ask again."""


class InvalidTransactionError(Exception):
    """There is no transaction to end, or it ended the other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The epoch of a claimed transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class _Owner:
    """The coordinator's state of a transactional id."""

    producer_id: int
    epoch: int = -1
    timeout_ms: int = 0
    transaction: Transaction | None = None
    completing: Transaction | None = None
    last_committed: bool | None = None


class TransactionCoordinator:
    """Keeps every transactional id.

    :param broker: the broker that it belongs to; without leaders, decisions leave no marker (KAFKA-20734).
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._owners: dict[str, _Owner] = {}

    def claim(self, transactional_id: str, timeout_ms: int) -> Claim:
        """Claim an id.

        :raises ConcurrentError: the older epoch's transaction is fenced and decided, but not completed yet.
        """
        owner = self._owners.get(transactional_id)
        if owner is None:
            owner = self._owners[transactional_id] = _Owner(producer_id=1000 + len(self._owners))
        if owner.transaction is not None:
            owner.epoch += 1
            self._decide(owner, owner.transaction, committed=False)
        if owner.completing is not None:
            raise ConcurrentError
        owner.epoch += 1
        owner.timeout_ms = timeout_ms
        owner.last_committed = None
        return Claim(transactional_id=transactional_id, producer_id=owner.producer_id, epoch=owner.epoch)

    def add_partition(self, claim: Claim, log: PartitionLog) -> Transaction:
        """Add a partition to the open transaction, beginning one if there is none.

        :raises FencedError: the claim is not the newest.
        :raises ConcurrentError: the previous transaction is not completed yet.
        """
        transaction = self._transaction(claim)
        transaction.logs.setdefault(log.at, log)
        return transaction

    def add_offsets(
        self, claim: Claim, group: str, offsets: dict[TopicPartition, CommittedOffset]
    ) -> Transaction:
        """Add offsets to the open transaction, beginning one if there is none; raises as
        :meth:`add_partition`.
        """
        transaction = self._transaction(claim)
        transaction.offsets.setdefault(group, {}).update(offsets)
        return transaction

    def end(self, claim: Claim, *, committed: bool) -> None:
        """Decide the open transaction; deciding the same way again has no effect.

        :raises FencedError: the claim is not the newest.
        :raises InvalidTransactionError: none is open, and the last one was not decided this way.
        """
        owner = self._current(claim)
        if owner.transaction is None:
            if owner.last_committed != committed:
                raise InvalidTransactionError
            return
        self._decide(owner, owner.transaction, committed=committed)

    def time_out(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id and fence its producer, as the broker does after the timeout.

        :return: whether one was open.
        """
        owner = self._owners.get(transactional_id)
        if owner is None or owner.transaction is None:
            return False
        owner.epoch += 1
        self._decide(owner, owner.transaction, committed=False)
        return True

    def hanging(self) -> list[str]:
        """Return the ids with a transaction that is open or not completed yet."""
        return [name for name, owner in self._owners.items() if owner.transaction or owner.completing]

    def is_pending(self, group: str, partitions: Collection[TopicPartition]) -> bool:
        """Return True if an uncompleted transaction holds the group's offset of one of the partitions."""
        return any(
            not transaction.offsets.get(group, {}).keys().isdisjoint(partitions)
            for owner in self._owners.values()
            for transaction in (owner.transaction, owner.completing)
            if transaction is not None
        )

    def _current(self, claim: Claim) -> _Owner:
        owner = self._owners[claim.transactional_id]
        if owner.epoch != claim.epoch:
            raise FencedError
        return owner

    def _transaction(self, claim: Claim) -> Transaction:
        owner = self._current(claim)
        if owner.transaction is not None:
            return owner.transaction
        if owner.completing is not None:
            raise ConcurrentError
        begun = owner.transaction = Transaction(
            transactional_id=claim.transactional_id, producer_id=claim.producer_id, epoch=claim.epoch
        )
        self._broker.later(max(1, owner.timeout_ms), lambda: self._expire(owner, begun))
        return begun

    def _expire(self, owner: _Owner, transaction: Transaction) -> None:
        if owner.transaction is transaction:
            owner.epoch += 1
            self._decide(owner, transaction, committed=False)

    def _decide(self, owner: _Owner, transaction: Transaction, *, committed: bool) -> None:
        transaction.committed = committed
        if not self._broker.led():
            transaction.logs, transaction.offsets = {}, {}
        owner.transaction, owner.completing = None, transaction
        owner.last_committed = committed
        transaction.unmarked = len(transaction.logs) + len(transaction.offsets)
        self._broker.decided(transaction)
        if not transaction.unmarked:
            owner.completing = None

        def mark(place: PartitionLog | str) -> None:
            if isinstance(place, PartitionLog):
                place.mark(transaction, self._broker.clock.now_ms())
            elif committed:
                self._broker.group(place).update(transaction.offsets[place])
            transaction.unmarked -= 1
            if not transaction.unmarked:
                owner.completing = None

        places: list[PartitionLog | str] = [*transaction.logs.values(), *transaction.offsets]
        for place in places:
            self._broker.later(self._broker.marker_lag_ms(), partial(mark, place))


#: Pause of a client before it asks again.
_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Records and offsets that became final: by a committed transaction, or written outside any.

    :param transactional_id: id of the transaction's writer; None outside any.
    :param records: the records in the order they were written.
    :param offsets: committed offsets by group.
    """

    at_ms: int
    transactional_id: str | None
    records: tuple[LogRecord, ...]
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(slots=True, kw_only=True)
class Topic:
    """A topic with its logs."""

    spec: TopicSpec
    topic_id: str
    logs: list[PartitionLog]
    keyless: int = 0

    @property
    def compacted(self) -> bool:
        """True if only the last record of each key is kept."""
        return "compact" in self.spec.configs.get("cleanup.policy", "")

    def partition_for(self, key: bytes | None) -> int:
        """Return the partition of a serialized key, by Java's default partitioner."""
        if key is not None:
            return partition_of_key(key, len(self.logs), len(self.logs))
        self.keyless += 1
        return self.keyless % len(self.logs)


_TIMESTAMP_TYPE = "message.timestamp.type"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
#: Settings of topics that the engine and its tests ask for.
_TOPIC_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.message.bytes": str(BROKER_MAX_BYTES),
    _AFTER: str(BROKER_LIMITS.after_ms),
    _BEFORE: str(BROKER_LIMITS.before_ms),
    _TIMESTAMP_TYPE: "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
#: Defaults of a topic's settings: the topic's name -> the broker's name.
_INHERITED: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "max.message.bytes": "message.max.bytes",
    _TIMESTAMP_TYPE: "log.message.timestamp.type",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
}


def missing(what: str, place: str | TopicPartition) -> KafkaClientError:
    """Describe a request for a topic or partition that does not exist.

    :param what: the request.
    """
    return KafkaClientError(
        f"{what}: no such topic or partition: {place}",
        fix="create the topic, or correct its name",
        kafka_code="UNKNOWN_TOPIC_OR_PART",
    )


class Broker:
    """The broker of an in-memory Kafka.

    :param clock: gives the time and waits.
    :param random: varies behaviour that a real cluster leaves open; None for the plainest behaviour.
    """

    def __init__(self, clock: Clock, random: Random | None) -> None:
        self.clock = clock
        self.random = random
        self.topics: dict[str, Topic] = {}
        self.observer: Callable[[Commit], None] | None = None
        self.max_transaction_timeout_ms = 900_000
        self.configs: dict[str, str] = {}
        self.leaders_ms = 0
        self.members: dict[str, list[GroupMember]] = {}
        self._ids = itertools.count(1)
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self.transactions = TransactionCoordinator(self)

    def led(self) -> bool:
        """Return True if partitions have leaders."""
        return self.clock.now_ms() >= self.leaders_ms

    # == time

    def later(self, milliseconds: int, action: Callable[[], None]) -> None:
        """Run an action after a time, at once for 0."""
        if milliseconds <= 0:
            action()
        else:
            heapq.heappush(self._due, (self.clock.now_ms() + milliseconds, next(self._ids), action))

    def catch_up(self) -> None:
        """Run the actions that are due; every request begins with this."""
        due = self._due
        if due:
            now_ms = self.clock.now_ms()
            while due and due[0][0] <= now_ms:
                heapq.heappop(due)[2]()

    def pause(self, seconds: float) -> None:
        """Wait, at most until the next action is due."""
        if self._due:
            next_seconds = (self._due[0][0] - self.clock.now_ms()) / 1000
            seconds = min(seconds, max(next_seconds, 0.001))
        self.clock.sleep(seconds)
        self.catch_up()

    def until(self, ready: Callable[[], bool], what: str, *, timeout_seconds: float) -> None:
        """Wait until a condition holds, as a client does that must ask again.

        :raises KafkaClientError: the time is over.
        """
        self.catch_up()
        deadline = self.clock.monotonic_seconds() + timeout_seconds
        while not ready():
            if self.clock.monotonic_seconds() >= deadline:
                raise KafkaClientError(
                    f"in-memory broker: {what}: no answer in {timeout_seconds:g} s",
                    fix="look for the transaction that stays open",
                    kafka_code="_TIMED_OUT",
                    retriable_code=True,
                )
            self.pause(_RETRY_SECONDS)

    # == topics

    def create(self, spec: TopicSpec) -> Topic:
        """Create a topic unless it exists.

        :raises KafkaClientError: a topic cannot have its name, or no partition.
        """
        found = self.topics.get(spec.name)
        if found is None:
            self._refuse(spec)
            logs = [PartitionLog(TopicPartition(spec.name, number)) for number in range(spec.partitions)]
            found = self.topics[spec.name] = Topic(
                spec=spec, topic_id=f"in-memory-{next(self._ids)}", logs=logs
            )
        return found

    def _refuse(self, spec: TopicSpec) -> None:
        what = f"creating topic {spec.name}"
        if not is_legal_topic(spec.name):
            raise KafkaClientError(
                f"{what}: Topic name is invalid: {spec.name!r}", kafka_code="TOPIC_EXCEPTION"
            )
        # Kafka's metrics have one name for both.
        like = spec.name.replace(".", "_")
        other = next((name for name in self.topics if name.replace(".", "_") == like), None)
        if other is not None:
            raise KafkaClientError(
                f"{what}: Topic '{spec.name}' collides with existing topic: {other}",
                kafka_code="TOPIC_EXCEPTION",
            )
        if spec.partitions < 1:
            raise KafkaClientError(
                f"{what}: {counted(spec.partitions, 'partition')}", kafka_code="INVALID_PARTITIONS"
            )

    def grow(self, name: str, count: int) -> None:
        """Give a topic more partitions.

        :raises KafkaClientError: the topic does not exist, or has more.
        """
        what, topic = f"giving topic {name} {counted(count, 'partition')}", self.topics.get(name)
        if topic is None:
            raise missing(what, name)
        if count < len(topic.logs):
            raise KafkaClientError(
                f"{what}: it has {len(topic.logs)}, and a topic never loses any",
                fix=f"ask for {len(topic.logs)} or more",
                kafka_code="INVALID_PARTITIONS",
            )
        topic.logs += [PartitionLog(TopicPartition(name, n)) for n in range(len(topic.logs), count)]

    def alter(self, name: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        topic = self.topics[name]
        topic.spec = replace(topic.spec, configs={**topic.spec.configs, **configs})

    def configs_of(self, topic: Topic) -> dict[str, str]:
        """Return the settings of a topic that are in force."""
        inherited = {name: self.configs[of] for name, of in _INHERITED.items() if of in self.configs}
        return {**_TOPIC_DEFAULTS, **inherited, **topic.spec.configs}

    def limits(self, topic: Topic) -> TopicLimits:
        """Return what a topic takes: batches of which size, and records of which times."""
        given = topic.spec.configs
        max_bytes = given.get("max.message.bytes") or self.configs.get("message.max.bytes")
        if self.brokers_date(topic):
            return TopicLimits(int(max_bytes or BROKER_MAX_BYTES))
        return TopicLimits(
            int(max_bytes or BROKER_MAX_BYTES),
            int(given.get(_BEFORE, BROKER_LIMITS.before_ms)),
            int(given.get(_AFTER, BROKER_LIMITS.after_ms)),
        )

    def brokers_date(self, topic: Topic) -> bool:
        """Return True if the broker dates a topic's records by its own clock."""
        default = self.configs.get(_INHERITED[_TIMESTAMP_TYPE])
        return topic.spec.configs.get(_TIMESTAMP_TYPE, default) == "LogAppendTime"

    def offsets_refusal(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> str | None:
        """Return the error code of the group coordinator for offsets, None if it takes them."""
        if any(not self.has(partition) for partition in offsets):
            return "UNKNOWN_TOPIC_OR_PART"
        limit = int(self.configs.get("offset.metadata.max.bytes", OFFSET_METADATA_MAX))
        if any(len(committed.metadata) >= limit for committed in offsets.values()):
            return "OFFSET_METADATA_TOO_LARGE"
        # The protocol has no code of its own for a batch that its topic does not take.
        largest = int(self.configs.get("message.max.bytes", BROKER_MAX_BYTES))
        return "UNKNOWN" if offsets_bytes(group, offsets) > largest else None

    def delete(self, name: str) -> None:
        """Delete a topic, if it exists, and the offsets that groups have committed of it."""
        if self.topics.pop(name, None) is not None:
            for group in self._groups.values():
                for partition in [tp for tp in group if tp.topic == name]:
                    del group[partition]

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Describe the topics that exist."""
        return {
            name: TopicDescription(
                name=name,
                topic_id=topic.topic_id,
                partitions=len(topic.logs),
                replicas=max(1, topic.spec.replication_factor),
            )
            for name in sorted(set(names))
            if (topic := self.topics.get(name)) is not None
        }

    def has(self, partition: TopicPartition) -> bool:
        """Return True if a partition exists."""
        topic = self.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.logs)

    def log(self, partition: TopicPartition, what: str) -> PartitionLog:
        """Return a partition's log.

        :raises KafkaClientError: the partition does not exist.
        """
        if not self.has(partition):
            raise missing(what, partition)
        return self.topics[partition.topic].logs[partition.partition]

    def dated(self, log: PartitionLog, content: Content) -> Content:
        """Return a record's content with the broker's date: by its own clock under LogAppendTime."""
        if not self.brokers_date(self.topics[log.at.topic]):
            return content
        key, value, _, headers = content
        return key, value, self.clock.now_ms(), headers

    def append(self, log: PartitionLog, content: Content) -> LogRecord:
        """Append a record outside any transaction."""
        record = log.append(self.dated(log, content))
        self._observe([record], {})
        return record

    # == groups

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets, without those of transactions that are not completed."""
        known = self.group(group)
        return {partition: known[partition] for partition in partitions if partition in known}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets outside any transaction.

        :raises KafkaClientError: they are too large, negative, or of a partition that does not exist.
        """
        what = f"committing offsets of {group}"
        for partition, committed in offsets.items():
            if not self.has(partition):
                raise missing(what, partition)
            if committed.offset < 0:
                raise KafkaClientError(f"{what}: {committed.offset} is no offset", kafka_code="_NO_OFFSET")
        refusal = self.offsets_refusal(group, offsets)
        if refusal is not None:
            raise KafkaClientError(
                f"{what}: {refusal}", fix="commit fewer, or less with them", kafka_code=refusal
            )
        self.group(group).update(offsets)
        self._observe([], {group: offsets})

    def expire_offsets(self, group: str, partitions: Iterable[TopicPartition] | None) -> None:
        """Forget a group's committed offsets; None for all partitions."""
        known = self.group(group)
        for partition in list(known if partitions is None else partitions):
            known.pop(partition, None)

    def group_ids(self) -> set[str]:
        """Return the groups with committed offsets or members."""
        return {group for held in (self._groups, self.members) for group, content in held.items() if content}

    def group(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, which may have none yet."""
        return self._groups.setdefault(group, {})

    def decided(self, transaction: Transaction) -> None:
        """Take the decision of a transaction, before its markers are written."""
        if transaction.committed:
            self._observe(transaction.records, transaction.offsets, transaction.transactional_id)

    def marker_lag_ms(self) -> int:
        """Draw the delay of a transaction's marker."""
        return 0 if self.random is None else self.random.choice((0, 0, 1, 4, 25))

    def _observe(
        self,
        records: Sequence[LogRecord],
        offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
        transactional_id: str | None = None,
    ) -> None:
        if self.observer is not None:
            self.observer(
                Commit(
                    at_ms=self.clock.now_ms(),
                    transactional_id=transactional_id,
                    records=tuple(records),
                    offsets={group: dict(found) for group, found in offsets.items()},
                )
            )
