"""The bars that this engine must reach, each with its figure from the stored results.

A bar is decided by the median over rounds in which both sides ran in turn, seven of them where it is about
few percent. With fewer rounds its figure is shown, and nothing is decided.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.table import Table

from dev.benchmarks.results import Result, ratios
from dev.benchmarks.systems import (
    AVAILABLE_NOW,
    AVAILABLE_NOW_TO_PARQUET,
    BARE_DELTA,
    BARE_ICEBERG,
    DELTA_MERGE,
    FEW_DAYS,
    FEW_FILES,
    FEW_FILES_DELTA,
    FEW_SNAPSHOTS,
    HAND_WRITTEN,
    HAND_WRITTEN_BY_COLUMNS,
    KAFKA_STREAMS,
    KAFKA_STREAMS_AT_LEAST_ONCE,
    KAFKA_STREAMS_PLAIN,
    KEPT_SNAPSHOTS,
    OURS,
    OURS_AT_LEAST_ONCE,
    OURS_BY_BATCHES,
    OURS_IN_THREE,
    OURS_IN_THREE_STARTED,
    OURS_PREPARED,
    OURS_TO_DELTA,
    OURS_TO_ICEBERG,
    QUIX,
    QUIX_PLAIN,
    RAW,
    RIVALS,
    SPARK_BATCH,
    System,
)
from dev.benchmarks.workloads import DECIDING_ROUNDS, MATRIX, WORKLOADS, Kind


class NotMeasuredError(Exception):
    """A line that a bar needs is not in the results."""


class Lines:
    """Finds lines among results."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._lines = {result.key: result for result in results}

    def of(self, workload: str, system: System = OURS) -> Result:
        """Return a line.

        :raises NotMeasuredError: it is not there.
        """
        key = (workload, system.name, system.guarantee)
        if key not in self._lines:
            raise NotMeasuredError(f"{workload}, {system.label} was not measured yet")
        return self._lines[key]

    def processor_rounds(self, workload: str, system: System = OURS) -> Sequence[float]:
        """Return the processor seconds of a line, by round.

        :raises NotMeasuredError: it is not there, or is older than that figure.
        """
        found = self.of(workload, system).processor_rounds
        if not found:
            raise NotMeasuredError(f"the processor seconds of {workload}, {system.label} were not measured")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something to reach.

    :param figures: gives the figure of each round; their median counts.
    :param limit: the figure must be so much at least, or at most; None for a figure that is only shown.
    :param workloads: that it needs.
    :param at_most: which of the two.
    :param aim: more than that, which decides nothing; None for none.
    :param rounds: so many decide.
    :param processes: what the processes of both sides have done before a run: a phrase, shown beside the
        figure.
    """

    text: str
    figures: Callable[[Lines], Sequence[float]]
    limit: float | None
    workloads: tuple[str, ...]
    at_most: bool = False
    unit: str = "x"
    aim: float | None = None
    rounds: int = DECIDING_ROUNDS
    processes: str = ""

    def reaches(self, figure: float, limit: float) -> bool:
        """Tell whether a figure is enough."""
        return figure <= limit if self.at_most else figure >= limit

    @property
    def command(self) -> str:
        """Measures it anew."""
        return f"dev/bench --workload {' '.join(self.workloads)}"


#: What runs of a kind have in common. A service has a process that is up; a scheduled run starts its own.
_PROCESSES: Mapping[Kind, str] = {
    "throughput": "both up and warm",
    "cold": "both started for the run",
    "hourly": "theirs up, as a running service's; ours an open Spark session",
    "empty": "theirs up, as a running service's; ours as scheduled, Airflow's imports done",
}


def _ahead(
    what: str,
    limit: float | None,
    workload: str,
    *systems: System,
    ours: System = OURS,
    aim: float | None = None,
    rounds: int = DECIDING_ROUNDS,
) -> tuple[Bar, ...]:
    """Return the bars of being so many times as fast as some systems, one for each."""
    return tuple(
        Bar(
            text=f"{what} against {system.label}",
            figures=_times_as_fast(workload, system, ours),
            limit=limit,
            workloads=(workload,),
            aim=aim,
            rounds=rounds,
            processes=_PROCESSES[WORKLOADS[workload].kind],
        )
        for system in systems
    )


def _times_as_fast(workload: str, system: System, ours: System) -> Callable[[Lines], Sequence[float]]:
    return lambda lines: ratios(lines.of(workload, system).rounds, lines.of(workload, ours).rounds)


def _cost_of_exactly_once(what: str, workload: str) -> Bar:
    def figures(lines: Lines) -> Sequence[float]:
        exactly, at_least = lines.of(workload), lines.of(workload, OURS_AT_LEAST_ONCE)
        return [100 * (ratio - 1) for ratio in ratios(exactly.rounds, at_least.rounds)]

    return Bar(
        text=f"cost of exactly once over at least once, {what}",
        figures=figures,
        limit=10.0,
        workloads=(workload,),
        at_most=True,
        unit="%",
    )


def _least_processor_time(what: str, workload: str) -> Bar:
    """Return the bar of taking less processor time than any rival: that of the least one, by ours."""
    rivals = [system for system in WORKLOADS[workload].systems if system in RIVALS]

    def figures(lines: Lines) -> Sequence[float]:
        ours = lines.processor_rounds(workload)
        found = [ratios(lines.processor_rounds(workload, rival), ours) for rival in rivals]
        return min(found, key=statistics.median)

    return Bar(
        text=f"{what}: the least CPU time of any other by ours",
        figures=figures,
        limit=1.0,
        workloads=(workload,),
        processes=_PROCESSES["throughput"],
    )


def _seconds(
    text: str, limit: float | None, workload: str, system: System = OURS, processes: str = ""
) -> Bar:
    return Bar(
        text=text,
        figures=lambda lines: lines.of(workload, system).rounds,
        limit=limit,
        workloads=(workload,),
        at_most=True,
        unit="s",
        processes=processes,
    )


def _times(
    text: str,
    limit: float | None,
    workload: str,
    pair: tuple[System, System],
    *,
    at_most: bool = False,
    processes: str = "",
) -> Bar:
    """Return the bar of how many times the seconds of the second system the first one takes."""
    return Bar(
        text=text,
        figures=_times_as_fast(workload, *pair),
        limit=limit,
        workloads=(workload,),
        at_most=at_most,
        processes=processes,
    )


def _tables() -> Iterator[Bar]:
    """Yield the bars of tables."""
    for name, ours in (("Iceberg", OURS_TO_ICEBERG), ("Delta", OURS_TO_DELTA)):
        yield _times(
            f"stateless to {name} against the same to a topic",
            1.0,
            "table-append",
            (OURS, ours),
            processes=_PROCESSES["throughput"],
        )
        yield from _ahead(f"stateless to {name}", 1.5, "table-append", AVAILABLE_NOW_TO_PARQUET, ours=ours)
        small = f"hourly run to {name}: its seconds by those of the same to a topic"
        yield _times(small, 1.3, "table-small", (ours, OURS), at_most=True)
    merge = "against deltalake's merge of the same rows"
    for name, ours, limit in (("Delta", OURS_TO_DELTA, 0.8), ("Iceberg", OURS_TO_ICEBERG, None)):
        upsert = f"upsert of 100,000 of 2 M keys to {name}"
        yield Bar(
            text=f"{upsert}, from the end of the tasks to the finished marker, {merge}",
            figures=_merging(ours),
            limit=limit,
            workloads=("table-upsert",),
            rounds=1,
        )
        whole, warm = f"{upsert}, a whole run, {merge}", "both up"
        yield _times(whole, None, "table-upsert", (DELTA_MERGE, ours), processes=warm)
    yield Bar(
        text="upsert to Iceberg: what it rewrites",
        figures=lambda lines: [lines.of("table-upsert", OURS_TO_ICEBERG).details["rewritten_mb"]],
        limit=None,
        workloads=("table-upsert",),
        unit="MB",
    )
    for name, ours, bare, few in (
        ("Iceberg", OURS, BARE_ICEBERG, FEW_FILES),
        ("Delta", OURS_TO_DELTA, BARE_DELTA, FEW_FILES_DELTA),
    ):
        finish = f"{name}: finish of a run with 2,000 files"
        by_bare = f"{finish}: its seconds by those of the library's bare commit of them"
        yield _times(by_bare, 1.3, "table-files", (ours, bare), at_most=True)
        yield Bar(
            text=f"{finish}: what it takes beyond one with 20, by that bare commit",
            figures=_more_seconds(ours, few, bare),
            limit=None,
            workloads=("table-files",),
            at_most=True,
        )
        yield Bar(
            text=f"{finish}: its memory beyond that of one with 20",
            figures=_more_memory(ours, few),
            limit=100.0,
            workloads=("table-files",),
            at_most=True,
            unit="MB",
            rounds=1,
        )
    commit = "commit after 5,000 snapshots, {}: its seconds by those of one after 100"
    expiring, kept = commit.format("the last 100 kept"), commit.format("all kept")
    yield _times(expiring, 1.2, "table-snapshots", (OURS, FEW_SNAPSHOTS), at_most=True)
    yield _times(kept, None, "table-snapshots", (KEPT_SNAPSHOTS, FEW_SNAPSHOTS), at_most=True)
    yield Bar(
        text="memory of a task, 16 M rows of 3,650 days in a table against 1 M of 24 days",
        figures=lambda lines: [
            lines.of("table-days").details["worker_peak_memory_mb"]
            / lines.of("table-days", FEW_DAYS).details["worker_peak_memory_mb"]
        ],
        limit=1.1,
        workloads=("table-days",),
        at_most=True,
        rounds=1,
    )


def _merging(ours: System) -> Callable[[Lines], Sequence[float]]:
    """Return how many times as fast the finish of a run is as the library's merge: by their medians."""

    def figures(lines: Lines) -> Sequence[float]:
        own = lines.of("table-upsert", ours).details["finish_seconds"]
        return [lines.of("table-upsert", DELTA_MERGE).wall_seconds / own]

    return figures


def _more_seconds(system: System, few: System, bare: System) -> Callable[[Lines], Sequence[float]]:
    def figures(lines: Lines) -> Sequence[float]:
        rounds = (lines.of("table-files", each).rounds for each in (system, few, bare))
        return [(own - less) / alone for own, less, alone in zip(*rounds, strict=False)]

    return figures


def _more_memory(system: System, other: System) -> Callable[[Lines], Sequence[float]]:
    def figures(lines: Lines) -> Sequence[float]:
        much, few = (lines.of("table-files", each).details["process_peak_mb"] for each in (system, other))
        return [much - few]

    return figures


def _growth(lines: Lines) -> Sequence[float]:
    small, large = lines.of("memory-1m"), lines.of("memory-16m")
    return [large.details["worker_peak_memory_mb"] / small.details["worker_peak_memory_mb"]]


BARS = (
    *_ahead("stateless", 1.2, "stateless", KAFKA_STREAMS_PLAIN),
    *_ahead("stateless", 1.6, "stateless", KAFKA_STREAMS),
    *_ahead("stateless", 12.0, "stateless", QUIX_PLAIN),
    *_ahead("stateless", 10.0, "stateless", QUIX),
    *_ahead("stateless", 3.0, "stateless", AVAILABLE_NOW),
    *_ahead("stateless through map_batches", 1.9, "stateless", KAFKA_STREAMS, ours=OURS_BY_BATCHES, aim=2.5),
    *_ahead("stateless", 1.2, "stateless", HAND_WRITTEN),
    *_ahead("sum by key", 1.1, "sum-50k", HAND_WRITTEN),
    *_ahead("stateless", 0.75, "stateless", HAND_WRITTEN_BY_COLUMNS),
    *_ahead("sum by key", 0.75, "sum-50k", HAND_WRITTEN_BY_COLUMNS),
    *_ahead("stateless", None, "stateless", *RAW),
    *_ahead("sum by key", 3.0, "sum-50k", KAFKA_STREAMS_PLAIN),
    *_ahead("sum by key", 2.3, "sum-50k", KAFKA_STREAMS, aim=3.0),
    # Minutes a run, and far from few percent.
    *_ahead("sum by key", 10.0, "sum-50k", QUIX_PLAIN, QUIX, rounds=1),
    *_ahead("sum by 2 M keys", 1.3, "sum-2m", AVAILABLE_NOW, SPARK_BATCH),
    *_ahead("stream joined with stream", 1.3, "join", KAFKA_STREAMS),
    *_ahead("stream joined with table", 1.3, "stream-table", KAFKA_STREAMS),
    *_ahead("table joined with table", 1.3, "tables", KAFKA_STREAMS),
    *_ahead("table joined by foreign key", 1.3, "foreign-key", KAFKA_STREAMS),
    *_ahead("table grouped", 1.3, "table-groups", KAFKA_STREAMS),
    *_ahead("cogroup", 1.3, "cogroup", KAFKA_STREAMS),
    *_ahead("tumbling windows", 1.3, "tumbling", KAFKA_STREAMS),
    *_ahead("sliding windows", 1.3, "sliding", KAFKA_STREAMS),
    *_ahead("sessions", 1.3, "session", KAFKA_STREAMS),
    *_ahead("two stages", 1.3, "two-stage", AVAILABLE_NOW),
    *_ahead("two stages", 1.05, "two-stage", SPARK_BATCH),
    *(
        bar
        for line in MATRIX
        for bar in _ahead(line.shows.removeprefix("JSON filter and map, "), 1.0, line.name, KAFKA_STREAMS)
    ),
    *_ahead("hourly, warm", 1.3, "hourly", KAFKA_STREAMS),
    *_ahead("hourly, warm", 1.1, "hourly", KAFKA_STREAMS_AT_LEAST_ONCE),
    *_ahead("cold, Spark prepared", 0.8, "cold", KAFKA_STREAMS, ours=OURS_PREPARED),
    *_ahead("cold, Spark prepared", 1.1, "cold", QUIX, ours=OURS_PREPARED),
    *_ahead("empty", 0.8, "empty", KAFKA_STREAMS),
    *_ahead("empty", 0.3, "empty", AVAILABLE_NOW),
    *_ahead("empty, three processes", None, "empty", KAFKA_STREAMS, AVAILABLE_NOW, ours=OURS_IN_THREE),
    _seconds(
        "a run of 10,000 records, two subtopologies, session ready to finished marker",
        2.0,
        "hourly",
        processes="an open Spark session",
    ),
    _seconds(
        "an empty run, the three operators' execute",
        2.0,
        "empty",
        processes="one process, Airflow's imports done",
    ),
    _seconds(
        "an empty run, a process for each operator, which loads the DAG file and executes it",
        None,
        "empty",
        OURS_IN_THREE,
        "three processes, counted from when airflow.sdk is imported",
    ),
    _seconds(
        "an empty run, a process for each operator, from its start",
        None,
        "empty",
        OURS_IN_THREE_STARTED,
        "three processes, counted from their start: Python and the import of airflow.sdk included",
    ),
    _cost_of_exactly_once("stateless", "stateless"),
    _cost_of_exactly_once("sum by key", "sum-50k"),
    _least_processor_time("stateless", "stateless"),
    _least_processor_time("sum by 50,000 keys", "sum-50k"),
    _least_processor_time("sum by 2 M keys", "sum-2m"),
    Bar(
        text="memory of a task's worker, 16 M records against 1 M",
        figures=_growth,
        limit=1.1,
        workloads=("memory-1m", "memory-16m"),
        at_most=True,
        rounds=1,
    ),
    *_tables(),
)

Verdict = Literal["reached", "MISSED", "too few rounds", "not measured yet", "shown"]


class Row(NamedTuple):
    """A bar as it is shown.

    :param figure: median of the rounds.
    :param rounds: how many there are, and their lowest and highest figure.
    :param said: the verdict, and whether its aim is reached, too.
    """

    bar: Bar
    limit: str
    figure: str
    rounds: str
    verdict: Verdict
    said: str


def measured_by(results: Sequence[Result]) -> list[Bar]:
    """Return the bars whose workloads are all among results."""
    names = {result.workload for result in results}
    return [bar for bar in BARS if names.issuperset(bar.workloads)]


def rows_of(results: Sequence[Result], bars: Sequence[Bar] = BARS) -> Iterator[Row]:
    """Yield every bar with its figure."""
    lines = Lines(results)
    for bar in bars:
        try:
            figures = bar.figures(lines)
        except NotMeasuredError:
            yield Row(bar, _limit(bar), "-", "-", "not measured yet", "not measured yet")
        else:
            yield _row(bar, figures)


def _row(bar: Bar, figures: Sequence[float]) -> Row:
    figure = statistics.median(figures)
    verdict = _verdict(bar, figure, len(figures))
    said: str = verdict
    if bar.aim is not None and verdict in ("reached", "MISSED"):
        said += f", aim {'reached' if bar.reaches(figure, bar.aim) else 'missed'}"
    spread = f"{len(figures)}: {min(figures):.2f} - {max(figures):.2f}"
    return Row(bar, _limit(bar), f"{figure:.2f} {bar.unit}", spread, verdict, said)


def _verdict(bar: Bar, figure: float, rounds: int) -> Verdict:
    if bar.limit is None:
        return "shown"
    if rounds < bar.rounds:
        return "too few rounds"
    return "reached" if bar.reaches(figure, bar.limit) else "MISSED"


def _limit(bar: Bar) -> str:
    if bar.limit is None:
        return "-"
    aim = "" if bar.aim is None else f", aim {bar.aim:g} {bar.unit}"
    return f"at {'most' if bar.at_most else 'least'} {bar.limit:g} {bar.unit}{aim}"


def table_of(results: Sequence[Result], bars: Sequence[Bar] = BARS) -> tuple[Table, bool]:
    """Return bars with their figures, and whether all are reached."""
    table = Table("bar", "limit", "median", "rounds", "", "processes", "measured anew by")
    rows = list(rows_of(results, bars))
    for row in rows:
        bar = row.bar
        table.add_row(bar.text, row.limit, row.figure, row.rounds, row.said, bar.processes, bar.command)
    return table, all(row.verdict in ("reached", "shown") for row in rows)
