"""The order from left to right: how many arrows cross, against the best of all orders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise, permutations, product

import pytest

from airflow_kstreams.streams.picture.crossings import order

Arrows = Sequence[tuple[int, int]]


def crossings(places: Mapping[int, float] | Sequence[float], arrows: Arrows, layers: Sequence[int]) -> int:
    return sum(
        layers[a] == layers[c] and (places[a] - places[c]) * (places[b] - places[d]) < 0
        for (a, b), (c, d) in combinations(arrows, 2)
    )


def fewest(rows: Sequence[Sequence[int]], arrows: Arrows, layers: Sequence[int]) -> int:
    """Try all orders of all rows."""
    return min(
        crossings({vertex: at for row in rows_now for at, vertex in enumerate(row)}, arrows, layers)
        for rows_now in product(*(list(permutations(row)) for row in rows))
    )


def layered(seed: int, widths: Iterable[int]) -> tuple[list[list[int]], list[int], list[tuple[int, int]]]:
    draw = random.Random(seed)
    rows: list[list[int]] = []
    layers: list[int] = []
    for layer, width in enumerate(widths):
        rows.append([*range(len(layers), len(layers) + width)])
        layers += [layer] * width
    pairs = [(upper, lower) for above, below in pairwise(rows) for upper in above for lower in below]
    return rows, layers, sorted(draw.sample(pairs, len(pairs) // 2))


def test_hardly_an_order_has_fewer_crossings_when_all_are_tried() -> None:
    found = best = 0
    for seed in range(20):
        rows, layers, arrows = layered(seed, (3, 4, 3))
        found += crossings(order(layers, arrows), arrows, layers)
        best += fewest(rows, arrows, layers)
    assert found <= 1.1 * best


def test_trees_have_no_crossings_whatever_the_order_they_come_in() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        layers = [vertex.bit_length() for vertex in range(1, 32)]
        names = draw.sample(range(31), 31)
        arrows = [(names[(vertex - 1) // 2], names[vertex]) for vertex in range(1, 31)]
        shuffled = [0] * 31
        for vertex, name in enumerate(names):
            shuffled[name] = layers[vertex] - 1
        assert crossings(order(shuffled, arrows), arrows, shuffled) == 0


def test_arrow_passes_beside_what_it_skips() -> None:
    # 0 -> 1 -> 2 and 0 -> 2, beside another chain: the long arrow needs no crossing.
    layers, arrows = [0, 1, 2, 0, 1, 2], [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
    places = order(layers, arrows)
    first = [places[vertex] < places[vertex + 3] for vertex in range(3)]
    assert len(set(first)) == 1


@pytest.mark.parametrize(("layers", "arrows"), [([0], []), ([0, 0], []), ([1, 0, 3], [(1, 0)])])
def test_vertices_of_a_layer_have_places_of_their_own(
    layers: list[int], arrows: list[tuple[int, int]]
) -> None:
    places = order(layers, arrows)
    assert len({*zip(layers, places, strict=True)}) == len(layers)
