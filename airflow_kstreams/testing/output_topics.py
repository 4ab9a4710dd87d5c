"""Keeps the records that a topology wrote, decodes them as they were encoded, and shows a test the store of a
task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import KStreamsError, RecordError, StateStoreError, TopologyError
from airflow_kstreams.streams.graph.nodes import SinkNode, bound_to
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.making import changelog_keys, changelog_values
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord

T = TypeVar("T")


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
        """Return True if both write the same format."""
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


class OutputTopics:
    """Keeps the records of each topic until they are read.

    :param writers: the writers of each topic, real names.
    :param others: further topics that may be written; any other topic counts once it has a record.
    """

    def __init__(self, writers: Mapping[str, Sequence[TopicWriter]], others: Sequence[str] = ()) -> None:
        self._writers = writers
        self._unread: dict[str, list[LogRecord]] = {topic: [] for topic in (*writers, *others)}

    def __contains__(self, topic: str) -> bool:
        return topic in self._writers or topic in self._unread

    @property
    def names(self) -> list[str]:
        """Every topic that can be read, sorted."""
        return sorted({*self._writers, *self._unread})

    def add(self, records: Sequence[LogRecord]) -> None:
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


def _decoded(record: LogRecord, keys: Serde, values: Serde, node: str) -> OutputRecord:
    key, value, timestamp_ms, headers = record.content
    try:
        return OutputRecord(
            key=None if key is None else keys.deserialize(key),
            value=None if value is None else values.deserialize(value),
            timestamp_ms=timestamp_ms,
            headers=list(headers or ()),
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


@answers_java_names
class StoreView:
    """Reads the store of one task; only the topology writes it.

    Keys and values are Python objects, as the topology puts them. The view is live: each call shows the
    store's present entries, also after a restart of the driver.

    :param store: gives the task's store.
    :param check: raises an error if the store may not be read any more.

    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> words = builder.table("words", store="newest")
    >>> driver = TopologyTestDriver(builder.build(), application_id="demo")
    >>> for key, word in (("a", "ant"), ("b", "bee"), ("c", "cat")):
    ...     driver.pipe_input("words", key=key, value=word, timestamp_ms=0)
    >>> newest = driver.store("newest")
    >>> newest.get("a"), newest.get("z"), newest.approximate_count()
    ('ant', None, 3)
    >>> list(newest.range("b", None))
    [('b', 'bee'), ('c', 'cat')]
    >>> dict(newest.all())
    {'a': 'ant', 'b': 'bee', 'c': 'cat'}
    """

    __slots__ = ("_check", "_store", "name")

    def __init__(self, name: str, store: Callable[[], Any], check: Callable[[], None]) -> None:
        self.name = name
        self._store = store
        self._check = check

    def get(self, key: Any, *window_ms: int) -> Any:
        """Return the value of a key, None if there is none.

        :param window_ms: the window's start in a window store; in a session store, the session's start and
            end.
        :raises StateStoreError: the key is None, or does not fit the store's key serde.
        """
        return self._read(lambda store: store.get(key, *window_ms), key)

    def range(self, *bounds: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries between bounds, both included; None leaves an end open.

        :param bounds: first and last key, for (key, value) in the order of serialized keys; in a window or
            session store a key, then two times, see :class:`WindowStore`, :class:`SessionStore`.
        :raises StateStoreError: a key does not fit the store's key serde.
        """
        return self._read(lambda store: store.range(*bounds), *bounds)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all entries, as the store's own ``all`` does."""
        return self._read(lambda store: store.all())

    def approximate_count(self) -> int:
        """Return the number of entries."""
        count: int = self._read(lambda store: store.approximate_count())
        return count

    def _read(self, read: Callable[[Any], T], *keys: Any) -> T:
        self._check()
        try:
            return read(self._store())
        except KStreamsError:
            raise
        except Exception as error:
            kinds = " and ".join(type(key).__name__ for key in keys)
            raise StateStoreError(
                f"store {self.name!r} was asked for keys of type {kinds}, which its key serde does not take: "
                f"{type(error).__name__}: {error}",
                fix="ask with keys as the topology puts them",
            ) from error


#: Stands for a topic that a processor sends to by name, and for the dead-letter topic.
_BY_NAME = TopicWriter(node="a processor", key_serde=serdes.bytes(), value_serde=serdes.bytes())
