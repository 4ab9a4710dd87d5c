"""Checks the records that a test pipes into a topology, and serializes them for the topology's sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RecordError, TopologyError
from airflow_kstreams.streams.graph.nodes import SourceNode, bound_to, global_tables_of
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.in_memory_kafka.log import Content, LogRecord
from airflow_kstreams.testing.in_memory_topics import InMemoryTopics, hint


class InputTopics:
    """The topics that a topology reads.

    :param topics: the topics that records are written to.
    """

    def __init__(self, topology: Topology, application_id: str, topics: InMemoryTopics) -> None:
        self._topics = topics
        self._sources: Mapping[str, SourceNode] = {
            topic: bound_to(topic, node)
            for node in topology.nodes
            if isinstance(node, SourceNode)
            for topic in (topology.real_topic(logical, application_id) for logical in node.topics)
        } | {
            topic: bound_to(
                topic,
                SourceNode(
                    name=f"global table {topic}",
                    topics=(topic,),
                    key_serde=table.key_serde,
                    value_serde=table.value_serde,
                ),
            )
            for topic, table in global_tables_of(topology.nodes).items()
        }

    def append(
        self,
        topic: str,
        key: Any,
        value: Any,
        *,
        timestamp_ms: int,
        partition: int | None,
        headers: Headers | None,
    ) -> LogRecord:
        """Write a record to a topic and return it with its offset.

        :param topic: name in Kafka.
        :param partition: the partition; None to choose it by the key.
        :raises TopologyError: the topology does not read the topic.
        :raises ConfigError: partition, timestamp or headers are not valid.
        :raises RecordError: the key or value does not fit its serde.
        :raises KStreamsError: a schema registry that the serde needs refuses it or cannot be reached.
        """
        source = self._source(topic)
        key_bytes = _serialized("key", key, source.key_serde, source, topic)
        value_bytes = _serialized("value", value, source.value_serde, source, topic)
        partition = self._of_key(topic, key, source) if partition is None else partition
        return self.append_bytes(
            topic, key_bytes, value_bytes, timestamp_ms=timestamp_ms, partition=partition, headers=headers
        )

    def append_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int,
        partition: int | None,
        headers: Headers | None,
    ) -> LogRecord:
        """Write a record whose bytes the source may be unable to decode, and return it with its offset.

        :param topic: name in Kafka.
        :param partition: the partition; None to choose it by the key.
        :raises TopologyError: the topology does not read the topic.
        :raises ConfigError: partition, timestamp or headers are not valid.
        """
        self._source(topic)
        _check_timestamp("timestamp_ms", timestamp_ms)
        checked_headers = _checked_headers(headers)
        self._check_partition(topic, partition)
        return self._appended(topic, (key, value, timestamp_ms, checked_headers), partition)

    def append_all(self, topic: str, records: object, *, partition: int | None) -> list[LogRecord]:
        """Write records to a topic and return them with their offsets; all of them or, on an error, none.

        :param topic: name in Kafka.
        :param records: a triple (key, value, timestamp_ms) for each record.
        :param partition: the partition; None to choose it by each key.
        :raises TopologyError: the topology does not read the topic.
        :raises ConfigError: the records are no such triples, or partition or a timestamp is not valid.
        :raises RecordError: a key or value does not fit its serde.
        :raises KStreamsError: a schema registry that the serde needs refuses it or cannot be reached.
        """
        source = self._source(topic)
        self._check_partition(topic, partition)
        ready: list[tuple[Content, int | None]] = []
        for number, (key, value, timestamp_ms) in enumerate(_triples(records)):
            _check_timestamp(f"timestamp_ms of records[{number}]", timestamp_ms)
            key_bytes = _serialized(f"key of records[{number}]", key, source.key_serde, source, topic)
            value_bytes = _serialized(f"value of records[{number}]", value, source.value_serde, source, topic)
            at = self._of_key(topic, key, source) if partition is None else partition
            ready.append(((key_bytes, value_bytes, timestamp_ms, None), at))
        return [self._appended(topic, content, at) for content, at in ready]

    def decoded(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        """Return the key and value that the source decodes from a record's bytes.

        :param topic: name in Kafka.
        :raises TopologyError: the topology does not read the topic.
        :raises Exception: any error of the source's serde.
        """
        source = self._source(topic)
        return (
            None if key is None else source.key_serde.deserialize(key),
            None if value is None else source.value_serde.deserialize(value),
        )

    def _source(self, topic: str) -> SourceNode:
        source = self._sources.get(topic)
        if source is None:
            names = sorted(self._sources)
            raise TopologyError(
                f"the topology does not read the topic {topic!r}{hint(topic, names)}",
                fix=f"pipe into a topic it reads: {', '.join(names)}",
            )
        return source

    def _of_key(self, topic: str, key: Any, source: SourceNode) -> int | None:
        """Return the partition of a part of a key that decides it; None if the whole key does."""
        partition_bytes = source.key_serde.partition_bytes
        if key is None or partition_bytes is None:
            return None
        return self._topics.partition_for(topic, partition_bytes(key))

    def _check_partition(self, topic: str, partition: int | None) -> None:
        count = self._topics.partitions[topic]
        if partition is not None and partition not in range(count):
            raise ConfigError(
                f"topic {topic!r} has no partition {partition!r}: its partitions are 0 to {count - 1}",
                fix="name one of them, or give the topic more with partitions={topic: count}",
            )

    def _appended(self, topic: str, content: Content, partition: int | None) -> LogRecord:
        at = self._topics.partition_for(topic, content[0]) if partition is None else partition
        return self._topics.append(TopicPartition(topic, at), content)


def _triples(records: object) -> Iterator[tuple[Any, Any, Any]]:
    fix = "give a list of triples: [(key, value, timestamp_ms), ...]"
    if not isinstance(records, Iterable) or isinstance(records, str | bytes | Mapping):
        raise ConfigError(
            f"records is of type {type(records).__name__}, expected (key, value, timestamp_ms) of each",
            fix=fix,
        )
    for number, record in enumerate(records):
        match record:
            case (key, value, timestamp_ms):
                yield key, value, timestamp_ms
            case _:
                raise ConfigError(
                    f"records[{number}] is of type {type(record).__name__}"
                    f"{f' and length {len(record)}' if isinstance(record, Sized) else ''}, "
                    "expected (key, value, timestamp_ms)",
                    fix=fix,
                )


def _serialized(what: str, given: Any, serde: Serde, source: SourceNode, topic: str) -> bytes | None:
    if given is None:
        return None
    try:
        return serde.serialize(given)
    except KStreamsError:  # no fault of the record: the error has its own cause and remedy
        raise
    except Exception as error:
        raise RecordError(
            f"cannot encode the {what}, of type {type(given).__name__}, for topic {topic!r} with {serde!r} "
            f"of source {source.name!r} ({source.site}): {type(error).__name__}: {error}",
            fix=f"pipe a {what.split()[0]} that the serde takes, or give the source another serde",
            topic=topic,
            partition=-1,
            offset=-1,
            node=source.name,
        ) from error


def _check_timestamp(what: str, timestamp_ms: object) -> None:
    if not isinstance(timestamp_ms, int) or not -1 <= timestamp_ms < 2**63:
        raise ConfigError(
            f"{what} is {timestamp_ms!r}, expected a whole number from 0 to 2**63 - 1, or -1 for none",
            fix="give epoch milliseconds",
        )


def _checked_headers(headers: Headers | None) -> Headers | None:
    for header in headers or ():
        match header:
            case (str(), bytes() | None):
                continue
        raise ConfigError(
            f"a header is {header!r:.80}, expected a pair of a text and bytes or None",
            fix='give a list of pairs: headers=[("name", b"value")]',
        )
    return list(headers) if headers else None
