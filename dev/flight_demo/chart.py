"""Draws mean delay per carrier, one bar per increment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

_COLOURS = ("#b8d4e8", "#5b9bc8", "#1b4f72")


def draw(path: Path, tables: Sequence[tuple[str, Mapping[str, Mapping[str, Any]]]]) -> None:
    """Write the chart.

    :param path: the PNG to write.
    :param tables: label of an increment -> carrier -> totals after it, in the order of the increments.
    """
    mpl.use("Agg")  # no display is needed, or asked for
    import matplotlib.pyplot as plt

    last = tables[-1][1]
    carriers = sorted(last, key=lambda carrier: last[carrier]["mean_delay_minutes"] or 0.0, reverse=True)
    figure, axes = plt.subplots(figsize=(11, 5), layout="constrained")
    width = 0.8 / len(tables)
    for number, (label, table) in enumerate(tables):
        means = [(table.get(carrier) or {}).get("mean_delay_minutes") or 0.0 for carrier in carriers]
        positions = [index + (number - (len(tables) - 1) / 2) * width for index in range(len(carriers))]
        axes.bar(positions, means, width, label=label, color=_COLOURS[number % len(_COLOURS)])
    axes.set_xticks(range(len(carriers)), carriers)
    axes.axhline(0, color="#444444", linewidth=0.8)
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("Departure delay per carrier, New York 2013, after each increment")
    axes.legend(title="data until", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
