"""Leaves out the records of a partition that are dated outside an interval, and counts them.

Rule: a record is kept when its own timestamp lies in ``[from, to)``. What is left out never reaches the
buffer, so it moves neither time nor order.

Invariant: the count covers exactly the records left out below the committable offset. Both are committed
together, so a crash neither loses nor doubles what was counted: each kept record carries the number of those
left out right before it, which counts when that record is processed. Those at the end of the buffer count
once nothing is buffered before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from airflow_kstreams.streams.ports import Record


class IntervalFilter:
    """Filters one partition.

    :param interval_ms: from (inclusive) and to (exclusive), epoch milliseconds.
    :ivar skipped: records left out below the committable offset, by this attempt.
    """

    __slots__ = ("_before", "_behind", "_from_ms", "_next_offset", "_to_ms", "skipped")

    def __init__(self, interval_ms: tuple[int, int]) -> None:
        self._from_ms, self._to_ms = interval_ms
        self.skipped = 0
        #: How many were left out right before each record that is buffered.
        self._before: deque[int] = deque()
        #: How many were left out behind the last record that is buffered, and the offset after the last.
        self._behind = 0
        self._next_offset = -1

    def keep(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records to buffer, in order."""
        kept: list[Record] = []
        for record in records:
            if self._from_ms <= record.timestamp()[1] < self._to_ms:
                kept.append(record)
                self._before.append(self._behind)
                self._behind = 0
            else:
                self._behind += 1
        if self._behind and records:
            self._next_offset = records[-1].offset() + 1
        return kept

    def processed(self, count: int) -> None:
        """Take note that the next buffered records were processed."""
        for _ in range(count):
            self.skipped += self._before.popleft()

    def pass_rest(self) -> int:
        """Take note that nothing is buffered, so that what was left out lies behind.

        :return: the offset after it, -1 when nothing was left out at the end.
        """
        passed = self._next_offset if self._behind else -1
        self.skipped += self._behind
        self._behind = 0
        return passed
