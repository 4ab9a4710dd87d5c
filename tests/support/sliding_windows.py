"""What sliding windows hold, worked out anew: the oracles of ``SlidingWindow`` folds.

``held_by_definition`` says which windows there are when none is ever closed, from the definition alone.
``SlidingWindowsOfJava`` follows the steps of Kafka Streams' ``processInOrder`` and ``processEarly`` record by
record, over windows that it never forgets.
"""

from __future__ import annotations

from collections.abc import Iterable

#: (key, timestamp, value).
Arrival = tuple[str, int, int]
#: Windows of all keys -> the values in them.
Held = dict[tuple[str, int], list[int]]


def held_by_definition(arrivals: Iterable[Arrival], size_ms: int) -> Held:
    """Return what each window holds, sorted: one ends with each record, and one begins behind each record
    behind which another one lies near enough.
    """
    arrivals = list(arrivals)
    held: Held = {}
    for key, time_ms, _ in arrivals:
        for start_ms in (max(0, time_ms - size_ms), time_ms + 1):
            inside = sorted(v for k, t, v in arrivals if k == key and start_ms <= t <= start_ms + size_ms)
            if inside:
                held[key, start_ms] = inside
    return held


class SlidingWindowsOfJava:
    """Windows as Kafka Streams keeps them, with lists of values for aggregates."""

    def __init__(self, size_ms: int, grace_ms: int) -> None:
        self.size_ms, self.grace_ms = size_ms, grace_ms
        self.stream_time_ms = -1
        #: (key, start) -> (values, largest time).
        self.windows: dict[tuple[str, int], tuple[list[int], int]] = {}
        self._updates: list[tuple[str, int, list[int], int]] = []

    def arrive(
        self, key: str, time_ms: int, value: int, *, now_ms: int | None = None
    ) -> list[tuple[str, int, list[int], int]]:
        """Take a record and return (key, start, values, time) of each window that changed.

        :param now_ms: stream time with the record; None for the largest time of any record.
        """
        self._updates = []
        self.stream_time_ms = max(self.stream_time_ms, time_ms) if now_ms is None else now_ms
        if time_ms + self.size_ms < self.stream_time_ms - self.grace_ms:
            return []
        if time_ms < self.size_ms:
            self._early(key, time_ms, value)
        else:
            self._usual(key, time_ms, value)
        return self._updates

    def _usual(self, key: str, time_ms: int, value: int) -> None:
        size_ms = self.size_ms
        left = right = previous_ms = None
        left_there = right_there = False
        near = self._near(key, max(0, time_ms - 2 * size_ms), time_ms + 1)
        for start_ms, (values, newest_ms) in near:
            end_ms = start_ms + size_ms
            if end_ms < time_ms:
                left, previous_ms = values, newest_ms
            elif end_ms == time_ms:
                left_there = True
                if newest_ms < time_ms:
                    previous_ms = newest_ms
                self._update(key, start_ms, time_ms, value, (values, newest_ms))
            elif start_ms <= time_ms:
                right = (values, newest_ms)
                self._update(key, start_ms, time_ms, value, (values, newest_ms))
            else:
                right_there = True
        starts = {start_ms for start_ms, _ in near}
        if previous_ms is not None and previous_ms + 1 not in starts and previous_ms + 1 + size_ms >= time_ms:
            self._update(key, previous_ms + 1, time_ms, value, ([], time_ms))
        if not left_there:
            not_empty = previous_ms is not None and time_ms - size_ms <= previous_ms
            before = left if not_empty and left is not None else []
            self._update(key, time_ms - size_ms, time_ms, value, (before, time_ms))
        if not right_there and right is not None and right[1] > time_ms:
            self._copy(key, time_ms + 1, right)

    def _early(self, key: str, time_ms: int, value: int) -> None:
        combined = right = previous_ms = None
        right_there = False
        near = self._near(key, 0, time_ms + 1)
        for start_ms, window in near:
            if start_ms == 0:
                combined = window
                if window[1] < time_ms:
                    previous_ms = window[1]
            elif start_ms <= time_ms:
                right = window
                self._update(key, start_ms, time_ms, value, window)
            else:
                right_there = True
        if right is None and combined is not None and combined[1] > time_ms:
            right = combined
        if not right_there and right is not None and right[1] > time_ms:
            self._copy(key, time_ms + 1, right)
        starts = {start_ms for start_ms, _ in near}
        if previous_ms is not None and previous_ms + 1 not in starts:
            self._update(key, previous_ms + 1, time_ms, value, ([], time_ms))
        self._update(key, 0, time_ms, value, combined or ([], time_ms))

    def _near(self, key: str, from_ms: int, to_ms: int) -> list[tuple[int, tuple[list[int], int]]]:
        found = [(start, window) for (k, start), window in self.windows.items() if k == key]
        return sorted((start, window) for start, window in found if from_ms <= start <= to_ms)

    def _update(self, key: str, start_ms: int, time_ms: int, value: int, old: tuple[list[int], int]) -> None:
        if start_ms + self.size_ms >= self.stream_time_ms - self.grace_ms:
            window = ([*old[0], value], max(time_ms, old[1]))
            self.windows[key, start_ms] = window
            self._updates.append((key, start_ms, *window))

    def _copy(self, key: str, start_ms: int, window: tuple[list[int], int]) -> None:
        self.windows[key, start_ms] = window
        self._updates.append((key, start_ms, *window))
