"""Decides which of the letters that are read come back, and in which transaction.

Rule: a letter that an earlier replay is done with, as positions and marks say (``replay_records.py``), is
passed by. Of the others, those that fit the selection are done with by this replay: they come back if they
are whole, else they are counted and stay. The rest is left to later replays.

A partition's position moves with the reading as long as nothing is left behind it. From the first letter that
is left the position stays there, and what is done with behind it is marked. So a replay of all letters writes
positions only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.protocol.replay_records import Marks, Replay
from airflow_kstreams.batch.replay.selection import Letter, Selection
from airflow_kstreams.streams.ports import Record, TopicPartition


@dataclass(slots=True, kw_only=True)
class Found:
    """The letters that a replay has read since it last wrote something.

    :param letters: what comes back.
    :param without_origin: letters that belong to no consumed record.
    :param left_out: letters that do not hold their whole record.
    :param unselected: letters that are left to later replays.
    """

    letters: list[Letter] = field(default_factory=list)
    without_origin: int = 0
    left_out: list[Letter] = field(default_factory=list)
    unselected: int = 0

    @property
    def selected(self) -> bool:
        """Whether it is done with any letter."""
        return bool(self.letters or self.left_out or self.without_origin)


class Scan:
    """Decides on the letters that one replay reads.

    :param replay: as it was written last; :attr:`replay` is as it is behind the letters read since.
    :param marks: of letters that are done with; those of this replay are added.
    """

    def __init__(self, replay: Replay, marks: Marks) -> None:
        self.replay = replay
        self._marks = marks
        self._selection = Selection(where=replay.where, limit=replay.limit)
        self._positions = dict(replay.positions)
        self._reached = {partition: replay.reached(partition) for partition in replay.stops}
        self._found = Found()

    @property
    def ripe(self) -> bool:
        """Whether there is something to write: what is only passed by waits for what comes back."""
        return self._found.selected

    def look(
        self, fetched: Mapping[TopicPartition, Sequence[Record]], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Look at what was read, up to the limit.

        :param ends: how far the partitions are read with it.
        """
        for tp, records in fetched.items():
            for record in records:
                if self._full:
                    return
                self._look_at(tp.partition, Letter.of(record))
        for tp, end in ends.items():
            self._move(tp.partition, end, done=True)

    def take(self) -> Found:
        """Move the replay behind all that was looked at, and return what is to be written with it."""
        found, self._found = self._found, Found()
        self._marks.forget_before(self._positions)
        per_topic = Counter(self.replay.records_per_topic)
        per_topic.update(letter.origin.topic for letter in found.letters if letter.origin is not None)
        self.replay = msgspec.structs.replace(
            self.replay,
            positions=dict(self._positions),
            scanned={
                partition: reached
                for partition, reached in self._reached.items()
                if reached > self._positions[partition]
            },
            records_per_topic=dict(sorted(per_topic.items())),
            without_origin=self.replay.without_origin + found.without_origin,
            left_out=self.replay.left_out + len(found.left_out),
            unselected=self.replay.unselected + found.unselected,
        )
        return found

    @property
    def _full(self) -> bool:
        limit = self.replay.limit
        return bool(limit) and self.replay.records + len(self._found.letters) >= limit

    def _look_at(self, partition: int, letter: Letter) -> None:
        offset = letter.record.offset()
        self._move(partition, offset, done=True)
        if self._marks.has(partition, offset):
            self._move(partition, offset + 1, done=True)
        elif not self._selection.fits(letter):
            self._found.unselected += 1
            self._move(partition, offset + 1, done=False)
        else:
            self._sort(letter)
            if self._positions[partition] < offset:
                self._marks.add(partition, offset)
            self._move(partition, offset + 1, done=True)

    def _sort(self, letter: Letter) -> None:
        if letter.whole:
            self._found.letters.append(letter)
        elif letter.origin is None:
            self._found.without_origin += 1
        else:
            self._found.left_out.append(letter)

    def _move(self, partition: int, offset: int, *, done: bool) -> None:
        """Read on to an offset.

        :param done: whether nothing is left to later replays up to there.
        """
        if offset > self._reached[partition]:
            if done and self._positions[partition] == self._reached[partition]:
                self._positions[partition] = offset
            self._reached[partition] = offset


def caught_up(
    replay: Replay, before: Mapping[int, int], log_starts: Mapping[int, int], marks: Marks
) -> Replay:
    """Move a replay to where the last one ended, and past what the log does not hold any more.

    Positions never go back, not even those of partitions that this replay does not know.

    :param before: positions of the replay that was written last, which may be this one.
    :param marks: blocks that the positions pass go.
    """
    positions = dict(before)
    expired = 0
    for partition, stop in replay.stops.items():
        seen = max(before.get(partition, -1), replay.positions.get(partition, -1))
        position = max(seen, min(log_starts.get(partition, 0), stop))
        # Letters that were gone before any replay looked are not missed, nor are those that came back.
        expired += position - seen - marks.count(partition, seen, position) if seen >= 0 else 0
        positions[partition] = position
    marks.forget_before(positions)
    return msgspec.structs.replace(replay, positions=positions, expired=replay.expired + expired)
