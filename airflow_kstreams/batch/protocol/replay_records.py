"""Reads and writes the records of replays of one dead-letter topic: one for each replay in ``<dead-letter
topic>-replays``, and marks of letters that were brought back before others that lie before them.

The topic is compacted, a replay's key is its id, and only replays write it, under the transactional id
``<dead-letter topic>-replay``, in the same transactions as the records they bring back. So a replay that
claims that id and reads the topic to its end knows exactly what was brought back. The group of the same name
gets the same positions, for Kafka's own tools, and as evidence: beside each offset stand the id of the
dead-letter topic and the number of letters that are marked behind it. Where an offset is ahead of the topic,
or tells of more marks, the topic was truncated, deleted or made anew. Then the position is the offset's; it
is lost which letters had marks, and a replay is refused until it is accepted that they come back twice. The
offsets decide nothing else: those that are not renewed expire, and replays may be rare.

A replay that brings back only some letters leaves gaps, which a position cannot tell. Rule: a letter is done
with when it lies before the position of its partition, or is marked; a position moves over letters that are
done with, and takes the marks that it passes with it.

Marks are a bit for each offset in blocks of a fixed number of offsets. A block is one record with a key of
its own, so a transaction writes only the few blocks that it changes. A block is deleted with its last mark.
Invariant: marks and positions are written in the transaction that brings the records back, so a replay that
reads the topic to its end, while no other may write, knows exactly which letters are done with, after any
crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

import msgspec

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_log
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.batch.protocol.topics import others_topic
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.plan import Moment
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    CommittedOffset,
    ReaderPort,
    Record,
    TopicPartition,
)
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
#: Offsets of one block: about 1.4 KB in its record.
BLOCK_OFFSETS = 8_192
#: Prefix of the keys of marks; ids of replays do not begin so.
_KEY = b"__done/"
#: An offset behind every other.
_END = 1 << 63


def replay_owner(dead_letter_topic: str) -> str:
    """Return the transactional id of all replays of a dead-letter topic, and their consumer group."""
    return f"{dead_letter_topic}-replay"


class Replay(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One replay of a dead-letter topic.

    :param replay_id: id of the replay.
    :param dead_letter_topic: topic that holds the letters.
    :param topic_id: id of the dead-letter topic.
    :param begun_ms: time at which its stops were frozen, epoch milliseconds.
    :param finished_ms: time at which it was done, epoch milliseconds; 0 = it is not.
    :param stops: partition number -> stop offset, frozen when the replay began.
    :param positions: partition number -> the offset that all replays have reached: no letter before it is
        brought back any more.
    :param where: field -> text that a letter must have there to be selected; empty for all letters.
    :param limit: largest number of records that it brings back; 0 = no bound.
    :param scanned: partition number -> the offset up to which this replay has read, where it has left letters
        to later ones.
    :param records_per_topic: topic that the records came from -> number of records brought back to it.
    :param without_origin: letters that belong to no consumed record, as those of timers; they stay.
    :param left_out: letters that do not hold their whole record, because it did not fit; they stay.
    :param expired: offsets that were deleted before they were replayed.
    :param unselected: letters that it has seen and left to later replays, because they do not match
        ``where``.
    :param repeated: letters whose records another letter brought back before; they bring nothing back.
    :param late: windowed store, or join of streams -> number of records that came back after all of their
        windows in it had closed.
    :param late_unknown: records that came back of which it is not known whether they are late somewhere.
    """

    replay_id: str
    dead_letter_topic: str
    topic_id: str
    begun_ms: Moment
    finished_ms: Moment = 0
    stops: dict[int, int]
    positions: dict[int, int] = {}
    where: dict[str, str] = {}
    limit: int = 0
    scanned: dict[int, int] = {}
    records_per_topic: dict[str, int] = {}
    without_origin: int = 0
    left_out: int = 0
    expired: int = 0
    unselected: int = 0
    repeated: int = 0
    late: dict[str, int] = {}
    late_unknown: int = 0

    @property
    def records(self) -> int:
        """Records brought back."""
        return sum(self.records_per_topic.values())

    @property
    def at_limit(self) -> bool:
        """Whether it has brought back as many records as ``limit`` allows."""
        return bool(self.limit) and self.records >= self.limit

    def reached(self, partition: int) -> int:
        """Return the offset that this replay has reached in a partition."""
        return max(self.positions[partition], self.scanned.get(partition, 0))

    @property
    def left(self) -> dict[int, tuple[int, int]]:
        """Partition -> (offset to read next, stop offset), where there is something left to read."""
        if self.at_limit:
            return {}
        return {
            partition: (self.reached(partition), stop)
            for partition, stop in self.stops.items()
            if self.reached(partition) < stop
        }


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the topic.

    :param by_id: replay id -> its record.
    :param last: the replay that was written last; the next one starts at its positions.
    :param blocks: marks of letters.
    """

    by_id: dict[str, Replay] = {}
    last: Replay | None = None
    blocks: tuple[MarkBlock, ...] = ()

    def known(
        self,
        topic_id: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        *,
        accept_repeats: bool = False,
    ) -> tuple[dict[int, int], Marks]:
        """Return the positions and marks that the topic and the offsets of the group together give.

        :param committed: committed offsets of the group of replays, read before the topic was.
        :param accept_repeats: whether letters may come back again whose marks are lost.
        :raises ConfigError: marks of letters are lost, and ``accept_repeats`` is not set.
        """
        positions, marks = self.positions(topic_id), self.marks(topic_id)
        for tp, offset in sorted(committed.items()):
            by, _, marked = offset.metadata.partition(" ")
            at = positions.get(tp.partition, 0)
            if by != topic_id or not marked.isdecimal() or at > offset.offset:
                continue
            if at < offset.offset:
                positions[tp.partition] = offset.offset
                log.warning(
                    "%s-replays does not say that letters of %s before offset %d came back, but the offsets "
                    "of the group do: it was truncated, deleted or made anew",
                    tp.topic,
                    tp,
                    offset.offset,
                )
            lost = int(marked) - marks.count(tp.partition, offset.offset, _END)
            if lost > 0 and not accept_repeats:
                raise ConfigError(
                    f"{counted(lost, 'letter')} of {tp} came back from offset {offset.offset} or later, and "
                    f"{tp.topic}-replays does not say any more which: it was truncated, deleted or made anew",
                    fix="look at them (airflow-kstreams dead-letters list), and add --accept-repeats to "
                    "airflow-kstreams dead-letters replay (accept_repeats=True to "
                    "ReplayDeadLettersOperator), once: these letters come back once more",
                )
        return positions, marks

    def positions(self, topic_id: str) -> dict[int, int]:
        """Return the offset that replays have reached in each partition of the dead-letter topic with this
        id.
        """
        return dict(self.last.positions) if self.last is not None and self.last.topic_id == topic_id else {}

    def marks(self, topic_id: str) -> Marks:
        """Return the marks of letters of the dead-letter topic with this id."""
        return Marks(topic_id, self.blocks)


def committed_by_replays(
    cluster: ClusterPort, dead_letter_topic: str, *, admin: AdminPort
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets of the group of replays, without those of a transaction that is open."""
    found = admin.describe_topics([dead_letter_topic])
    group = replay_owner(dead_letter_topic)
    with closing(cluster.reader(group_id=group, isolation="read_uncommitted", small=True)) as reader:
        return reader.committed(described_partitions(found, found))


def offsets_of(replay: Replay, marks: Marks) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that the group of replays commits with a replay's record."""
    return {
        TopicPartition(replay.dead_letter_topic, number): CommittedOffset(
            position, f"{replay.topic_id} {marks.count(number, position, _END)}"
        )
        for number, position in replay.positions.items()
    }


def encode_replay(replay: Replay) -> MetadataRecord:
    """Return a replay's record."""
    topic = ProtocolTopics.replays(replay.dead_letter_topic)
    return MetadataRecord(topic, msgspec.json.encode(replay), replay.replay_id.encode(), None)


def read_replays(
    cluster: ClusterPort,
    dead_letter_topic: str,
    *,
    admin: AdminPort,
    reader: ReaderPort,
    clock: Clock,
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
) -> Replays:
    """Read the records of all replays of a dead-letter topic.

    :param reader: reader of the topic; its earlier assignment is lost.
    :param wait_ms: milliseconds to wait for an open transaction; 0 takes what is visible already.
    :raises KafkaClientError: a record cannot be read, as in :func:`decode_replays`, or a transaction stayed
        open.
    """
    content = read_log(
        cluster,
        ProtocolTopics.replays(dead_letter_topic),
        group_id=replay_owner(dead_letter_topic),
        admin=admin,
        reader=reader,
        wait_ms=wait_ms,
        clock=clock,
    )
    return decode_replays(content.records)


def decode_replays(records: Iterable[Record]) -> Replays:
    """Fold the topic's records.

    :raises ConfigError: no record is a replay's.
    :raises KafkaClientError: another version of this package wrote one.
    """
    by_id: dict[str, Replay] = {}
    blocks: dict[bytes, MarkBlock] = {}
    last: Replay | None = None
    stranger: Record | None = None
    for record in records:
        key, value = record.key() or b"", record.value()
        stranger = stranger or (None if key.startswith(_KEY) else record)
        if value is None:
            blocks.pop(key, None)
            continue
        try:
            if key.startswith(_KEY):
                blocks[key] = read_json(value, MarkBlock)
            else:
                last = by_id[key.decode(errors="replace")] = read_json(value, Replay)
        except UnreadableError as error:
            if last is None:
                break
            raise KafkaClientError(
                f"{record.topic()}-{record.partition()}@{record.offset()} is not a replay's record that this "
                f"version reads: {error}",
                fix="install the airflow_kstreams version that wrote it",
                kafka_code="BAD_REPLAY",
            ) from None
    if last is None and stranger is not None:
        raise others_topic(
            stranger,
            wanted_by="the replay of dead letters",
            fix="name the dead-letter topic otherwise (errors.dead.letter.queue.topic.name), and copy the "
            "letters there, with their headers",
        )
    return Replays(by_id=by_id, last=last, blocks=tuple(blocks.values()))


class MarkBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one block.

    :param topic_id: id of the dead-letter topic.
    :param partition: partition number of the letters.
    :param block: number of the block: its first offset divided by ``BLOCK_OFFSETS``.
    :param bits: one bit for each offset of the block, the first one in the lowest bit of the first byte.
    """

    topic_id: str
    partition: int
    block: int
    bits: bytes


class Marks:
    """The marks of one dead-letter topic, as one replay sees and changes them.

    :param topic_id: id of the dead-letter topic; marks of an earlier topic of the same name are dropped.
    :param blocks: blocks of marks that the topic of replays holds.
    """

    def __init__(self, topic_id: str, blocks: Iterable[MarkBlock] = ()) -> None:
        self._topic_id = topic_id
        self._bits: dict[tuple[int, int], int] = {}
        self._changed: set[tuple[int, int]] = set()
        for block in blocks:
            place = (block.partition, block.block)
            if block.topic_id == topic_id:
                self._bits[place] = int.from_bytes(block.bits, "little")
            else:
                self._changed.add(place)

    def has(self, partition: int, offset: int) -> bool:
        """Return whether a letter is marked."""
        block, bit = divmod(offset, BLOCK_OFFSETS)
        return bool(self._bits.get((partition, block), 0) >> bit & 1)

    def add(self, partition: int, offset: int) -> None:
        """Mark a letter."""
        block, bit = divmod(offset, BLOCK_OFFSETS)
        self._bits[partition, block] = self._bits.get((partition, block), 0) | 1 << bit
        self._changed.add((partition, block))

    def count(self, partition: int, start: int, stop: int) -> int:
        """Return the number of marked letters in ``[start, stop)``."""
        found = 0
        for (of_partition, block), bits in self._bits.items():
            first = block * BLOCK_OFFSETS
            low, high = max(start - first, 0), min(stop - first, BLOCK_OFFSETS)
            if of_partition == partition and low < high:
                found += (bits >> low & (1 << high - low) - 1).bit_count()
        return found

    def forget_before(self, positions: Mapping[int, int]) -> None:
        """Drop the marks before positions, which make them superfluous."""
        for place, bits in [*self._bits.items()]:
            partition, block = place
            passed = positions.get(partition, 0) - block * BLOCK_OFFSETS
            if passed > 0 and bits & (1 << min(passed, BLOCK_OFFSETS)) - 1:
                self._bits[place] = bits >> passed << passed
                self._changed.add(place)
                if not self._bits[place]:
                    del self._bits[place]

    def changes(self, dead_letter_topic: str) -> list[MetadataRecord]:
        """Return records of the blocks that have changed since the last call."""
        topic = ProtocolTopics.replays(dead_letter_topic)
        places = sorted(self._changed)
        self._changed.clear()
        return [MetadataRecord(topic, self._value(*place), self._key(*place), None) for place in places]

    def _value(self, partition: int, block: int) -> bytes | None:
        bits = self._bits.get((partition, block), 0)
        if not bits:
            return None
        content = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return msgspec.json.encode(
            MarkBlock(topic_id=self._topic_id, partition=partition, block=block, bits=content)
        )

    @staticmethod
    def _key(partition: int, block: int) -> bytes:
        return b"%b%d/%d" % (_KEY, partition, block)
