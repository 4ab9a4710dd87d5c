"""Keeps windows closed that were closed under another grace.

Rule: a window that a commit found closed stays closed, whatever grace a later topology gives it. So more
grace counts for the windows that are open when it is adopted, and for later ones; no window that was emitted
as final is emitted again with fewer records in it. Less grace needs no rule: it closes windows that are still
in the store.

Invariant: beside its offsets a task commits the time for which the windows of each store stay open, and,
while more grace is being adopted, the time up to which they were closed under less. Windows are judged by the
larger one of stream time and of the stream time that would close these windows under the present grace. In a
join, each side's elements are judged so: those that were late stay late, for their partners may be deleted.

Crash argument: both are committed with the offsets and the stream time. An attempt that resumes finds the
present grace there, so the adoption was decided at the first commit under this grace, or is decided again
from the same commit before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from airflow_kstreams.streams.records.record_queue import Closing, PartitionTimes


def closings_in(times: Iterable[PartitionTimes]) -> dict[str, Closing]:
    """Return store name -> its closing, from the times of a task's partitions.

    Every commit writes the same closings to all partitions. If one partition's commit is older, a window that
    any of them closed stays closed.
    """
    found: dict[str, Closing] = {}
    for each in times:
        for store, (open_ms, closed_ms) in each.closings.items():
            known = found.get(store, Closing(open_ms, closed_ms))
            closed = [one for one in (known.closed_ms, closed_ms) if one is not None]
            found[store] = Closing(min(known.open_ms, open_ms), max(closed, default=None))
    return found


class WindowClosings:
    """The windowed stores of a task, with the windows closed under less grace.

    :param before: store name -> its closing in the last commit.
    """

    def __init__(self, before: Mapping[str, Closing]) -> None:
        self._before = before
        self._stores: dict[str, _StoreClosing] = {}

    def time_of(self, store: str, open_ms: int, stream_time: Callable[[], int]) -> Callable[[], int]:
        """Return a function that gives the time by which a store's windows are judged.

        :param store: name of the store.
        :param open_ms: as in :class:`Closing`.
        :param stream_time: function that gives the stream time of the node that keeps the store.
        """
        closing = self._stores[store] = _StoreClosing(self._before.get(store), open_ms, stream_time)
        return closing.time_ms if closing.adopts else stream_time

    def start(self) -> None:
        """Compute the closed windows, after the clocks got the stream time of the last commit."""
        for closing in self._stores.values():
            closing.start()

    def now(self) -> dict[str, Closing]:
        """Return store name -> its closing for the next commit."""
        return {store: closing.now() for store, closing in sorted(self._stores.items())}


class _StoreClosing:
    """One windowed store."""

    __slots__ = ("_before", "_closed_ms", "_least_ms", "_open_ms", "_stream_time", "adopts")

    def __init__(self, before: Closing | None, open_ms: int, stream_time: Callable[[], int]) -> None:
        self._before = before
        self._open_ms = open_ms
        self._stream_time = stream_time
        self._closed_ms: int | None = None
        self._least_ms = -1
        #: True if entries may have been closed that stream time alone would open again.
        self.adopts = before is not None and (before.closed_ms is not None or before.open_ms < open_ms)

    def start(self) -> None:
        before, now_ms = self._before, self._stream_time()
        if before is None or not self.adopts:
            return
        closed = [] if before.closed_ms is None else [before.closed_ms]
        if now_ms >= 0:
            closed.append(now_ms - before.open_ms)
        if closed:
            self._closed_ms = max(closed)
            self._least_ms = self._closed_ms + self._open_ms

    def time_ms(self) -> int:
        return max(self._stream_time(), self._least_ms)

    def now(self) -> Closing:
        passed = self._closed_ms is None or self._stream_time() >= self._least_ms
        return Closing(self._open_ms, None if passed else self._closed_ms)
