"""Makes the chart of subtopologies and the topics between them, without nodes and stores: what the record
of a run knows of its topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.picture.chart import Arrow, Chart, Shape
from airflow_kstreams.streams.printable import printable

#: Subtopologies and topics that are drawn; with more the picture says nothing any more.
_MOST = 60
#: Characters of a topic's name that are drawn: as many as Kafka allows.
_MOST_NAME = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A subtopology.

    :param subtopology: its id.
    :param reads: names of the topics that it reads.
    :param writes: names of the topics that it writes.
    """

    subtopology: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def flow_chart(flows: Sequence[Flow]) -> tuple[Chart, dict[Arrow, str]] | None:
    """Return a chart, and the topic of each of its arrows; None where it cannot be drawn: there is too
    much of it, or a subtopology reads what no earlier one writes.

    :param flows: the subtopologies, in running order.
    """
    topics = {
        topic: Shape(id=f"topic{number}", kind="topic", name=printable(topic[:_MOST_NAME]), note="topic")
        for number, topic in enumerate(
            dict.fromkeys(t for flow in flows for t in (*flow.reads, *flow.writes))
        )
    }
    if not flows or len(flows) + len(topics) > _MOST or not _in_order(flows):
        return None
    shapes, arrows = [*topics.values()], dict[Arrow, str]()
    for number, flow in enumerate(flows):
        own = Shape(
            id=f"sub{number}",
            kind="processor",
            name=f"subtopology {flow.subtopology}",
            note="runs as one Spark job",
            subtopology=flow.subtopology,
        )
        shapes.append(own)
        arrows |= {Arrow(start=topics[topic].id, end=own.id): topic for topic in dict.fromkeys(flow.reads)}
        arrows |= {Arrow(start=own.id, end=topics[topic].id): topic for topic in dict.fromkeys(flow.writes)}
    subtopologies = tuple(flow.subtopology for flow in flows)
    return Chart(shapes=tuple(shapes), arrows=tuple(arrows), subtopologies=subtopologies), arrows


def _in_order(flows: Sequence[Flow]) -> bool:
    """Return whether each topic is written before it is read, and read by one subtopology: what lies
    lower in the picture comes later.
    """
    if len({flow.subtopology for flow in flows}) < len(flows):
        return False
    read = set[str]()
    for flow in flows:
        if read.intersection((*flow.reads, *flow.writes)) or {*flow.reads} & {*flow.writes}:
            return False
        read.update(flow.reads)
    return True
