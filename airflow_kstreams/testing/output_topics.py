"""Keeps the records that a topology wrote, and decodes them as they were encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams.errors import KStreamsError, RecordError, TopologyError
from airflow_kstreams.streams.graph.nodes import SinkNode
from airflow_kstreams.streams.graph.serde_binding import bound_to
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.making import changelog_keys, changelog_values
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.in_memory_topics import InMemoryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """A record that a topology wrote.

    :param key: deserialized, None if the record has none.
    :param value: deserialized, None if the record has none.
    :param timestamp_ms: epoch milliseconds.
    :param headers: headers in order; names may repeat.
    :param partition: partition of the topic.
    """

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers = field(default_factory=list)
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWriter:
    """A writer of a topic, with its serdes.

    :param node: name of the sink, or of the store that a changelog belongs to.
    """

    node: str
    key_serde: Serde
    value_serde: Serde

    def same_serdes(self, other: TopicWriter) -> bool:
        """Whether both write the same format."""
        return (self.key_serde, self.value_serde) == (other.key_serde, other.value_serde)


def topic_writers(topology: Topology, application_id: str) -> dict[str, list[TopicWriter]]:
    """Return the writers of each topic: sinks, and stores for their changelogs; real names."""
    writers: dict[str, list[TopicWriter]] = {}
    for node in topology.nodes:
        if isinstance(node, SinkNode):
            topic = topology.real_topic(node.topic, application_id)
            sink = bound_to(topic, node)
            writers.setdefault(topic, []).append(
                TopicWriter(node=sink.name, key_serde=sink.key_serde, value_serde=sink.value_serde)
            )
    for spec in topology.stores:
        if spec.logged:
            changelog = topology.changelog_topic(spec.name, application_id)
            bound = bound_to(changelog, spec)
            writers[changelog] = [
                TopicWriter(
                    node=spec.name, key_serde=changelog_keys(bound), value_serde=changelog_values(bound)
                )
            ]
    return writers


#: Stands for a topic that a processor sends to by name, and for the dead-letter topic.
_BY_NAME = TopicWriter(node="a processor", key_serde=serdes.bytes(), value_serde=serdes.bytes())


class OutputTopics:
    """Keeps the records of each topic until they are read.

    :param writers: the writers of each topic, real names.
    :param others: further topics that may be written; any other topic counts once it has a record.
    """

    def __init__(self, writers: Mapping[str, Sequence[TopicWriter]], others: Sequence[str] = ()) -> None:
        self._writers = writers
        self._unread: dict[str, list[InMemoryRecord]] = {topic: [] for topic in (*writers, *others)}

    def __contains__(self, topic: str) -> bool:
        return topic in self._writers or topic in self._unread

    @property
    def names(self) -> list[str]:
        """Every topic that can be read, sorted."""
        return sorted({*self._writers, *self._unread})

    def add(self, records: Sequence[InMemoryRecord]) -> None:
        """Keep committed records."""
        for record in records:
            self._unread.setdefault(record.at.topic, []).append(record)

    def read(self, topic: str, key_serde: Serde | None, value_serde: Serde | None) -> list[OutputRecord]:
        """Return and forget the records written to a topic since the last read, in order.

        :param key_serde: serde of keys; the topic's writer's unless given.
        :param value_serde: serde of values; the topic's writer's unless given.
        :raises TopologyError: a serde is not given and the topic's writers have different ones.
        :raises RecordError: a record cannot be decoded; nothing is forgotten.
        :raises KStreamsError: a schema registry that the serde needs refuses it or cannot be reached.
        """
        first, *others = self._writers.get(topic, [_BY_NAME])
        if (key_serde is None or value_serde is None) and not all(map(first.same_serdes, others)):
            raise TopologyError(
                f"topic {topic!r} is written with several pairs of serdes, by "
                f"{', '.join(repr(writer.node) for writer in (first, *others))}",
                fix="give the serdes: read_output(topic, key_serde=..., value_serde=...)",
            )
        keys = key_serde.bound(topic, "key") if key_serde else first.key_serde
        values = value_serde.bound(topic, "value") if value_serde else first.value_serde
        decoded = [_decoded(record, keys, values, first.node) for record in self._unread[topic]]
        self._unread[topic].clear()
        return decoded


def _decoded(record: InMemoryRecord, keys: Serde, values: Serde, node: str) -> OutputRecord:
    key, value = record.key_bytes, record.value_bytes
    try:
        return OutputRecord(
            key=None if key is None else keys.deserialize(key),
            value=None if value is None else values.deserialize(value),
            timestamp_ms=record.timestamp_ms,
            headers=list(record.header_list or ()),
            partition=record.at.partition,
        )
    except KStreamsError:
        raise
    except Exception as error:
        raise RecordError(
            f"cannot decode {record.at}@{record.position}, written by {node!r}, with {keys!r} and "
            f"{values!r}: {type(error).__name__}: {error}",
            fix="read it with the serdes it was written with; a serde must decode what it encodes",
            topic=record.at.topic,
            partition=record.at.partition,
            offset=record.position,
            node=node,
        ) from error
