"""The figures of calls side by side, as the part of a page that is rendered from the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dev.benchmarks import marked
from dev.benchmarks.calls.bars import bars_of
from dev.benchmarks.calls.cases import SYSTEMS
from dev.benchmarks.calls.measured import Results

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "async.md"


def with_figures(page: str, results: Results) -> str:
    """Return a page with the figures between its marks.

    :raises ValueError: it has no marks.
    """
    return marked.with_figures(page, "dev/bench async", _lines(results))


def write(results: Results, page: Path = PAGE) -> None:
    """Put the figures into the page."""
    page.write_text(with_figures(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def _lines(results: Results) -> Iterator[str]:
    yield (
        f"Measured on {results.measured} at `{results.revision}`, runs of about {results.seconds:g} s each, "
        f"on {results.machine}. The figures are in [calls.json](calls.json)."
    )
    yield ""
    yield "| bar | limit | figure | |"
    yield "| --- | ---: | ---: | --- |"
    for bar in bars_of(results):
        limit = f"at {'most' if bar.at_most else 'least'} {bar.limit:g}"
        yield f"| {bar.text} | {limit} | {bar.figure:.2f} | {'reached' if bar.met else 'MISSED'} |"
    yield ""
    yield "| system | guarantee | order | keys | in flight | sleep, ms | in it, ms | records/s | others |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for each in results.cases:
        case, system = each.case, SYSTEMS[each.case.system]
        yield (
            f"| {system.title} | {system.guarantee} | {case.order} | {case.keys} | {case.in_flight} "
            f"| {case.latency_ms} | {each.latency_ms:.2f} | {each.rate:,.0f} | {each.others:.0%} |"
        )
    if not results.memory:
        yield ""
        yield "Memory was not measured at this revision: `dev/bench async --memory`."
    for left_out in results.left_out:
        yield ""
        yield f"Left out: {left_out}"
