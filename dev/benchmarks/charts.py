"""The suite's charts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dev.benchmarks.results import Result
from dev.benchmarks.systems import HAND_WRITTEN, OURS
from dev.benchmarks.workloads import MATRIX, SYSTEMS, WORKLOADS, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[2] / "docs" / "images"
#: By file name: title, kinds of workloads, and what is drawn of each line.
CHARTS = {
    "benchmarks-throughput.svg": ("Input records per second (longer is better)", ("throughput", "started")),
    "benchmarks-small-runs.svg": ("Seconds (shorter is better)", ("cold", "hourly", "empty")),
}
_OURS, _PEER, _LIMIT = "#1f6f8b", "#b9c4cc", "#e3d3b0"
_COLUMNS = 2
_TITLE_WIDTH = 48


def draw(results: Sequence[Result], folder: Path = FOLDER) -> list[Path]:
    """Draw every chart that there are results for; return their files."""
    drawn = []
    for name, (title, kinds) in CHARTS.items():
        chosen = [
            workload
            for workload in WORKLOADS.values()
            if workload.kind in kinds
            and not workload.name.startswith("guard-")
            and workload not in MATRIX
            and any(result.workload == workload.name for result in results)
        ]
        if chosen:
            file = folder / name
            _draw(title, chosen, results, file)
            drawn.append(file)
    return drawn


def _draw(title: str, workloads: Sequence[Workload], results: Sequence[Result], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "benchmarks"  # the same figures give the same file
    from matplotlib import pyplot as plt

    rows = -(-len(workloads) // _COLUMNS)
    lines = [[result for result in results if result.workload == workload.name] for workload in workloads]
    heights = [max(len(line) for line in lines[row * _COLUMNS : (row + 1) * _COLUMNS]) for row in range(rows)]
    figure, grid = plt.subplots(
        rows,
        _COLUMNS,
        figsize=(12, 0.34 * sum(heights) + 0.9 * rows + 0.4),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    figure.suptitle(title, fontsize=13)
    for axes, workload, line in zip(grid.flat, workloads, lines, strict=False):
        _bars(axes, workload, line)
    for axes in list(grid.flat)[len(workloads) :]:
        axes.set_axis_off()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _bars(axes: Axes, workload: Workload, results: Sequence[Result]) -> None:
    throughput = workload.kind in {"throughput", "started"}
    ordered = sorted(
        results,
        key=lambda result: result.records_per_second if throughput else -result.wall_seconds,
    )
    values = [result.records_per_second if throughput else result.wall_seconds for result in ordered]
    bars = axes.barh(
        [label_of(result) for result in ordered], values, color=[_color(result) for result in ordered]
    )
    axes.bar_label(
        bars,
        [f"{value:,.0f}" if throughput else f"{value:.2f} s" for value in values],
        padding=3,
        fontsize=8,
    )
    axes.set_title(textwrap.fill(f"{workload.name}: {workload.shows}", _TITLE_WIDTH), fontsize=9, loc="left")
    axes.margins(x=0.2)
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.xaxis.set_visible(False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def label_of(result: Result) -> str:
    """Return what the line's system is called."""
    return next(
        (
            system.label
            for system in SYSTEMS
            if (system.name, system.guarantee) == (result.system, result.guarantee)
        ),
        result.system,
    )


def _color(result: Result) -> str:
    if result.system.startswith(OURS.name):
        return _OURS
    is_limit = result.guarantee == "none" or result.system.startswith(HAND_WRITTEN.name)
    return _LIMIT if is_limit else _PEER
