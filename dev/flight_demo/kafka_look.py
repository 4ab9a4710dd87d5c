"""What the demo sees of Kafka, with plain clients: a topic's records, and how far a group is."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

_CLIENT_SECONDS = 30.0
_PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_NO_LEADER_YET = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PART")
#: syslog's "error": warnings about a broker that is still loading tell a demo's reader nothing.
LOG_LEVEL = 3


class KafkaLook:
    """Looks at topics and groups of one broker; changes nothing.

    :param bootstrap: ``bootstrap.servers``.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of those of some topics that exist."""
        known = self._admin.list_topics(timeout=_CLIENT_SECONDS).topics
        return [
            TopicPartition(name, number)
            for name in topics
            if name in known
            for number in known[name].partitions
        ]

    def ends(self, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """Return the end of every partition that has a leader, as a reader of committed records sees it.

        One that was created a moment ago has none yet.
        """
        wanted = {
            partition: OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in self.partitions(topics)
        }
        if not wanted:
            return {}
        answers = self._admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        ends: dict[tuple[str, int], int] = {}
        for partition, answer in answers.items():
            try:
                ends[partition.topic, partition.partition] = answer.result(_CLIENT_SECONDS).offset
            except KafkaException as error:
                if error.args[0].name() not in _NO_LEADER_YET:
                    raise
        return ends

    def committed(self, group: str, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group; 0 where there is none."""
        partitions = self.partitions(topics)
        # Not the admin client's list_consumer_group_offsets: librdkafka 2.16 crashes in it when a broker that
        # has just started answers "not coordinator".
        consumer = KafkaConsumer(
            {"bootstrap.servers": self._bootstrap, "log_level": LOG_LEVEL, "group.id": group}
        )
        try:
            found = self._committed(consumer, partitions) if partitions else []
        finally:
            consumer.close()
        return {(partition.topic, partition.partition): max(0, partition.offset) for partition in found}

    def _committed(self, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        deadline = time.monotonic() + _CLIENT_SECONDS
        while True:
            try:
                return consumer.committed(partitions, timeout=_CLIENT_SECONDS)
            except KafkaException as error:
                # A broker that has just started loads its coordinators when first asked.
                if error.args[0].name() not in _PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def last_values(self, topic: str) -> dict[str, str]:
        """Read a whole topic: last value of every key that is not deleted, in the order last written."""
        consumer = KafkaConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": LOG_LEVEL,
                "group.id": f"look-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        values: dict[str, str] = {}
        try:
            unread = {partition.partition for partition in self.partitions([topic])}
            consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
            deadline = time.monotonic() + _CLIENT_SECONDS
            while unread:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}: did not reach the end of partitions {sorted(unread)}")
                for message in consumer.consume(10_000, timeout=0.1):
                    error, key, value = message.error(), message.key(), message.value()
                    if error is not None:
                        if error.name() != "_PARTITION_EOF":
                            raise KafkaException(error)
                        unread.discard(message.partition() or 0)
                    elif key is not None:
                        values.pop(key.decode(), None)
                        if value is not None:
                            values[key.decode()] = value.decode()
        finally:
            consumer.close()
        return values
