"""Implements the port ``AdminPort`` in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import (
    Allowed,
    GroupMember,
    Isolation,
    TopicConfigs,
    TopicDescription,
    TopicPartition,
    TopicSpec,
)
from airflow_kstreams.testing.in_memory_kafka.broker import Broker, missing
from airflow_kstreams.testing.in_memory_kafka.log import PartitionLog

_TIMEOUT_SECONDS = 60.0

#: As a broker of one node, made for development, has them.
_BROKER: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "message.max.bytes": "1048588",
    "offsets.retention.minutes": "10080",
    "offsets.topic.replication.factor": "1",
    "process.roles": "broker,controller",
    "transaction.partition.verification.enable": "true",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transactional.id.expiration.ms": "604800000",
}


class InMemoryAdmin:
    """The topics and offsets of the in-memory broker.

    :param broker: the broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def topic_names(self) -> set[str]:
        """Return the names of all topics."""
        self._broker.catch_up()
        return set(self._broker.topics)

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Describe topics; missing ones are absent from the result."""
        self._broker.catch_up()
        return self._broker.describe(names)

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        """Return the settings of topics that are in force and that the engine asks for."""
        self._broker.catch_up()
        topics = self._broker.topics
        return TopicConfigs(
            {name: self._broker.configs_of(topics[name]) for name in names if name in topics},
            {
                name: missing(f"describing the settings of topic {name}", name)
                for name in names
                if name not in topics
            },
        )

    def broker_configs(self) -> dict[str, str]:
        """Return the broker's settings, those that the engine asks for."""
        self._broker.catch_up()
        limit = str(self._broker.max_transaction_timeout_ms)
        return {**_BROKER, "transaction.max.timeout.ms": limit, **self._broker.configs}

    def broker_addresses(self) -> dict[int, tuple[str, int]]:
        """Return no addresses: there is no network."""
        return {}

    def allowed(self, topics: Collection[str], groups: Collection[str]) -> Allowed | None:
        """Return None: there is no authorizer."""
        self._broker.catch_up()
        return None

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        """Create topics; existing ones are left alone.

        :raises KafkaClientError: a topic cannot be made so, or stands there twice.
        """
        self._broker.catch_up()
        twice = [name for name, times in Counter(topic.name for topic in topics).items() if times > 1]
        if twice:
            raise KafkaClientError(
                f"creating topic {twice[0]}: Duplicate topic name.", kafka_code="INVALID_REQUEST"
            )
        for topic in topics:
            self._broker.create(topic)

    def create_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions; a topic that has so many is left alone.

        :raises KafkaClientError: there is no such topic, or it has more partitions.
        """
        self._broker.catch_up()
        self._broker.grow(topic, count)

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic; its others stay.

        :raises KafkaClientError: there is no such topic.
        """
        self._broker.catch_up()
        if name not in self._broker.topics:
            raise missing(f"changing settings of topic {name}", name)
        self._broker.alter(name, configs)

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics; missing ones are fine."""
        self._broker.catch_up()
        for name in names:
            self._broker.delete(name)

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset under read_committed, else the high watermark."""
        return {tp: log.end(isolation) for tp, log in self._led(partitions).items()}

    def end_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch at the end of each log."""
        return {tp: log.epoch for tp, log in self._led(partitions).items()}

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log."""
        return {tp: log.start for tp, log in self._led(partitions).items()}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset whose record is dated at or after a time, epoch milliseconds."""
        found = {tp: log.offset_at(times_ms[tp]) for tp, log in self._led(times_ms).items()}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def group_ids(self) -> set[str]:
        """Return the ids of all groups that have committed offsets or members."""
        self._broker.catch_up()
        return self._broker.group_ids()

    def group_members(self, group_id: str) -> tuple[GroupMember, ...]:
        """Return the members of a group; see ``InMemoryKafka.join_group``."""
        self._broker.catch_up()
        return tuple(self._broker.members.get(group_id, ()))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records below the given offsets.

        :raises KafkaClientError: an offset lies beyond the high watermark.
        """
        self._broker.catch_up()
        for partition, offset in before.items():
            log = self._broker.log(partition, "deleting records")
            if offset > log.high_watermark:
                raise KafkaClientError(
                    f"deleting records of {partition}: offset {offset} lies beyond the log's end "
                    f"{log.high_watermark}",
                    kafka_code="OFFSET_OUT_OF_RANGE",
                )
            log.delete_before(offset)

    def _led(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
        """Return the logs of partitions once they have leaders."""
        what = "reading an offset"
        self._broker.until(self._broker.led, what, timeout_seconds=_TIMEOUT_SECONDS)
        return {tp: self._broker.log(tp, what) for tp in partitions}

    def close(self) -> None:
        """Do nothing: the client holds no resource."""
