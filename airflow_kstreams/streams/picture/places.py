"""Places things horizontally, once their order from left to right is known.

Rule: things that an arrow connects should lie one above the other. The sum over all arrows of weight times
squared horizontal distance is made small, row by row: while the other rows are fixed, the best places of one
row that keep its order and its gaps are found exactly, by pooling things that would overlap (isotonic
regression). Each step makes the sum smaller, so a fixed number of steps is enough and the result is always
the same.

Invariant: after every step no two things of a row are nearer than the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An arrow between things of two rows.

    :param upper: the upper thing.
    :param lower: the lower thing.
    :param upper_dx: start of the arrow, from the middle of the upper thing.
    :param lower_dx: end of the arrow, from the middle of the lower thing.
    :param weight: importance of a straight arrow.
    """

    upper: str
    lower: str
    upper_dx: float = 0.0
    lower_dx: float = 0.0
    weight: float = 1.0


def columns(
    rows: Sequence[Sequence[str]], widths: Mapping[str, float], links: Sequence[Link], gap: float
) -> dict[str, float]:
    """Return the middle of every thing.

    :param rows: things from left to right, from top to bottom.
    :param widths: width of every thing.
    :param gap: smallest distance of things side by side.
    """
    pulls: dict[str, list[tuple[str, float, float]]] = {name: [] for row in rows for name in row}
    for link in links:
        shift = link.upper_dx - link.lower_dx
        pulls[link.lower].append((link.upper, shift, link.weight))
        pulls[link.upper].append((link.lower, -shift, link.weight))
    middles: dict[str, float] = {}
    for row in rows:
        middles.update(zip(row, _spread(row, widths, gap, [(0.0, 1.0)] * len(row)), strict=True))
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wishes = [_wish(name, pulls[name], middles) for name in row]
            middles.update(zip(row, _spread(row, widths, gap, wishes), strict=True))
    return middles


def _wish(
    name: str, pulls: Sequence[tuple[str, float, float]], middles: Mapping[str, float]
) -> tuple[float, float]:
    """Return the best place of a thing if it were alone, and its weight."""
    total = sum(weight for _, _, weight in pulls)
    if not total:
        return middles[name], 0.01
    return sum(weight * (middles[other] + shift) for other, shift, weight in pulls) / total, total


def _spread(
    row: Sequence[str], widths: Mapping[str, float], gap: float, wishes: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the places nearest to the wished ones that keep order and gaps."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    pools: list[tuple[float, float, int]] = []  # place, weight, how many
    for (place, weight), offset in zip(wishes, offsets, strict=False):
        pool = (place - offset, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            left_place, left_weight, count = pools.pop()
            both = left_weight + pool[1]
            pool = ((left_place * left_weight + pool[0] * pool[1]) / both, both, count + pool[2])
        pools.append(pool)
    places = [place for place, _, count in pools for _ in range(count)]
    return [place + offset for place, offset in zip(places, offsets, strict=False)]
