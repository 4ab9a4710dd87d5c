"""Plays the cases on the in-memory Kafka: what it makes of markers, aborted records and compaction is held to
the real broker, which passes the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from random import Random

from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import Isolation, TopicPartition, WriterPort
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.conformance.ours import SETTLE_MS, Batches, copy
from tests.conformance.playing import Reading
from tests.conformance.scene import COMPACTED, FIRST_MS, HOUR_MS, KEPT, Written
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
from tests.support.kafka.in_process import Application

#: Records that arrive while a read goes on; there are no threads.
_MORE = 3


@dataclass(kw_only=True)
class MemoryScene(Written):
    """One topic of the in-memory Kafka, with the surface of :class:`~tests.conformance.scene.Scene`.

    :param random: when what ended counts; at once unless given.
    """

    topic: str
    case: Case
    random: Random | None = None
    _writers: dict[str, WriterPort] = field(default_factory=dict)
    _hours: int = 0

    def __post_init__(self) -> None:
        self.clock = ManualClock(now_ms=FIRST_MS)
        self.kafka = InMemoryKafka(clock=self.clock, random=self.random)

    def create(self) -> None:
        """Create the topic."""
        configs = KEPT | (COMPACTED if self.case.compacted else {})
        named = {name.replace(".", "_"): value for name, value in configs.items()}
        self.kafka.create_topic(self.topic, partitions=self.case.partitions, **named)

    def stable_ends(self) -> dict[int, int]:
        """Return the last stable offset of every partition."""
        return self._ends("read_committed")

    def stop_writing(self) -> None:
        """Nothing goes on by itself here."""

    def play(self, step: Arrange) -> None:
        """Do what a step says."""
        self._play(step)

    @singledispatchmethod
    def _play(self, step: Arrange) -> None:
        raise TypeError(f"no step: {step!r}")

    @_play.register
    def _(self, step: Write) -> None:
        transactional = step.ending != "plain"
        writer = self.kafka.writer(transactional_id=f"{self.topic}-writer" if transactional else None)
        writer.init_transactions()
        for _ in range(step.times):
            if transactional:
                writer.begin()
            written = self._send(writer, step.items, step.partition)
            if transactional:
                (writer.commit if step.ending == "commit" else writer.abort)()
                self._settle()
            if step.ending != "abort":
                self.committed |= written
        writer.close()

    @_play.register
    def _(self, step: Open) -> None:
        if step.transaction not in self._writers:
            self._writers[step.transaction] = self._claim(step.transaction)
        writer = self._writers[step.transaction]
        if step.transaction not in self._undecided:
            writer.begin()
            self._undecided[step.transaction] = {}
        self._undecided[step.transaction] |= self._send(writer, step.items, step.partition)

    @_play.register
    def _(self, step: Close) -> None:
        records = self._undecided.pop(step.transaction)
        if step.how == "fence":
            self._writers[step.transaction] = self._claim(step.transaction)
        else:
            writer = self._writers[step.transaction]
            (writer.commit if step.how == "commit" else writer.abort)()
        self._settle()
        if step.how == "commit":
            self.committed |= records

    @_play.register
    def _(self, step: Compact) -> None:
        self.kafka.compact(self.topic, drop_tombstones=True)
        left = {self.name_of(record.key(), record.value()) for record in self.kafka.records(self.topic)}
        assert left == {*step.remaining}, "the cleaner of a broker leaves others"

    @_play.register
    def _(self, step: DeleteBefore) -> None:
        at = TopicPartition(self.topic, step.partition)
        self.kafka.expire({at: self.stable_ends()[step.partition] if step.offset < 0 else step.offset})

    @_play.register
    def _(self, _step: Recreate) -> None:
        self.kafka.admin().delete_topics([self.topic])
        self.committed.clear()
        self.create()

    @_play.register
    def _(self, step: AddPartitions) -> None:
        self.kafka.add_partitions(self.topic, step.total)

    @_play.register
    def _(self, _step: KeepWriting) -> None:
        for number in range(_MORE):
            name = f"more{number}"
            self.play(Write(items=(Item(name=name, key=name, value=name),)))

    def _claim(self, transaction: str) -> WriterPort:
        writer = self.kafka.writer(
            transactional_id=f"{self.topic}-{transaction}", transaction_timeout_ms=900_000
        )
        writer.init_transactions()
        return writer

    def _send(self, writer: WriterPort, items: Sequence[Item], partition: int) -> dict[str, tuple[int, int]]:
        written: dict[str, tuple[int, int]] = {}
        for item in items:
            self._names[item.key_bytes, item.value_bytes] = item.name
            self._hours += 1
            written[item.name] = partition, self._ends("read_uncommitted")[partition]
            timestamp_ms = FIRST_MS + self._hours * HOUR_MS
            writer.produce(self.topic, item.value_bytes, item.key_bytes, partition, timestamp_ms, None)
            writer.flush()
        return written

    def _settle(self) -> None:
        """Let what ended count."""
        self.clock.sleep(1)

    def _ends(self, isolation: Isolation) -> dict[int, int]:
        found = self.kafka.admin().end_offsets(self.kafka.partitions(self.topic), isolation=isolation)
        return {tp.partition: end for tp, end in found.items()}


@dataclass(kw_only=True)
class MemoryBatch(Batches):
    """Such runs in memory."""

    scene: MemoryScene
    target: str
    _given: int = 0

    def read(self, during: Callable[[], None]) -> Reading:
        """Do one run."""
        try:
            slice_ = self.run(during)
        except DataLossError as error:
            return Reading(error=f"DataLossError: {error}")
        self.scene.clock.sleep(1)
        written = self.scene.kafka.records(self.target)
        new, self._given = written[self._given :], len(written)
        committed = self._committed([part.partition for part in slice_.inputs])
        return Reading(records=[(record.key(), record.value()) for record in new], committed=committed)

    def _committed(self, partitions: Sequence[int]) -> Mapping[int, int]:
        reader = self.scene.kafka.reader(group_id=self.application.application_id)
        found = reader.committed([TopicPartition(self.scene.topic, number) for number in partitions])
        return {tp.partition: committed.offset for tp, committed in found.items()}


def incremental_batch(scene: MemoryScene) -> MemoryBatch:
    """Make the reader of a case."""
    target = f"{scene.topic}-out"
    scene.kafka.create_topic(target, message_timestamp_after_max_ms=str(2**63 - 1))
    application = Application(
        on=scene.kafka,
        clock=scene.clock,
        application_id=f"{scene.topic}-app",
        topology=copy(scene.topic, target),
        settings={"settle.ms": SETTLE_MS, "run.stall.timeout.ms": 30_000},
    )
    return MemoryBatch(scene=scene, application=application, target=target)
