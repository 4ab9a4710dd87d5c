"""The bars that this engine must reach, each with its figure from the stored results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.table import Table

from dev.benchmarks.results import Result
from dev.benchmarks.workloads import (
    AVAILABLE_NOW,
    HAND_WRITTEN,
    KAFKA_STREAMS,
    KAFKA_STREAMS_PLAIN,
    QUIX,
    QUIX_PLAIN,
    System,
)

_EXACTLY_ONCE, _AT_LEAST_ONCE = "exactly_once", "at_least_once"


class NotMeasuredError(Exception):
    """A line that a bar needs is not in the results."""


class Lines:
    """Finds lines among results."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._lines = {result.key: result for result in results}

    def of(self, workload: str, system: str = "airflow-kstreams", guarantee: str = _EXACTLY_ONCE) -> Result:
        """Return a line.

        :raises NotMeasuredError: it is not there.
        """
        if (workload, system, guarantee) not in self._lines:
            raise NotMeasuredError(f"{workload}, {system}, {guarantee} was not measured yet")
        return self._lines[workload, system, guarantee]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something to reach.

    :param limit: the figure must be so much at least, or at most.
    :param at_most: which of the two.
    :param workloads: that it needs.
    """

    text: str
    figure: Callable[[Lines], float]
    limit: float
    workloads: tuple[str, ...]
    at_most: bool = False
    unit: str = "x"

    def reached(self, figure: float) -> bool:
        """Tell whether a figure is enough."""
        return figure <= self.limit if self.at_most else figure >= self.limit

    @property
    def command(self) -> str:
        """Measures it anew."""
        return f"dev/bench --workload {' '.join(self.workloads)}"


def _peer(workload: str, system: str, guarantee: str) -> Callable[[Lines], float]:
    return lambda lines: lines.of(workload, system, guarantee).ours_ratio


def _cost_of_exactly_once(workload: str) -> Callable[[Lines], float]:
    """Return how much longer exactly once took, in percent of the time of at least once."""
    return lambda lines: 100 * (1 / lines.of(workload, guarantee=_AT_LEAST_ONCE).ours_ratio - 1)


def _growth(lines: Lines) -> float:
    small, large = lines.of("memory-1m"), lines.of("memory-16m")
    return large.details["worker_peak_memory_mb"] / small.details["worker_peak_memory_mb"]


def _ahead(what: str, limit: float, workload: str, *systems: System) -> tuple[Bar, ...]:
    """Return the bars of being so many times as fast as some systems."""
    return tuple(
        Bar(
            text=f"{what} against {system.label}",
            figure=_peer(workload, system.name, system.guarantee),
            limit=limit,
            workloads=(workload,),
        )
        for system in systems
    )


BARS = (
    *_ahead("compiled DSL (stateless)", 0.75, "stateless", HAND_WRITTEN),
    *_ahead("compiled DSL (sum by key)", 0.75, "sum-50k", HAND_WRITTEN),
    *_ahead("stateless", 1.5, "stateless", AVAILABLE_NOW),
    *_ahead("stateless", 1.2, "stateless", KAFKA_STREAMS_PLAIN, KAFKA_STREAMS),
    *_ahead("sum by key", 3.0, "sum-50k", KAFKA_STREAMS_PLAIN, KAFKA_STREAMS),
    *_ahead("stateless", 10.0, "stateless", QUIX_PLAIN, QUIX),
    *_ahead("sum by key", 10.0, "sum-50k", QUIX_PLAIN, QUIX),
    *_ahead("stream joined with stream", 1.0, "join", KAFKA_STREAMS),
    *_ahead("stream joined with table", 1.0, "stream-table", KAFKA_STREAMS),
    *_ahead("table joined with table", 1.0, "tables", KAFKA_STREAMS),
    *_ahead("table joined by foreign key", 1.0, "foreign-key", KAFKA_STREAMS),
    *_ahead("table grouped", 1.0, "table-groups", KAFKA_STREAMS),
    *_ahead("cogroup", 1.0, "cogroup", KAFKA_STREAMS),
    *_ahead("tumbling windows", 1.0, "tumbling", KAFKA_STREAMS),
    *_ahead("sliding windows", 1.0, "sliding", KAFKA_STREAMS),
    *_ahead("sessions", 1.0, "session", KAFKA_STREAMS),
    Bar(
        text="cost of exactly once over at least once, stateless",
        figure=_cost_of_exactly_once("stateless"),
        limit=10.0,
        workloads=("stateless",),
        at_most=True,
        unit="%",
    ),
    Bar(
        text="cost of exactly once over at least once, sum by key",
        figure=_cost_of_exactly_once("sum-50k"),
        limit=10.0,
        workloads=("sum-50k",),
        at_most=True,
        unit="%",
    ),
    Bar(
        text="a run of 10,000 records, two subtopologies, session ready to finished marker",
        figure=lambda lines: lines.of("hourly").wall_seconds,
        limit=2.0,
        workloads=("hourly",),
        at_most=True,
        unit="s",
    ),
    Bar(
        text="an empty run, the three operators' execute",
        figure=lambda lines: lines.of("empty").wall_seconds,
        limit=2.0,
        workloads=("empty",),
        at_most=True,
        unit="s",
    ),
    Bar(
        text="memory of a task's worker, 16 M records against 1 M",
        figure=_growth,
        limit=1.1,
        workloads=("memory-1m", "memory-16m"),
        at_most=True,
    ),
)


class Row(NamedTuple):
    """A bar as it is shown."""

    bar: Bar
    limit: str
    figure: str
    said: Literal["reached", "MISSED", "not measured yet"]


def rows_of(results: Sequence[Result]) -> Iterator[Row]:
    """Yield every bar with its figure."""
    lines = Lines(results)
    for bar in BARS:
        limit = f"at {'most' if bar.at_most else 'least'} {bar.limit:g} {bar.unit}"
        try:
            figure = bar.figure(lines)
        except NotMeasuredError:
            yield Row(bar, limit, "-", "not measured yet")
        else:
            yield Row(bar, limit, f"{figure:.2f} {bar.unit}", "reached" if bar.reached(figure) else "MISSED")


def table_of(results: Sequence[Result]) -> tuple[Table, bool]:
    """Return every bar with its figure, and whether all are reached."""
    table, rows = Table("bar", "limit", "figure", "", "measured anew by"), list(rows_of(results))
    for row in rows:
        table.add_row(row.bar.text, row.limit, row.figure, row.said, row.bar.command)
    return table, all(row.said == "reached" for row in rows)
