"""Schedules repeated calls on a processor, by stream time or by wall clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import ProcessorServices, StreamTimer
from airflow_kstreams.streams.records.timestamp_reading import iso_of

#: Calls for the multiples that stream time jumps over: one for each, or one, for the last.
Jumps = Literal["each", "last"]
#: A jump over more multiples ends the task: calls for each may take days, and nothing could stop them.
MOST_CALLS = 10_000


class Punctuation:
    """A scheduled punctuation; made by ``ProcessorContext.schedule``.

    :param cancel: function that ends the punctuation.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        """End the punctuation; a second call does nothing."""
        self._cancel()


def by_wall_clock(
    context: ProcessorServices, interval_ms: int, punctuate: Callable[[int], None]
) -> Punctuation:
    """Schedule by the time of day."""
    return Punctuation(context.wall_clock().every(interval_ms, _guarded(context, punctuate)))


def _guarded(context: ProcessorServices, punctuate: Callable[[int], None]) -> Callable[[int], None]:
    """Return the user's function with the processing error handler around it."""

    def run(now_ms: int, _nothing: None, _node: str = context.node) -> None:
        punctuate(now_ms)

    guarded = context.guarded(run)
    return lambda now_ms: guarded(now_ms, None)


class StreamTimeTicks:
    """Calls once for each multiple of an interval that stream time reaches, or once for each jump.

    If an earlier run reached a stream time, the first call is for the next multiple; if none did, multiples
    before the first record's time do not count.

    :param where: the processor, for messages.
    """

    def __init__(
        self,
        context: ProcessorServices,
        interval_ms: int,
        punctuate: Callable[[int], None],
        stream_time: Callable[[], int],
        *,
        jumps: Jumps,
        where: str,
    ) -> None:
        self._jumps = jumps
        self._where = where
        self._interval_ms = interval_ms
        self._call = _guarded(context, punctuate)
        self._record_context = context.record_context
        self._timer: StreamTimer | None = context.stream_timer(self._tick, behind=True)
        now_ms = stream_time()
        #: The next multiple; None until the first record brings stream time.
        self._next_ms = None if now_ms < 0 else (now_ms // interval_ms + 1) * interval_ms
        self._timer.set(0 if self._next_ms is None else self._next_ms)

    def cancel(self) -> None:
        """End the calls."""
        if self._timer is not None:
            self._timer.end()
            self._timer = None

    def _tick(self, now_ms: int) -> None:
        """Call for the next multiple, if stream time has reached it, and wait for the one after it."""
        if self._next_ms is None:
            self._next_ms = -(-now_ms // self._interval_ms) * self._interval_ms
        if self._timer is not None:
            self._jump(self._timer.reached_ms())
        due_ms = self._next_ms
        if due_ms <= now_ms:
            self._next_ms += self._interval_ms
            self._record_context.timestamp_ms = due_ms
            self._call(due_ms)
        if self._timer is not None:
            self._timer.set(self._next_ms)

    def _jump(self, to_ms: int) -> None:
        """Set the next call after stream time has come, or is being brought, to ``to_ms``.

        :raises TopologyError: too many calls are due until then.
        """
        if self._next_ms is None or to_ms < self._next_ms:
            return
        passed = (to_ms - self._next_ms) // self._interval_ms
        if self._jumps == "last":
            self._next_ms += passed * self._interval_ms
        elif passed >= MOST_CALLS:
            raise TopologyError(
                f"{self._where} schedules a call every {self._interval_ms} ms, and stream time goes from "
                f"{iso_of(self._next_ms - self._interval_ms)} to {iso_of(to_ms)} at once: {passed + 1:,} "
                f"calls, and more than {MOST_CALLS:,} are not made",
                fix='schedule(..., jumps="last") makes one call of them; a longer interval makes fewer; if '
                "one of the two times is wrong, mend the producer or the timestamp extractor",
            )
