"""Names what lasts - stores, join stores, repartition topics - where the user gave no name.

Rule: the name says what the thing is: the topics that it is made of, and the kind of operator.

- A stream or table *reads* the topics of its source. What goes through a repartition topic reads what was
  written to it; what goes through a topic of the user's reads that topic.
- What works record by record - filters, mappers, a change of the key, a look into a table - reads what it is
  given. A stream of several, merged, reads all of them, in the order of their names.
- A fold or a join of streams keeps state, so what lies below it reads its result, by the name that it would
  have without one of the user's: ``orders-count``.

Invariant: no place in the file, and no number of nodes, is part of a name. So lines may change their places,
and steps without state come and go, while every store keeps its name, its changelog and so its state.

Two things of one name cannot be told apart by what they are. :class:`StreamGraph` refuses the second one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from airflow_kstreams.streams.topic_patterns import pattern_of
from airflow_kstreams.streams.windows import FoldWindow, SessionWindow, SlidingWindow

#: What a stream or table reads, in the order of a name.
Reads = tuple[str, ...]

#: Characters of a name; the names of topics have an application id before it and an ending behind it.
_LONGEST = 150
_DIGITS = 8
_LEGAL = re.compile(r"[A-Za-z0-9._]+")


def lasting_name(reads: Sequence[str], kind: str = "") -> str:
    """Return the name of what reads these topics.

    :param reads: topics, patterns as they stand among them, and names of results.
    :param kind: of the operator; empty for none.

    >>> lasting_name(("orders",), "count"), lasting_name(("flights", "weather"), "left-join")
    ('orders-count', 'flights-weather-left-join')
    """
    name = "-".join([*map(_part, reads), *([kind] if kind else [])])
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _DIGITS - 1]}-{_digest(name)}"


def reads_together(streams: Iterable[Reads]) -> Reads:
    """Return what a stream reads that is made of others, whichever is named first."""
    return tuple(sorted({topic for reads in streams for topic in reads}))


def fold_kind(fold: str, window: FoldWindow | None) -> str:
    """Return the kind of a fold.

    :param fold: ``count``, ``reduce``, ``aggregate`` or ``cogroup``.
    :param window: by which it folds, None for none.
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
