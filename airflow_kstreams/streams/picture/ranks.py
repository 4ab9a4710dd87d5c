"""Assigns a rank to each topic and subtopology, and a layer of its frame to each node and store.

Longest paths alone would not do: topics and frames would not alternate, and sinks would not be at the bottom.

Rule: a subtopology lies below every topic that it reads and another one writes, a topic below all its
writers; a topic that no subtopology writes lies right above its reader. Within a frame sources are the top
layer and sinks the bottom one, so that arrows from and to topics never cross another node; between them a
node lies right below the lowest of its parents and stores.

Invariant: every arrow goes from a higher rank or layer to a lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.streams.picture.chart import Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The vertical order of a chart.

    :param subtopologies: id -> rank; always odd.
    :param topics: shape id of a topic or a table -> rank; always even.
    :param layers: shape id of a node or store -> layer in its frame.
    """

    subtopologies: dict[int, int]
    topics: dict[str, int]
    layers: dict[str, int]

    @property
    def count(self) -> int:
        """Number of ranks."""
        return 1 + max((*self.subtopologies.values(), *self.topics.values()))

    def depth(self, subtopology: int, chart: Chart) -> int:
        """Return the number of layers of a frame."""
        return 1 + max(self.layers[shape.id] for shape in chart.of(subtopology))


def ranks(chart: Chart) -> Ranks:
    """Return the vertical order of a chart."""
    subtopologies, topics = _outside(chart)
    layers: dict[str, int] = {}
    for subtopology in chart.subtopologies:
        layers |= _inside(chart, subtopology)
    return Ranks(subtopologies=subtopologies, topics=topics, layers=layers)


def _outside(chart: Chart) -> tuple[dict[int, int], dict[str, int]]:
    owner = {shape.id: shape.subtopology for shape in chart.shapes}
    readers: dict[str, int] = {}
    writers: dict[str, list[int]] = {}
    for arrow in chart.arrows:
        start, end = owner[arrow.start], owner[arrow.end]
        if start is None and end is not None:
            readers[arrow.start] = end
        elif end is None and start is not None:
            writers.setdefault(arrow.end, []).append(start)
    ranked: dict[int, int] = {}
    topics: dict[str, int] = {}
    for subtopology in chart.subtopologies:  # in running order, so that the topics it reads are ranked before
        above = [
            topics[topic] for topic, reader in readers.items() if reader == subtopology and topic in topics
        ]
        ranked[subtopology] = 1 + max(above, default=0)
        for topic, subs in writers.items():
            if all(writer in ranked for writer in subs):
                topics[topic] = 1 + max(ranked[writer] for writer in subs)
    for topic, reader in readers.items():
        topics.setdefault(topic, ranked[reader] - 1)
    return ranked, topics


def _inside(chart: Chart, subtopology: int) -> dict[str, int]:
    shapes = chart.of(subtopology)
    layers = dict.fromkeys((shape.id for shape in shapes), 0)
    above: dict[str, list[str]] = {shape.id: [] for shape in shapes}
    for arrow in chart.arrows:
        if arrow.end in above and arrow.start in layers:
            above[arrow.end].append(arrow.start)
    for shape in shapes:  # upper shapes come first
        layers[shape.id] = 1 + max((layers[upper] for upper in above[shape.id]), default=-1)
    bottom = max(layers.values())
    return layers | {shape.id: bottom for shape in shapes if shape.kind == "sink"}
