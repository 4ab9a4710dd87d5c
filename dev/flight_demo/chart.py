"""Draws what the demo found: mean delay per airline after each increment, and in fair and foul weather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Totals = Mapping[str, Mapping[str, Any]]

_COLOURS = ("#b8d4e8", "#5b9bc8", "#1b4f72")
_FAIR, _FOUL = "#e0a030", "#4a4e69"


def draw(path: Path, tables: Sequence[tuple[str, Totals]]) -> None:
    """Write the chart.

    :param path: the PNG to write.
    :param tables: label of an increment -> carrier -> totals after it, in the order of the increments.
    """
    mpl.use("Agg")  # no display is needed, or asked for
    import matplotlib.pyplot as plt

    last = tables[-1][1]
    carriers = sorted(last, key=lambda carrier: last[carrier]["mean_delay_minutes"] or 0.0)
    figure, (increments, weather) = plt.subplots(
        1, 2, figsize=(12, 6.5), layout="constrained", sharey=True, width_ratios=(3, 2)
    )
    figure.suptitle("Departure delay per airline, New York 2013, in minutes", fontsize=14)
    _increments(increments, carriers, tables)
    _weather(weather, carriers, last)
    increments.set_yticks(
        range(len(carriers)), [f"{last[carrier]['name']}  {carrier}" for carrier in carriers]
    )
    for axes in (increments, weather):
        axes.axvline(0, color="#444444", linewidth=0.8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _increments(axes: Axes, carriers: Sequence[str], tables: Sequence[tuple[str, Totals]]) -> None:
    height = 0.8 / len(tables)
    for number, (label, table) in enumerate(tables):
        means = [(table.get(carrier) or {}).get("mean_delay_minutes") or 0.0 for carrier in carriers]
        positions = [index - (number - (len(tables) - 1) / 2) * height for index in range(len(carriers))]
        axes.barh(positions, means, height, label=label, color=_COLOURS[number % len(_COLOURS)])
    axes.set_title("mean after each increment", loc="left", fontsize=11)
    axes.legend(title="data until", frameon=False, loc="lower right")


def _weather(axes: Axes, carriers: Sequence[str], totals: Totals) -> None:
    skies = (("fair", _FAIR, "fair weather"), ("foul", _FOUL, "rain, snow or low visibility"))
    for row, carrier in enumerate(carriers):
        means = [totals[carrier][f"mean_delay_{sky}_minutes"] for sky, _, _ in skies]
        if None not in means:
            axes.plot(means, [row, row], color="#bbbbbb", linewidth=2, zorder=1)
    for sky, colour, label in skies:
        known = [
            (totals[carrier][f"mean_delay_{sky}_minutes"], row)
            for row, carrier in enumerate(carriers)
            if totals[carrier][f"mean_delay_{sky}_minutes"] is not None
        ]
        axes.scatter(
            [mean for mean, _ in known], [row for _, row in known], color=colour, label=label, zorder=2
        )
    axes.set_title("mean by the weather at the scheduled hour", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="lower right")
