"""Defines windows: the distance in time at which records still belong together.

A window's bounds are epoch milliseconds. *Grace* is the stream time for which a window waits for late
records; later ones are dropped and counted. Stream time is the record time the task has reached, so neither
the duration of a run nor the time between two runs matters.

A run ends where its slice ends, in the middle of windows. ``at_run_end`` decides about windows that are still
open, if results wait for the window to close: ``hold`` keeps them for the next run, so each window gives one
result, once; ``flush`` also emits their current value at the end of each run in which it changed, keeps them
open, and lets later records emit a replacement. Both keep the window's content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.type_variables import K

#: A day, in milliseconds; Kafka Streams waited as long before it asked users to choose.
DEFAULT_GRACE_MS = 86_400_000

RunEnd = Literal["hold", "flush"]


@answers_java_names
class Windowed(NamedTuple, Generic[K]):
    """A key with the window it was folded in.

    :param key: key of the records.
    :param start_ms: first millisecond of the window, epoch milliseconds.
    :param end_ms: epoch milliseconds: the first one after a tumbling or hopping window, the last one of a
        sliding window, or the time of a session's last record.
    """

    key: K
    start_ms: int
    end_ms: int


@answers_java_names
@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """For folds: windows ``[start, start + size_ms]``, both ends included, one for each set of records of a
    key that lie ``size_ms`` or less apart. For joins: an element of the stream meets
    those of the other stream that are up to ``size_ms`` younger.

    :param size_ms: size in milliseconds, 0 or more; 0 joins, or folds, elements of equal time only.
    :param grace_ms: milliseconds of stream time for which a window waits for late records, 0 or more.
    :param at_run_end: decides about open windows in ``suppress``, and about elements of an outer or left join
        that still wait for a partner.
    """

    size_ms: int
    grace_ms: int = DEFAULT_GRACE_MS
    at_run_end: RunEnd = "hold"

    def __post_init__(self) -> None:
        _check(self, size_ms=0, grace_ms=0)


@answers_java_names
@dataclass(frozen=True, slots=True, kw_only=True)
class TumblingWindow:
    """Divides time into windows ``[n * size_ms, (n + 1) * size_ms)`` since the epoch; a record lies in one.

    :param size_ms: size in milliseconds, 1 or more.
    :param grace_ms: milliseconds of stream time for which a window waits for late records, 0 or more.
    :param at_run_end: decides about open windows in ``suppress``.
    """

    size_ms: int
    grace_ms: int = DEFAULT_GRACE_MS
    at_run_end: RunEnd = "hold"

    def __post_init__(self) -> None:
        _check(self, size_ms=1, grace_ms=0)


@answers_java_names
@dataclass(frozen=True, slots=True, kw_only=True)
class HoppingWindow:
    """Windows ``[n * advance_ms, n * advance_ms + size_ms)`` since the epoch; a record lies in several.

    :param size_ms: size in milliseconds, 1 or more.
    :param advance_ms: milliseconds from the start of one window to the next, 1 up to ``size_ms``.
    :param grace_ms: milliseconds of stream time for which a window waits for late records, 0 or more.
    :param at_run_end: decides about open windows in ``suppress``.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = DEFAULT_GRACE_MS
    at_run_end: RunEnd = "hold"

    def __post_init__(self) -> None:
        _check(self, size_ms=1, advance_ms=1, grace_ms=0)
        if self.advance_ms > self.size_ms:
            raise TopologyError(
                f"HoppingWindow at {call_site()} advances by {self.advance_ms} ms, more than its size of "
                f"{self.size_ms} ms: records between two windows would belong to none",
                fix="make advance_ms at most size_ms",
            )


@answers_java_names
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow:
    """Windows of activity: records of a key at most ``gap_ms`` apart lie in one session.

    :param gap_ms: longest time between neighbouring records of a session, in milliseconds, 1 or more.
    :param grace_ms: milliseconds of stream time for which a session waits for late records, 0 or more.
    :param at_run_end: decides about open sessions in ``suppress``.
    """

    gap_ms: int
    grace_ms: int = DEFAULT_GRACE_MS
    at_run_end: RunEnd = "hold"

    def __post_init__(self) -> None:
        _check(self, gap_ms=1, grace_ms=0)


def sliding_retention_ms(window: SlidingWindow) -> int:
    """Return the milliseconds for which a fold by sliding windows needs the content of a window.

    A record may come as late as the end of the window behind it allows. That window, and the one that the
    record ends, begin with windows that start up to twice the size before them.
    """
    return 2 * window.size_ms + window.grace_ms + 2


TimeWindow = TumblingWindow | HoppingWindow

#: The windows by which records are folded.
FoldWindow = TimeWindow | SessionWindow | SlidingWindow


def _check(window: Any, **minima: int) -> None:
    name = type(window).__name__
    for field, minimum in minima.items():
        value = getattr(window, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise TopologyError(
                f"{name} at {call_site()} has {field}={value!r}, expected a whole number from {minimum} on",
                fix="give milliseconds, e.g. 3_600_000 for an hour",
            )
    if window.at_run_end not in ("hold", "flush"):
        raise TopologyError(
            f"{name} at {call_site()} has at_run_end={window.at_run_end!r}",
            fix="choose 'hold' (keep open windows) or 'flush' (emit their current value too)",
        )
