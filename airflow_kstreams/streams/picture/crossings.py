"""Finds an order from left to right with few crossings, by igraph's layered (Sugiyama) layout."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.streams.errors import ConfigError


def order(layers: Sequence[int], arrows: Sequence[tuple[int, int]]) -> list[float]:
    """Return a number per vertex; within a layer, smaller ones are further left.

    :param layers: layer of each vertex, 0 at the top.
    :param arrows: pairs of vertices, from an upper to a lower one.
    :raises ConfigError: igraph is not installed.
    """
    try:
        # Imported here: it takes a second, and only drawing requires it.
        import igraph
    except ImportError:
        raise ConfigError(
            "drawing a topology needs igraph, which is not installed",
            fix="pip install 'airflow-kstreams[draw]'",
        ) from None
    vertices, steps = _one_layer_a_step(layers, arrows)
    graph = igraph.Graph(n=len(vertices), edges=steps, directed=True)
    layout = graph.layout_sugiyama(layers=vertices)
    return [float(layout[vertex][0]) for vertex in range(len(layers))]


def _one_layer_a_step(
    layers: Sequence[int], arrows: Sequence[tuple[int, int]]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Split every arrow into steps of one layer, with added vertices between them.

    igraph would do that itself, but its version 1.0.0 then overwrites memory: random graphs with longer
    arrows, or several between the same vertices, crash the process.
    """
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
