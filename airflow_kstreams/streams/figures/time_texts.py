"""Writes durations and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

#: Below this number of seconds a part of a second counts.
_SHORT_SECONDS = 10
_UNITS = ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s"))


def duration_text(milliseconds: float) -> str:
    """Return a duration in the two largest units that it has.

    >>> duration_text(420), duration_text(36_200), duration_text(252_000), duration_text(7_500_000)
    ('0.42 s', '36 s', '4 min 12 s', '2 h 5 min')
    >>> duration_text(604_800_000), duration_text(100_000_000)
    ('7 days', '1 day 3 h')
    """
    seconds = max(0.0, milliseconds / 1000)
    if seconds < _SHORT_SECONDS:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for (size, unit), (below, smaller) in pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // below
            return _text(whole // size, unit) + (f" {_text(rest, smaller)}" if rest else "")
    return _text(whole, "s")


def ago_text(now_ms: int, then_ms: int) -> str:
    """Return how long ago something was, in the one unit that suits it.

    >>> ago_text(720_000, 0), ago_text(5_000, 9_000), ago_text(172_800_000, 0)
    ('12 min ago', 'just now', '2 days ago')
    """
    passed = (now_ms - then_ms) // 1_000
    if passed < 1:
        return "just now"
    for size, unit in _UNITS:
        # One hour in minutes says more than "1 h", 90 seconds in minutes do not.
        if passed >= (size if size <= 60 else 2 * size):
            return f"{_text(passed // size, unit)} ago"
    return "just now"


def time_text(epoch_ms: int) -> str:
    """Return a time in UTC; whether its zone follows, or stands above it, is the caller's.

    >>> time_text(1_767_225_600_000)
    '2026-01-01 00:00:00'
    """
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _text(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'s' if unit == 'day' and number != 1 else ''}"
