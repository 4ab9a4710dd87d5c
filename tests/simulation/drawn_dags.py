"""Drawn topologies of many subtopologies, and what must come out of them, worked out without any topology.

A value carries its way: every edge between two subtopologies appends its own mark. So each way through the
DAG gives another value, and a record that is lost, doubled or took a wrong turn shows.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from airflow_kstreams.streams import KStream, KStreamBuilder, Topology
from airflow_kstreams.streams.serde import serdes

#: Partitions of all topics together; bounds the tasks of an example.
_PARTITIONS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What a subtopology sends on.

    :param stage: which one, by its place in ``Dag.stages``.
    :param mark: appended to the values.
    :param divisor: values whose checksum it divides are dropped; 0 for none.
    """

    stage: int
    mark: str
    divisor: int = 0

    def keeps(self, value: str) -> bool:
        """Whether a value takes this edge."""
        return not self.divisor or zlib.crc32(value.encode()) % self.divisor > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A subtopology: it reads topics, or a repartition topic that an edge is rekeyed to.

    :param rekeyed: the edge, for a subtopology with a store behind a repartition topic.
    :param store: names the store and the repartition topic.
    """

    topics: tuple[str, ...] = ()
    rekeyed: Edge | None = None
    store: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A drawn topology.

    :param partitions: of every topic that is not internal.
    :param stages: in an order in which writers stand before readers.
    :param sends: topic -> edges that write it; outputs and topics between subtopologies.
    """

    partitions: Mapping[str, int]
    stages: tuple[Stage, ...]
    sends: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        """Topics that nobody here writes."""
        return [topic for topic in self.partitions if topic.startswith("in")]

    @property
    def between(self) -> list[str]:
        """The user's own topics between subtopologies."""
        return [topic for topic in self.partitions if topic.startswith("mid")]

    @property
    def outputs(self) -> list[str]:
        """Topics that nobody here reads."""
        return [topic for topic in self.partitions if topic.startswith("out")]

    def build(self) -> Topology:
        """Return the topology."""
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        streams: list[KStream] = []
        for stage in self.stages:
            if stage.rekeyed is None:
                streams.append(self._read(builder, streams, stage))
            else:
                grouped = _sent(streams, stage.rekeyed).group_by(lambda key, value: value, name=stage.store)
                streams.append(grouped.aggregate(lambda: "", _joined, store=stage.store).to_stream())
        for topic, edges in self.sends.items():
            for edge in edges if not self._goes_through(topic) else ():
                _sent(streams, edge).send_to(topic)
        return builder.build()

    def results(self, arrived: Mapping[str, list[str]]) -> dict[str, Counter[str]]:
        """Return what each output topic must hold.

        :param arrived: what was written from outside, by topic; outsiders' records between included.
        """
        held: list[list[str]] = []
        for stage in self.stages:
            if stage.rekeyed is None:
                held.append(
                    [
                        value
                        for topic in stage.topics
                        for value in (*arrived.get(topic, ()), *self._sent(topic, held))
                    ]
                )
            else:
                held.append(_taking(stage.rekeyed, held))
        return {topic: Counter(self._sent(topic, held)) for topic in self.outputs}

    def _sent(self, topic: str, held: list[list[str]]) -> list[str]:
        return [value for edge in self.sends.get(topic, ()) for value in _taking(edge, held)]

    def _goes_through(self, topic: str) -> bool:
        """Whether one writer and one reader, of this topic alone, are all there is."""
        return len(self.sends[topic]) == 1 and any(stage.topics == (topic,) for stage in self.stages)

    def _read(self, builder: KStreamBuilder, streams: list[KStream], stage: Stage) -> KStream:
        first = stage.topics[0]
        if stage.topics == (first,) and first in self.sends and self._goes_through(first):
            return _sent(streams, self.sends[first][0]).through(first)
        # Topics of one source, and sources that are merged, come to the same: one subtopology.
        if len(stage.topics) > 1 and stage.topics[-1].startswith("in-extra"):
            return builder.stream(*stage.topics[:-1]).merge(builder.stream(stage.topics[-1]))
        return builder.stream(*stage.topics)


def _sent(streams: list[KStream], edge: Edge) -> KStream:
    return (
        streams[edge.stage]
        .filter(lambda key, value: edge.keeps(value))
        .map_values(lambda value: value + edge.mark)
    )


def _taking(edge: Edge, held: list[list[str]]) -> list[str]:
    return [value + edge.mark for value in held[edge.stage] if edge.keeps(value)]


def _joined(key: str, value: str, so_far: str) -> str:
    """Keys are values here and come once, so that what was processed twice shows."""
    return f"{so_far}|{value}" if so_far else value


class _Drawing:
    """Draws one DAG, level by level."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._left = _PARTITIONS
        self._marks = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        self.partitions: dict[str, int] = {}
        self.stages: list[Stage] = []
        self.sends: dict[str, list[Edge]] = {}

    def dag(self) -> Dag:
        for number in range(self._draw(st.integers(1, 2))):
            self.stages.append(Stage(topics=(self._topic(f"in_{number}"),)))
        level = range(len(self.stages))
        for depth in range(self._draw(st.integers(1, 3))):
            level = self._level(depth, level)
        self._outputs()
        return Dag(
            partitions=self.partitions,
            stages=tuple(self.stages),
            sends={topic: tuple(edges) for topic, edges in self.sends.items()},
        )

    def _level(self, depth: int, before: range) -> range:
        """Add the subtopologies of the next level: one or two topics, read together or apart."""
        first = len(self.stages)
        topics: list[str] = []
        for number in range(self._draw(st.integers(1, 2))):
            name = f"{depth}-{number}"
            if self._draw(st.integers(0, 3)) == 0:
                rekeyed = self._edge(self._draw(st.sampled_from(before)))
                self.stages.append(Stage(rekeyed=rekeyed, store=f"s{name}"))
                continue
            topics.append(self._topic(f"mid_{name}"))
            writers = self._draw(st.lists(st.integers(0, first - 1), max_size=2))
            writers.append(self._draw(st.sampled_from(before)))
            self.sends[topics[-1]] = [self._edge(writer) for writer in sorted(set(writers))]
        if len(topics) == 2 and self._draw(st.booleans()):
            self.stages.append(Stage(topics=tuple(topics)))
        elif topics and self._draw(st.integers(0, 4)) == 0:
            extra = self._topic(f"in-extra_{depth}")
            self.stages += [Stage(topics=(topics[0], extra)), *(Stage(topics=(t,)) for t in topics[1:])]
        else:
            self.stages += [Stage(topics=(topic,)) for topic in topics]
        return range(first, len(self.stages))

    def _outputs(self) -> None:
        """Send every end of the DAG, and some stages before it, to one or two output topics."""
        outputs = [self._topic(f"out_{number}") for number in range(self._draw(st.integers(1, 2)))]
        sending = {edge.stage for edges in self.sends.values() for edge in edges}
        sending |= {stage.rekeyed.stage for stage in self.stages if stage.rekeyed is not None}
        for number in range(len(self.stages)):
            if number not in sending or self._draw(st.integers(0, 3)) == 0:
                topic = self._draw(st.sampled_from(outputs))
                self.sends.setdefault(topic, []).append(self._edge(number))

    def _edge(self, stage: int) -> Edge:
        divisor = self._draw(st.sampled_from((0, 0, 0, 2, 3)))
        return Edge(stage=stage, mark=next(self._marks), divisor=divisor)

    def _topic(self, name: str) -> str:
        many = self._draw(st.one_of(st.integers(1, 3), st.integers(1, 12)))
        self.partitions[name] = max(1, min(many, self._left))
        self._left -= self.partitions[name]
        return name


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    """Draw a topology of two to four levels of subtopologies, with fan-in, fan-out and diamonds."""
    return _Drawing(draw).dag()
