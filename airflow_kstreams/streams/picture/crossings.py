"""Finds an order from left to right with few crossings of arrows.

Rule: layer by layer, downwards and then upwards, each vertex moves to the mean place of what it is connected
with in the layer before; then neighbours change places wherever that takes crossings away. The best order
that was met counts; to find the best of all is NP-hard. After section 3 of Gansner, Koutsofios, North and Vo,
"A Technique for Drawing Directed Graphs", 1993.

The order depends on the arguments alone: the same topology is always the same picture.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from airflow_kstreams.streams.picture.places import Link, columns

_SWEEPS = 24


def order(layers: Sequence[int], arrows: Sequence[tuple[int, int]]) -> list[float]:
    """Return a place per vertex; within a layer, smaller ones are further left.

    :param layers: layer of each vertex, 0 at the top.
    :param arrows: pairs of vertices, from an upper to a lower one.
    """
    vertices, steps = _one_layer_a_step(layers, arrows)
    rows: list[list[int]] = [[] for _ in range(max(vertices) + 1)]
    for vertex, layer in enumerate(vertices):
        rows[layer].append(vertex)
    rows = _Ordering(rows, steps).best()
    names = [[str(vertex) for vertex in row] for row in rows]
    links = [Link(upper=str(upper), lower=str(lower)) for upper, lower in steps]
    places = columns(names, {name: 1.0 for row in names for name in row}, links, 0.0)
    return [places[str(vertex)] for vertex in range(len(layers))]


class _Ordering:
    """Rows of vertices while they are ordered.

    :param rows: vertices of each layer.
    :param steps: pairs of vertices of a layer and the next one.
    """

    def __init__(self, rows: list[list[int]], steps: Sequence[tuple[int, int]]) -> None:
        self._rows = rows
        count = sum(map(len, rows))
        self._above: list[list[int]] = [[] for _ in range(count)]
        self._below: list[list[int]] = [[] for _ in range(count)]
        for upper, lower in steps:
            self._above[lower].append(upper)
            self._below[upper].append(lower)
        self._index = [0] * count
        for row in rows:
            self._number(row)

    def best(self) -> list[list[int]]:
        """Return the rows in the best order that was met."""
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            # Every other pair of sweeps turns equally well placed vertices round: a way out of dead ends.
            self._sweep(down=sweep % 2 == 0, turn=sweep % 4 >= 2)
            self._exchange()
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        return best

    def _number(self, row: Sequence[int]) -> None:
        for index, vertex in enumerate(row):
            self._index[vertex] = index

    def _sweep(self, *, down: bool, turn: bool) -> None:
        rows = self._rows if down else self._rows[::-1]
        neighbours = self._above if down else self._below
        for fixed, row in pairwise(rows):
            wishes = {
                vertex: self._wish(neighbours[vertex], len(fixed), self._index[vertex] / len(row))
                for vertex in row
            }
            if turn:
                row.reverse()
            row.sort(key=wishes.__getitem__)
            self._number(row)

    def _wish(self, neighbours: Sequence[int], width: int, own: float) -> float:
        """Return the mean place of the neighbours, in parts of their row's width; one without any stays."""
        if not neighbours:
            return own
        return sum(self._index[vertex] for vertex in neighbours) / len(neighbours) / width

    def _exchange(self) -> None:
        """Exchange vertices side by side as long as that takes crossings away."""
        improved = True
        while improved:
            improved = False
            for row in self._rows:
                for at in range(len(row) - 1):
                    left, right = row[at], row[at + 1]
                    if self._gain(left, right) > 0:
                        row[at], row[at + 1] = right, left
                        self._index[left], self._index[right] = at + 1, at
                        improved = True

    def _gain(self, left: int, right: int) -> int:
        """Return how many crossings go away when two vertices side by side change places."""
        gain = 0
        for neighbours in (self._above, self._below):
            ours = sorted(self._index[vertex] for vertex in neighbours[left])
            for vertex in neighbours[right]:
                place = self._index[vertex]
                gain += len(ours) - bisect_right(ours, place) - bisect_left(ours, place)
        return gain

    def _crossings(self) -> int:
        crossings = 0
        for row in self._rows:
            seen: list[int] = []
            for vertex in row:
                ends = [self._index[lower] for lower in self._below[vertex]]
                crossings += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return crossings


def _one_layer_a_step(
    layers: Sequence[int], arrows: Sequence[tuple[int, int]]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Split every arrow into steps of one layer, with added vertices between them."""
    vertices = list(layers)
    steps: list[tuple[int, int]] = []
    for upper, lower in dict.fromkeys(arrows):
        above = upper
        for layer in range(layers[upper] + 1, layers[lower]):
            steps.append((above, len(vertices)))
            above = len(vertices)
            vertices.append(layer)
        steps.append((above, lower))
    return vertices, steps
