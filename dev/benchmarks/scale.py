"""``dev/bench scale``: what the protocol of a run costs, by tasks, subtopologies and past runs.

Each case is a process of its own, so that its peak of memory is its own. On the Kafka in memory the cost is
that of this package alone; on a broker it has the broker's in it, and what fencing every task would cost is
apart.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dev.benchmarks import machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOCS = Path(__file__).parents[2] / "docs"
#: Characters of a printed line, so that no figure is cut where there is no terminal.
WIDTH = 150
FILE = _DOCS / "internals" / "scale.json"
PICTURE = _DOCS / "images" / "scale.svg"
IN_MEMORY, BROKER = "in memory", "broker"
_SIZES = ("cluster", "tasks", "subtopologies", "past runs")
_SECONDS = ("begin, s", "driver, s", "sensors, s", "protocol, s")
_COLUMNS = (*_SIZES, *_SECONDS, "MB", "records", "KB", "tasks, s", "fencing all, s")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One size.

    :param cluster: ``in memory`` or ``broker``.
    :param tasks: in all subtopologies together, about.
    :param subtopologies: in a row.
    :param past: runs that have finished before.
    """

    cluster: str
    tasks: int
    subtopologies: int
    past: int


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one run cost: medians, where a case runs several times.

    :param capture: seconds of a begin without a driver.
    :param drive: seconds of the driver, less those of its tasks: begin, stops between subtopologies, finish.
    :param sense: seconds of three sensors: this run, the first run, one that never was.
    :param tasks: seconds of the tasks, which are no cost of the protocol alone.
    :param fence: seconds that fencing every task takes. A begin fences the tasks of the run before: where a
        case runs several times, ``capture`` holds that, too.
    :param memory_mb: by which the process grew at most meanwhile, with the runs' own records.
    :param written: records of the protocol's topics.
    :param written_kb: their kilobytes.
    """

    capture: float
    drive: float
    sense: float
    tasks: float
    fence: float
    memory_mb: float
    written: float
    written_kb: float

    @property
    def protocol(self) -> float:
        """Seconds of begin, finish and sensors."""
        return self.capture + self.drive + self.sense


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A case with its cost."""

    case: Case
    cost: Cost
    machine: str


def _memory(tasks: int, subtopologies: int, past: int) -> Case:
    return Case(cluster=IN_MEMORY, tasks=tasks, subtopologies=subtopologies, past=past)


CASES = (
    *(_memory(100, 1, past) for past in (10, 8_760, 100_000)),
    *(_memory(tasks, 1, 10) for tasks in (1_000, 10_000)),
    *(_memory(tasks, 8, 10) for tasks in (100, 1_000, 10_000)),
    _memory(10_000, 8, 100_000),
    *(Case(cluster=BROKER, tasks=tasks, subtopologies=2, past=10) for tasks in (20, 200, 1_000)),
)


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and store unless only a part was asked for."""
    console = Console(soft_wrap=True, highlight=False, width=WIDTH)
    parser = argparse.ArgumentParser(prog="dev/bench scale", description=__doc__)
    parser.add_argument("--most-tasks", type=int, default=10_000, help="only cases of at most so many tasks")
    parser.add_argument(
        "--most-past", type=int, default=100_000, help="only cases of at most so many past runs"
    )
    parser.add_argument("--cluster", choices=(IN_MEMORY, BROKER), help="only these cases")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in CASES
        if case.tasks <= options.most_tasks
        and case.past <= options.most_past
        and options.cluster in (None, case.cluster)
    ]
    measured: list[Measured] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("cases", total=len(cases))
        for case in cases:
            progress.update(bar, description=_name(case))
            measured.append(Measured(case=case, cost=_cost_of(case), machine=machine.describe()))
            progress.advance(bar)
    console.print(table_of(measured))
    for law in laws(measured):
        console.print(law, markup=False)
    if len(cases) == len(CASES):
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
        draw(measured)
    return 0


def _cost_of(case: Case) -> Cost:
    command = [sys.executable, "-m", "dev.benchmarks.scale_case", msgspec.json.encode(case).decode()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Cost)


def _name(case: Case) -> str:
    return (
        f"{case.cluster}: {case.tasks:,} tasks, {case.subtopologies} subtopologies, {case.past:,} past runs"
    )


def table_of(measured: Sequence[Measured]) -> Table:
    """Return the figures, a case a line."""
    table = Table(title="What the protocol of one run costs")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for each in measured:
        case, cost = each.case, each.cost
        table.add_row(
            case.cluster, f"{case.tasks:,}", str(case.subtopologies), f"{case.past:,}", f"{cost.capture:.3f}",
            f"{cost.drive:.3f}", f"{cost.sense:.3f}", f"{cost.protocol:.3f}", f"{cost.memory_mb:.0f}",
            f"{cost.written:,.0f}", f"{cost.written_kb:,.0f}", f"{cost.tasks:.1f}", f"{cost.fence:.2f}",
        )  # fmt: skip
    return table


def laws(measured: Sequence[Measured]) -> list[str]:
    """Return the bars with their figures: as far as they were measured."""
    costs = {each.case: each.cost for each in measured}
    lines = []
    largest = costs.get(_memory(10_000, 8, 100_000))
    if largest is not None:
        what = "10,000 tasks after 100,000 runs"
        lines.append(_law(what, f"{largest.protocol:.1f} s", "30", met=largest.protocol <= 30))
        lines.append(_law(what, f"{largest.memory_mb:.0f} MB", "300", met=largest.memory_mb <= 300))
    few, year = costs.get(_memory(100, 1, 10)), costs.get(_memory(100, 1, 8_760))
    if few is not None and year is not None:
        ratio = round(year.protocol / few.protocol, 2)
        lines.append(_law("after 8,760 runs against 10", f"{ratio:.2f} times", "1.2", met=ratio <= 1.2))
    return lines


def _law(what: str, figure: str, limit: str, *, met: bool) -> str:
    return f"{what}: {figure} (at most {limit})" + ("" if met else ": missed")


def draw(measured: Sequence[Measured], file: Path = PICTURE) -> None:
    """Draw seconds by tasks, and by past runs."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "scale"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, (by_tasks, by_past) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for cluster, subtopologies in dict.fromkeys((m.case.cluster, m.case.subtopologies) for m in measured):
        chosen = [
            m
            for m in measured
            if (m.case.cluster, m.case.subtopologies, m.case.past) == (cluster, subtopologies, 10)
        ]
        label = (
            f"{cluster}, {subtopologies} subtopologies"
            if subtopologies > 1
            else f"{cluster}, one subtopology"
        )
        _line(by_tasks, [(m.case.tasks, m.cost.protocol) for m in chosen], label)
    for tasks, subtopologies in ((100, 1), (10_000, 8)):
        chosen = [
            m
            for m in measured
            if (m.case.cluster, m.case.tasks, m.case.subtopologies) == (IN_MEMORY, tasks, subtopologies)
        ]
        _line(by_past, [(m.case.past, m.cost.protocol) for m in chosen], f"{tasks:,} tasks")
    by_tasks.set(
        title="by tasks, after 10 runs", xlabel="tasks", ylabel="seconds of begin, driver and sensors"
    )
    by_past.set(title="by runs that have finished before", xlabel="past runs")
    for axes in (by_tasks, by_past):
        axes.legend(fontsize=8)
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _line(axes: Axes, points: Sequence[tuple[int, float]], label: str) -> None:
    ordered = sorted(points)
    axes.loglog([x for x, _ in ordered], [y for _, y in ordered], marker="o", label=label)
