"""Plays the steps of a case on one topic of a real broker, by a plain client; no engine code.

A step returns when what it did is settled: written records are acknowledged, markers of ended transactions
lie in the log, and the last stable offset has moved past them as far as open transactions let it. So every
reader of a case finds the same log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.conformance.steps import (
    AddPartitions,
    Arrange,
    Case,
    Close,
    Compact,
    DeleteBefore,
    Item,
    KeepWriting,
    Open,
    Recreate,
    Write,
)

_SECONDS = 30.0
_COMPACTION_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_UNLIMITED = str(2**63 - 1)
KEPT = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.before.max.ms": _UNLIMITED,
    "message.timestamp.after.max.ms": _UNLIMITED,
    "max.message.bytes": str(4_000_000),
}
#: Records an hour apart each begin a segment, and the cleaner takes whatever lies in a closed one.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
#: Above what the client and the broker take by themselves, 1,000,000 and 1,048,588 bytes.
_LARGEST_BYTES = 4_000_000
FIRST_MS = 1_356_998_400_000
HOUR_MS = 3_600_000

#: Of a record in the log: (key, value).
Pair = tuple[bytes | None, bytes | None]


@dataclass(kw_only=True)
class Written:
    """What was written to a topic, by the names that the case gives."""

    #: Committed records by name, in the order in which they were decided.
    committed: dict[str, tuple[int, int]] = field(default_factory=dict)
    _names: dict[Pair, str] = field(default_factory=dict)
    _undecided: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)

    def name_of(self, key: bytes | None, value: bytes | None) -> str:
        """Return what the case calls a record; text that tells it when it is none of the case."""
        return self._names.get((key, value), f"unknown record {key!r}: {(value or b'')[:40]!r}")

    def offset_of(self, name: str) -> tuple[int, int] | None:
        """Return the (partition, offset) of a committed record."""
        return self.committed.get(name)

    def is_undecided(self, name: str) -> bool:
        """Say whether a record belongs to a transaction that is open."""
        return any(name in records for records in self._undecided.values())


@dataclass(kw_only=True)
class Scene(Written):
    """One topic, and what was written to it.

    :param bootstrap: of the broker.
    :param topic: its name; made by :meth:`create`.
    :param case: what will be played.
    """

    bootstrap: str
    topic: str
    case: Case
    _producers: dict[str, Producer] = field(default_factory=dict)
    _writer: threading.Thread | None = None
    _written_up: threading.Event = field(default_factory=threading.Event)
    _hours: int = 0
    _partitions: int = 0

    def __post_init__(self) -> None:
        # It cannot be closed, and outlives the broker: its complaints would stand after pytest's summary.
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def create(self) -> None:
        """Create the topic and wait until it can be written."""
        if self.case.compacted:
            clean_without_pause(self._admin)
        configs = KEPT | (COMPACTED if self.case.compacted else {})
        self._partitions = self.case.partitions
        topic = NewTopic(self.topic, num_partitions=self._partitions, replication_factor=1, config=configs)
        self._admin.create_topics([topic])[self.topic].result(_SECONDS)
        self._until_led()

    def close(self) -> None:
        """End the writer and the producers; open transactions are left to the broker."""
        self.stop_writing()
        self._producers.clear()

    def stable_ends(self) -> dict[int, int]:
        """Return the last stable offset of every partition."""
        return self._ends(IsolationLevel.READ_COMMITTED)

    # == steps

    def play(self, step: Arrange) -> None:
        """Do what a step says."""
        self._play(step)

    @singledispatchmethod
    def _play(self, step: Arrange) -> None:
        raise TypeError(f"no step: {step!r}")

    @_play.register
    def _(self, step: Write) -> None:
        config: dict[str, str | int] = {"compression.type": step.compression}
        config["linger.ms"] = 100 if step.together else 0
        transactional = step.ending != "plain"
        if transactional:
            config["transactional.id"] = f"{self.topic}-writer"
        producer = self._producer(config)
        try:
            if transactional:
                producer.init_transactions(_SECONDS)
            for _ in range(step.times):
                if transactional:
                    producer.begin_transaction()
                written = self._send(producer, step.items, step.partition, together=step.together)
                if transactional:
                    self._end(producer, [step.partition], commit=step.ending == "commit")
                if step.ending != "abort":
                    self.committed |= written
        finally:
            producer.close()

    @_play.register
    def _(self, step: Open) -> None:
        producer = self._producers.get(step.transaction)
        if producer is None:
            # The broker must not decide it while a slow reader is at work.
            producer = self._producers[step.transaction] = self._producer(
                {"transactional.id": self._id(step.transaction), "transaction.timeout.ms": 900_000}
            )
            producer.init_transactions(_SECONDS)
        if step.transaction not in self._undecided:
            producer.begin_transaction()
            self._undecided[step.transaction] = {}
        self._undecided[step.transaction] |= self._send(producer, step.items, step.partition)

    @_play.register
    def _(self, step: Close) -> None:
        records = self._undecided.pop(step.transaction)
        partitions = sorted({partition for partition, _ in records.values()})
        if step.how != "fence":
            self._end(self._producers[step.transaction], partitions, commit=step.how == "commit")
            if step.how == "commit":
                self.committed |= records
            return
        # Dropped, not closed: closing a producer ends its transaction, which a crash does not.
        del self._producers[step.transaction]
        successor = self._producer({"transactional.id": self._id(step.transaction)})
        self._settling(partitions, lambda: successor.init_transactions(_SECONDS))
        self._producers[step.transaction] = successor

    @_play.register
    def _(self, step: Compact) -> None:
        deadline = time.monotonic() + _COMPACTION_SECONDS
        while (found := self._visible()) != set(step.remaining):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.topic}: the cleaner left {sorted(found)}, expected {step.remaining}"
                )
            if step.nudge:
                self.play(Write(items=(Item(name="void", key="void", value="void"),), ending="abort"))
            time.sleep(_PAUSE_SECONDS)

    @_play.register
    def _(self, step: DeleteBefore) -> None:
        before = TopicPartition(self.topic, step.partition, step.offset)
        for future in self._admin.delete_records([before], request_timeout=_SECONDS).values():
            future.result(_SECONDS)

    @_play.register
    def _(self, step: Recreate) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(_SECONDS)
        self._until(lambda: self.topic not in self._admin.list_topics(timeout=_SECONDS).topics, "its end")
        self.committed.clear()
        self.create()

    @_play.register
    def _(self, step: AddPartitions) -> None:
        self._admin.create_partitions([NewPartitions(self.topic, step.total)])[self.topic].result(_SECONDS)
        self._partitions = step.total
        self._until_led()

    @_play.register
    def _(self, step: KeepWriting) -> None:
        self._written_up.clear()

        def write() -> None:
            producer = self._producer({"linger.ms": 0})
            number = 0
            try:
                while not self._written_up.wait(step.every_ms / 1000):
                    name = f"more{number}"
                    self.committed |= self._send(producer, (Item(name=name, key=name, value=name),), 0)
                    number += 1
            finally:
                producer.close()

        self._writer = threading.Thread(target=write)
        self._writer.start()
        before = len(self.committed)
        self._until(lambda: len(self.committed) > before, "the first of many records")

    def stop_writing(self) -> None:
        """End :class:`KeepWriting`."""
        if self._writer is not None:
            self._written_up.set()
            self._writer.join()
            self._writer = None

    # == parts

    def _id(self, transaction: str) -> str:
        return f"{self.topic}-{transaction}"

    def _producer(self, config: Mapping[str, str | int]) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "message.max.bytes": _LARGEST_BYTES, **config})

    def _send(
        self, producer: Producer, items: Sequence[Item], partition: int, *, together: bool = False
    ) -> dict[str, tuple[int, int]]:
        """Write records and wait for the broker; return where each lies."""
        written: dict[str, tuple[int, int]] = {}
        for item in items:
            self._names[item.key_bytes, item.value_bytes] = item.name

            def delivered(error: object, message: object, name: str = item.name) -> None:
                if error is None:
                    written[name] = message.partition(), message.offset()  # type: ignore[attr-defined]

            producer.produce(
                self.topic,
                value=item.value_bytes,
                key=item.key_bytes,
                partition=partition,
                timestamp=self._next_ms(),
                on_delivery=delivered,
            )
            if not together:
                producer.flush(_SECONDS)
        producer.flush(_SECONDS)
        if len(written) != len(items):
            raise TimeoutError(
                f"{self.topic}-{partition}: {len(written)} of {len(items)} records were written"
            )
        return written

    def _next_ms(self) -> int:
        self._hours += 1
        return FIRST_MS + self._hours * HOUR_MS

    def _end(self, producer: Producer, partitions: Sequence[int], *, commit: bool) -> None:
        end = producer.commit_transaction if commit else producer.abort_transaction
        self._settling(partitions, lambda: end(_SECONDS))

    def _settling(self, partitions: Sequence[int], end: Callable[[], object]) -> None:
        """End a transaction and wait until its markers lie in the log, and count."""
        before = self._ends(IsolationLevel.READ_UNCOMMITTED)
        stuck = {partition for records in self._undecided.values() for partition, _ in records.values()}
        end()

        def settled() -> bool:
            stable, high = self.stable_ends(), self._ends(IsolationLevel.READ_UNCOMMITTED)
            return all(
                high[number] > before[number] and (stable[number] == high[number] or number in stuck)
                for number in partitions
            )

        self._until(settled, "the markers")

    def _ends(self, isolation: IsolationLevel) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic, number): latest for number in range(self._partitions)}
        found = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=_SECONDS)
        return {tp.partition: future.result(_SECONDS).offset for tp, future in found.items()}

    def _visible(self) -> set[str]:
        """Return the committed records that lie in the log."""
        starts = dict.fromkeys(range(self._partitions), 0)
        return {
            self.name_of(message.key(), message.value())
            for message in read_to_end(self.bootstrap, self.topic, starts)
        }

    def _until_led(self) -> None:
        def led() -> bool:
            topic = self._admin.list_topics(self.topic, timeout=_SECONDS).topics[self.topic]
            leaders = [partition.leader for partition in topic.partitions.values()]
            if topic.error is not None or len(leaders) != self._partitions or min(leaders) < 0:
                return False
            try:
                self.stable_ends()
            except KafkaException:
                return False  # the controller knows the leader, the broker does not yet know that it is one
            return True

        self._until(led, "its partitions' leaders")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.topic}: waited {_SECONDS:.0f} s in vain for {what}")
            time.sleep(_PAUSE_SECONDS)


def read_to_end(bootstrap: str, topic: str, starts: Mapping[int, int]) -> list[Message]:
    """Read committed records from these offsets to the present end, by a plain client.

    :param starts: offset by partition; where the log starts later, from there.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-look",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    found: list[Message] = []
    try:
        consumer.list_topics(topic, _SECONDS)
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        waiting = len(starts)
        while waiting:
            message = consumer.poll(_SECONDS)
            if message is None:
                raise TimeoutError(f"{topic} cannot be read")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.name() == "_PARTITION_EOF":
                waiting -= 1
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def clean_without_pause(admin: AdminClient) -> None:
    """Let the broker's log cleaner look for work all the time instead of every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    cluster = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([cluster]).values():
        future.result(_SECONDS)
