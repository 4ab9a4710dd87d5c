"""Draws runs over time: records, duration, rate, late and parked records, a column a run, the newest at
the right.

Rule: a chart has at most ``COLUMNS`` columns, however many runs there are. With more runs than that, each
column stands for as many as it must, and is as high as the largest of them. Empty runs are hollow, and failed
ones crossed (of several: where most have failed), so that a reader tells them apart without
colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from airflow_kstreams.inspect import SeenRun
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text, time_text
from airflow_kstreams.streams.printable import printable

COLUMNS = 96
#: Size of a chart's drawing; few runs leave its left empty.
CHART_WIDTH, CHART_HEIGHT = 480.0, 56.0
_FEWEST_PLACES = 24
_HOLLOW = 6.0
#: Longest name of a run in the text of a column.
_MOST_NAME = 100

Figure = Callable[[SeenRun], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartColumn:
    """A column of a chart.

    :param x: its left edge.
    :param width: its width.
    :param height: its height; 0 where the figure is 0, or not known.
    :param kind: ``full``; ``hollow``, where all its runs were empty; or ``lost``, where most have failed.
    :param text: the run, or runs, and the figure.
    """

    x: float
    width: float
    height: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChart:
    """A figure of runs over time.

    :param name: unique on the page.
    :param title: name of the figure.
    :param largest: the largest figure, in words.
    :param text: what is drawn, in words.
    :param columns: the columns, the oldest first; none where all figures are 0 or not known.
    """

    name: str
    title: str
    largest: str
    text: str
    columns: tuple[ChartColumn, ...]


def run_charts(runs: Sequence[SeenRun]) -> tuple[RunChart, ...]:
    """Return the charts.

    :param runs: the runs, the newest first.
    """
    groups = [*_groups(runs[::-1])]
    if not groups:
        return ()
    figures: tuple[tuple[str, str, Figure, Callable[[float], str]], ...] = (
        ("records", "Records in", lambda run: run.records_in, _count),
        ("duration", "Duration", lambda run: run.seconds, lambda value: duration_text(value * 1000)),
        ("rate", "Records per second", rate, _count),
        ("late", "Late records", lambda run: run.late, _count),
        ("parked", "Parked records", lambda run: run.parked, _count),
    )
    return tuple(_chart(groups, *each) for each in figures)


def rate(run: SeenRun) -> float | None:
    """Return the records of a run per second; None where it is not known."""
    return None if run.records_in is None or run.seconds <= 0 else run.records_in / run.seconds


def per_column(runs: int) -> int:
    """Return the number of runs of a column."""
    return max(1, -(-runs // COLUMNS))


def _groups(runs: Sequence[SeenRun]) -> Iterator[Sequence[SeenRun]]:
    size = per_column(len(runs))
    # The newest column is whole: the oldest one may have fewer runs.
    first = len(runs) % size
    if first:
        yield runs[:first]
    for begin in range(first, len(runs), size):
        yield runs[begin : begin + size]


def _chart(
    groups: Sequence[Sequence[SeenRun]],
    name: str,
    title: str,
    figure: Figure,
    shown: Callable[[float], str],
) -> RunChart:
    values = [
        max((value for run in group if (value := figure(run)) is not None), default=None) for group in groups
    ]
    largest = max((value for value in values if value is not None), default=0.0)
    places = max(len(groups), _FEWEST_PLACES)
    step = CHART_WIDTH / places
    columns = (
        _column(group, value, largest, (places - len(groups) + number) * step, step, shown)
        for number, (group, value) in enumerate(zip(groups, values, strict=True))
    )
    known = [value for value in values if value is not None]
    return RunChart(
        name=f"chart-{name}",
        title=title,
        largest=shown(largest) if known else "not known",
        text=_text(groups, title, shown(largest) if known else "not known"),
        columns=tuple(columns) if largest else (),
    )


def _column(
    group: Sequence[SeenRun],
    value: float | None,
    largest: float,
    x: float,
    step: float,
    shown: Callable[[float], str],
) -> ChartColumn:
    kind = "full"
    if 2 * _failed(group) > len(group):
        kind = "lost"
    elif all(run.state == "nothing new" for run in group):
        kind = "hollow"
    height = 0.0 if not value or not largest else max(1.0, value / largest * CHART_HEIGHT)
    text = "not known" if value is None else shown(value)
    return ChartColumn(
        x=x + step * 0.1,
        width=step * 0.8,
        height=_HOLLOW if kind == "hollow" else height,
        kind=kind,
        text=f"{_named(group)}: {text}",
    )


def _failed(group: Sequence[SeenRun]) -> int:
    return sum(run.state == "failed" for run in group)


def _named(group: Sequence[SeenRun]) -> str:
    newest = group[-1]
    if len(group) == 1:
        return f"{_short(newest.run_id)}, begun {time_text(newest.begun_ms)} UTC, {newest.state}"
    since = time_text(group[0].begun_ms)
    failed = f", {_failed(group):,} failed" if _failed(group) else ""
    to = time_text(newest.begun_ms)
    return f"{counted(len(group), 'run')} begun from {since} to {to} UTC{failed}, the largest"


def _text(groups: Sequence[Sequence[SeenRun]], title: str, largest: str) -> str:
    runs = sum(map(len, groups))
    each = counted(per_column(runs), "run")
    return (
        f"{title} of {counted(runs, 'run')}, the newest at the right, {each} a column; the largest "
        f"is {largest}. The table of runs has the same figures."
    )


def _short(run_id: str) -> str:
    text = printable(run_id)
    return text if len(text) <= _MOST_NAME else f"{text[:_MOST_NAME]}..."


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.2g}"
