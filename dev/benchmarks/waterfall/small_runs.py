"""Writes ``docs/internals/small-runs.md`` from the traces and what is said of each step."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from dev.benchmarks.waterfall.trace import Call

#: The runs, by the name of their workload.
KINDS = ("empty", "hourly")
_DOCS = Path(__file__).parents[3] / "docs"
PAGE = _DOCS / "internals" / "small-runs.md"
_FOLDER = Path(__file__).parent
#: What calls protect, by their name or by the place that makes them.
_STEPS = tomllib.loads((_FOLDER / "steps.toml").read_text(encoding="utf-8"))


def trace_file(kind: str) -> Path:
    """Return the file of a trace."""
    return _DOCS / "internals" / f"small-runs-{kind}.jsonl"


def picture_file(kind: str) -> Path:
    """Return the file of a picture."""
    return _DOCS / "images" / f"small-runs-{kind}.svg"


def write(traces: Mapping[str, Sequence[Call]]) -> list[str]:
    """Write the page; return the steps of which nothing says what they protect."""
    PAGE.write_text(page(traces), encoding="utf-8")
    return unexplained(traces)


def unexplained(traces: Mapping[str, Sequence[Call]]) -> list[str]:
    """Return the steps of the traces of which nothing says what they protect."""
    found = {step_of(call) for calls in traces.values() for call in calls}
    return sorted(" ".join(step) for step in found if not protects(*step))


def page(traces: Mapping[str, Sequence[Call]]) -> str:
    """Return the text of the page."""
    totals = {f"{kind}_total": f"{_total(calls):,.0f}" for kind, calls in traces.items()}
    counts = {f"{kind}_calls": f"{len(calls):,}" for kind, calls in traces.items()}
    template = Template((_FOLDER / "page.md").read_text(encoding="utf-8"))
    return template.substitute(table="\n".join(_table(traces)), **totals, **counts)


def protects(name: str, place: str) -> str:
    """Return what a step protects; empty if nothing says so."""
    found: str = _STEPS["calls"].get(name) or _STEPS["places"].get(place, "")
    return found


def step_of(call: Call) -> tuple[str, str]:
    """Return what was called, and the place that called it."""
    return call.name, call.place


def _total(calls: Sequence[Call]) -> float:
    return sum(call.for_ms for call in calls if call.name == "execute")


def _table(traces: Mapping[str, Sequence[Call]]) -> Iterator[str]:
    """Yield a table for each process, with a row for each of its steps in the order in which they come."""
    rows: dict[str, dict[tuple[str, str], dict[str, list[float]]]] = defaultdict(dict)
    for kind in reversed(KINDS):  # the longer one has most steps, in the order that tells most
        for call in traces.get(kind, ()):
            where = f"{call.task}, {call.process.rstrip(' 0123456789')}"
            row = rows[where].setdefault(step_of(call), {each: [] for each in KINDS})
            row[kind].append(call.for_ms)
    for where, steps in rows.items():
        yield f"\n### In {where}\n"
        yield "| step | by | empty | hourly | protects |"
        yield "| --- | --- | ---: | ---: | --- |"
        for (name, place), times in steps.items():
            by = f"`{place}`" if place else ""
            cells = (f"`{name}`", by, *(_cell(times[kind]) for kind in KINDS), protects(name, place))
            yield f"| {' | '.join(cells)} |"


def _cell(times_ms: Sequence[float]) -> str:
    """Return how long the calls of a step took in all, and their number where there are several."""
    if not times_ms:
        return ""
    number = f"{len(times_ms)} x, " if len(times_ms) > 1 else ""
    total = sum(times_ms)
    return f"{number}{total:.1f} ms" if total < 10 else f"{number}{total:,.0f} ms"
