"""The picture of calls side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dev.benchmarks.calls.bars import threads
from dev.benchmarks.calls.cases import BAR_MS, LATENCIES_MS, SYSTEMS, THREADS, Order, beside
from dev.benchmarks.calls.measured import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "calls.svg"


def draw(results: Results, file: Path = PICTURE) -> None:
    """Draw records per second by latency, and by threads, and memory by records."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "calls"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(2, 2, figsize=(12, 7.5), layout="constrained")
    by_key, unordered, by_threads, memory = grid.flat
    _by_latency(by_key, results, "key")
    _by_latency(unordered, results, "unordered")
    _by_threads(by_threads, results)
    _memory(memory, results)
    for axes in grid.flat:
        axes.set_visible(bool(axes.lines))
        if axes.lines:
            axes.legend(fontsize=8)
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _by_latency(axes: Axes, results: Results, order: Order) -> None:
    for case in beside(order, "uniform", BAR_MS):
        found = [
            results.of(msgspec.structs.replace(case, latency_ms=latency_ms)) for latency_ms in LATENCIES_MS
        ]
        points = [(each.case.latency_ms, each.rate) for each in found if each is not None]
        system = SYSTEMS[case.system]
        guarantee = "no guarantee" if system.guarantee == "none" else system.guarantee
        _line(axes, points, f"{system.title}, {guarantee}")
    axes.set(
        title=f"order {order}, uniform keys, 256 in flight",
        xlabel="milliseconds that a call sleeps",
        ylabel="records per second",
        ylim=(0, None),
    )


def _by_threads(axes: Axes, results: Results) -> None:
    found = [each for number in THREADS if (each := results.of(threads(number))) is not None]
    _line(axes, [(each.case.in_flight, each.rate) for each in found], "airflow_kstreams, threads")
    bounds = [(each.case.in_flight, each.case.in_flight * 1_000 / each.latency_ms) for each in found]
    _line(axes, bounds, "threads / latency of a call", marker="")
    axes.set(title=f"threads, {BAR_MS} ms", xlabel="threads", ylabel="records per second", ylim=(0, None))


def _memory(axes: Axes, results: Results) -> None:
    for curve in results.memory:
        how = f"{curve.in_flight} calls in flight" if curve.in_flight else "a plain node"
        points = [(records / curve.records, megabytes) for records, megabytes in curve.points]
        _line(axes, points, f"{curve.records:,} records of {curve.value_bytes:,} bytes, {how}", marker="")
    axes.set(title="memory of a task", xlabel="share of the records", ylabel="MB", ylim=(0, None))


def _line(axes: Axes, points: Sequence[tuple[float, float]], label: str, *, marker: str = "o") -> None:
    if points:
        axes.plot([x for x, _ in points], [y for _, y in points], marker=marker, label=label)
