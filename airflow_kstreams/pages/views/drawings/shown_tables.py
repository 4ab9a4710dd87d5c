"""Puts links, marks and bars beside the rows of a table: it holds the same figures as the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.pages.views.state_marks import StateMark
from airflow_kstreams.pages.views.troubles import PageLink

#: Width of a bar's drawing; its parts are placed in it.
BAR_WIDTH = 100.0

#: Columns of times whose names do not end with their zone.
_TIMES = ("took", "earliest", "latest", "time")

PartKind = Literal["done", "left", "waiting", "lost"]


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar; each kind has a height of its own, so that a reader tells them apart without colours.

    :param kind: its kind.
    :param begin: where it begins, of ``BAR_WIDTH``.
    :param length: its length, of ``BAR_WIDTH``.
    """

    kind: PartKind
    begin: float
    length: float


Bar = Sequence[BarPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table on a page.

    :param name: unique on the page: a word of letters, digits and dashes.
    :param table: its texts.
    :param links: of each row, where its first column leads; none if empty.
    :param marks: of each row, the mark in its column ``state``; none if empty.
    :param bars: of each row, its bar; none if empty.
    :param bars_title: heading of the bars.
    """

    name: str
    table: Table
    links: Sequence[PageLink | None] = ()
    marks: Sequence[StateMark] = ()
    bars: Sequence[Bar] = ()
    bars_title: str = ""

    def is_number(self, place: int) -> bool:
        """Whether a column holds numbers.

        :param place: its place, from 0.
        """
        return place >= len(self.table.columns) - self.table.numbers

    def is_time(self, place: int) -> bool:
        """Whether a column holds times or durations, which are not broken."""
        column = self.table.columns[place]
        return column.endswith("(UTC)") or column in _TIMES

    def is_state(self, place: int) -> bool:
        """Whether a column is shown by marks."""
        return bool(self.marks) and self.table.columns[place] == "state"


def scaled(kind: PartKind, begin: float, end: float, whole: tuple[float, float]) -> BarPart:
    """Return a part of a bar.

    :param begin: where the part begins, on the scale of the whole; outside of it, it is cut.
    :param end: where it ends.
    :param whole: where the bar begins and ends.
    """
    least, most = whole
    size = max(most - least, 1e-9)
    left, right = (min(max((at - least) / size, 0.0), 1.0) * BAR_WIDTH for at in (begin, end))
    return BarPart(kind, left, max(0.0, right - left))
