"""Writes ``docs/benchmarks.md`` from the stored results."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template

from rich.console import Console

from dev import embedded
from dev.benchmarks import bars, charts
from dev.benchmarks.results import Result
from dev.benchmarks.workloads import WORKLOADS, Workload

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_TEXT = Path(__file__).with_name("page.md")
_QUIX = Path(__file__).with_name("quix-requirements.txt")


def page(results: Sequence[Result]) -> str:
    """Return the page's text."""
    return Template(_TEXT.read_text(encoding="utf-8")).substitute(
        tables="\n".join(_tables(results)),
        bars="\n".join(_bars(results)),
        machines="\n".join(f"- {machine}" for machine in dict.fromkeys(result.machine for result in results)),
        charts="\n".join(_charts(results)),
        kafka=embedded.libraries_version(embedded.kafka_libraries()),
        kafka_streams=embedded.libraries_version(embedded.kafka_streams_libraries()),
        spark=version("pyspark"),
        quix=next(
            line.removeprefix("quixstreams==")
            for line in _QUIX.read_text().splitlines()
            if line.startswith("quixstreams==")
        ),
    )


def _charts(results: Sequence[Result]) -> Iterator[str]:
    measured = {WORKLOADS[result.workload].kind for result in results if "guard" not in result.workload}
    for name, (title, kinds) in charts.CHARTS.items():
        if measured & set(kinds):
            yield f"![{title}](images/{name})\n"


def _tables(results: Sequence[Result]) -> Iterator[str]:
    for workload in WORKLOADS.values():
        lines = [result for result in results if result.workload == workload.name]
        if lines:
            yield from _table(workload, lines)


def _table(workload: Workload, lines: Sequence[Result]) -> Iterator[str]:
    rounds = max(len(line.rounds) for line in lines)
    yield f"### `{workload.name}`: {workload.shows}\n"
    yield f"{lines[0].records:,} records, {rounds} round{'s' * (rounds > 1)}.\n"
    yield "| system | guarantee | records/s | seconds | peak MB | ours is so many times as fast | again by |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for line in lines:
        speed = f"{line.records_per_second:,.0f}" if line.records else "-"
        yield (
            f"| {line.system} | {line.guarantee.replace('_', ' ')} | {speed} | {line.wall_seconds:.2f} | "
            f"{line.peak_memory_mb:,.0f} | {line.ours_ratio:.2f} | "
            f"`dev/bench --workload {line.workload} --system {line.system}` |"
        )
    yield ""


def _bars(results: Sequence[Result]) -> Iterator[str]:
    lines = bars.Lines(results)
    yield "| bar | limit | figure | |"
    yield "| --- | ---: | ---: | --- |"
    for bar in bars.BARS:
        sign = "at most" if bar.at_most else "at least"
        try:
            figure = bar.figure(lines)
        except bars.NotMeasuredError:
            shown, said = "-", "not measured yet"
        else:
            shown, said = f"{figure:.2f} {bar.unit}", "reached" if bar.reached(figure) else "missed"
        yield f"| {bar.text} | {sign} {bar.limit:g} {bar.unit} | {shown} | {said} |"


def shown(results: Sequence[Result]) -> str:
    """Return the tables as they are printed."""
    console = Console(file=io.StringIO(), width=140)
    console.print("\n".join(_tables(results)), highlight=False, markup=False)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
