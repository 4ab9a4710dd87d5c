"""Marks dead letters that a replay brought back although it left others before them.

A replay that brings back only some letters leaves gaps, which a position cannot tell. Rule: a letter is done
with when it lies before the position of its partition, or is marked; a position moves over letters that are
done with, and takes the marks that it passes with it.

Marks lie in the topic of replays (``replay_records.py``), a bit for each offset in blocks of a fixed number
of offsets. A block is one record with a key of its own, so a transaction writes only the few blocks that it
changes. A block is deleted with its last mark. Invariant: marks and positions are written in the transaction
that brings the records back, so a replay that reads the topic to its end, while no other may write, knows
exactly which letters are done with, after any crash.

A version of this package that knows no marks cannot read them, and stops rather than bring letters back
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.streams.decoders import decode_json
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics

#: Offsets of one block: about 1.4 KB in its record.
BLOCK_OFFSETS = 8_192

#: Ids of replays do not begin so.
_KEY = b"__done/"


class MarkBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one block.

    :param topic_id: of the dead-letter topic.
    :param partition: of the letters.
    :param block: number of the block: its first offset divided by ``BLOCK_OFFSETS``.
    :param bits: a bit for each offset, the first one in the lowest bit of the first byte.
    """

    topic_id: str
    partition: int
    block: int
    bits: bytes


def is_mark(key: bytes) -> bool:
    """Say whether a key of the topic of replays is that of a block."""
    return key.startswith(_KEY)


def block_of(value: bytes) -> MarkBlock:
    """Read a block.

    :raises MsgspecError: it is none.
    """
    return decode_json(value, MarkBlock)


class Marks:
    """The marks of one dead-letter topic, as one replay sees and changes them.

    :param topic_id: of the dead-letter topic; marks of an earlier topic of the same name go.
    :param blocks: as the topic of replays has them.
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
        """Say whether a letter is marked."""
        block, bit = divmod(offset, BLOCK_OFFSETS)
        return bool(self._bits.get((partition, block), 0) >> bit & 1)

    def add(self, partition: int, offset: int) -> None:
        """Mark a letter."""
        block, bit = divmod(offset, BLOCK_OFFSETS)
        self._bits[partition, block] = self._bits.get((partition, block), 0) | 1 << bit
        self._changed.add((partition, block))

    def count(self, partition: int, start: int, stop: int) -> int:
        """Return how many letters are marked from one offset up to, and without, another."""
        found = 0
        for (of_partition, block), bits in self._bits.items():
            first = block * BLOCK_OFFSETS
            low, high = max(start - first, 0), min(stop - first, BLOCK_OFFSETS)
            if of_partition == partition and low < high:
                found += (bits >> low & (1 << high - low) - 1).bit_count()
        return found

    def forget_before(self, positions: Mapping[int, int]) -> None:
        """Drop the marks before positions, which say the same."""
        for place, bits in [*self._bits.items()]:
            partition, block = place
            passed = positions.get(partition, 0) - block * BLOCK_OFFSETS
            if passed > 0 and bits & (1 << min(passed, BLOCK_OFFSETS)) - 1:
                self._bits[place] = bits >> passed << passed
                self._changed.add(place)
                if not self._bits[place]:
                    del self._bits[place]

    def changes(self, dead_letter_topic: str) -> list[MetadataRecord]:
        """Return the records of what has changed since the last call."""
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
