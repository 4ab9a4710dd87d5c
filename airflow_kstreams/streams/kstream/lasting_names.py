"""Names stores, join stores and repartition topics where the user gave no name.

Rule: the name is made of the topics that the stream or table is made of, and the kind of operator.

- A stream or table *reads* the topics of its source. A stream behind a repartition topic reads the same
  topics as before it; a stream behind a topic of the user's reads that topic.
- The result of an operator that works record by record - a filter, a mapper, a change of the key, a join with
  a table - reads the same topics as its input. A merged stream reads the topics of all its streams, in the
  order of their names.
- A fold or a join of streams keeps state, so what lies below it reads its result, by the name that it would
  have without one of the user's: ``orders-count``.

Invariant: no place in the file, and no number of nodes, is part of a name. So lines may change their places,
and steps without state come and go, while every store keeps its name, its changelog and so its state.

Two stores or topics whose names would be equal cannot be told apart: :class:`StreamGraph` refuses the second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from airflow_kstreams.streams.topic_patterns import pattern_of
from airflow_kstreams.streams.windows import FoldWindow, SessionWindow, SlidingWindow

#: Topics that a stream or table reads, in their order in a name.
Reads = tuple[str, ...]

#: Most characters of a name; a topic's name has an application id before it and an ending behind it.
_LONGEST = 150
_DIGITS = 8
_LEGAL = re.compile(r"[A-Za-z0-9._]+")


def lasting_name(reads: Sequence[str], kind: str = "") -> str:
    """Return the name of a store or topic of a stream or table that reads these topics.

    :param reads: names of topics, placeholders of patterns, and names of results such as ``orders-count``.
    :param kind: kind of the operator, e.g. ``count``; empty for none.

    >>> lasting_name(("orders",), "count"), lasting_name(("flights", "weather"), "left-join")
    ('orders-count', 'flights-weather-left-join')
    """
    name = "-".join([*map(_part, reads), *([kind] if kind else [])])
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _DIGITS - 1]}-{_digest(name)}"


def reads_together(streams: Iterable[Reads]) -> Reads:
    """Return the topics that a stream made of others reads, sorted, so that their order does not matter."""
    return tuple(sorted({topic for reads in streams for topic in reads}))


def fold_kind(fold: str, window: FoldWindow | None) -> str:
    """Return the kind of a fold.

    :param fold: ``count``, ``reduce``, ``aggregate`` or ``cogroup``.
    :param window: windows by which it folds; None for a fold without windows.
    """
    if window is None:
        return fold
    if isinstance(window, SessionWindow):
        return f"session-{fold}"
    return f"sliding-{fold}" if isinstance(window, SlidingWindow) else f"windowed-{fold}"


def _part(topic: str) -> str:
    pattern = pattern_of(topic)
    return topic if pattern is None else "-".join([*_LEGAL.findall(pattern), _digest(pattern)])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
