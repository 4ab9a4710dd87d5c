"""Writes ``docs/reference/benchmarks.md`` and ``docs/internals/benchmarks.md`` from the stored results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template

from dev.benchmarks import bars, charts
from dev.benchmarks.results import Result
from dev.benchmarks.workloads import WORKLOADS, Workload
from dev.servers import embedded

_DOCS = Path(__file__).parents[2] / "docs"
PAGE = _DOCS / "reference" / "benchmarks.md"
DETAILS = _DOCS / "internals" / "benchmarks.md"
_FOLDER = Path(__file__).parent
_QUIX = _FOLDER / "quix-requirements.txt"


def write(results: Sequence[Result]) -> None:
    """Write both pages anew."""
    PAGE.write_text(page(results), encoding="utf-8")
    DETAILS.write_text(details(results), encoding="utf-8")


def page(results: Sequence[Result]) -> str:
    """Return the text of the page for users: charts and bars."""
    return Template((_FOLDER / "page.md").read_text(encoding="utf-8")).substitute(
        bars="\n".join(bar_lines(results)), charts="\n".join(_charts(results))
    )


def details(results: Sequence[Result]) -> str:
    """Return the text of the page with all figures, and how they are measured."""
    return Template((_FOLDER / "details.md").read_text(encoding="utf-8")).substitute(
        tables=tables(results),
        machines="\n".join(f"- {machine}" for machine in dict.fromkeys(result.machine for result in results)),
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
            yield f"![{title}](../images/{name})\n"


def tables(results: Sequence[Result]) -> str:
    """Return a table for every workload that there are results of."""
    return "\n".join(_tables(results))


def _tables(results: Sequence[Result]) -> Iterator[str]:
    for workload in WORKLOADS.values():
        lines = [result for result in results if result.workload == workload.name]
        if lines:
            yield from _table(workload, lines)


def _table(workload: Workload, lines: Sequence[Result]) -> Iterator[str]:
    day = f", measured on {lines[0].measured}" if lines[0].measured else ""
    yield f"### `{workload.name}`: {workload.shows}\n"
    yield f"{lines[0].records:,} records{day}.\n"
    yield (
        "| system | guarantee | records/s | seconds | rounds | CPU s per million records | peak MB "
        "| ours is so many times as fast |"
    )
    yield "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |"
    for line in lines:
        speed = f"{line.records_per_second:,.0f}" if line.records else "-"
        rounds = f"{len(line.rounds)}: {min(line.rounds):.2f} - {max(line.rounds):.2f}"
        yield (
            f"| {line.system} | {line.guarantee.replace('_', ' ')} | {speed} | "
            f"{line.wall_seconds:.2f} | {rounds} | {_processor_seconds(line)} | {line.peak_memory_mb:,.0f} | "
            f"{line.ours_ratio:.2f} |"
        )
    yield ""


def _processor_seconds(line: Result) -> str:
    """Return what a million records took; of a run without records, what the run took."""
    if not line.processor_rounds:
        return "-"
    if line.records:
        return f"{line.processor_seconds_per_million:.2f}"
    return f"{statistics.median(line.processor_rounds):.2f} a run"


def bar_lines(results: Sequence[Result], chosen: Sequence[bars.Bar] = bars.BARS) -> Iterator[str]:
    """Yield the lines of a table of bars, each with its figure."""
    yield "| bar | limit | median | rounds | | processes |"
    yield "| --- | ---: | ---: | --- | --- | --- |"
    for row in bars.rows_of(results, chosen):
        yield (
            f"| {row.bar.text} | {row.limit} | {row.figure} | {row.rounds} | {row.said} | "
            f"{row.bar.processes} |"
        )
