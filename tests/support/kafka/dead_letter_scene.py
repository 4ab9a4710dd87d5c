"""A dead-letter topic on the in-memory Kafka, the topics that its letters came from, and replays of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.streams.ports import ClusterPort, Headers, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import ConsumedAt, dead_letter_headers
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord

DEAD = "app-dead-letter"
SETTINGS = ApplicationSettings.parse("app", {"settle.ms": 100})
OWN: Headers = [("trace", b"1"), ("trace", None)]


class Scene:
    """Two topics, ``in`` with three partitions and ``mid`` with one, and letters that came from them.

    :param partitions: of the dead-letter topic.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        self.kafka = InMemoryKafka(clock=self.clock)
        self.kafka.create_topic("in", partitions=3)
        self.kafka.create_topic("mid")
        self.kafka.create_topic("consumed", partitions=3)
        self.kafka.create_topic(DEAD, partitions=partitions)

    def letter(
        self,
        value: str,
        topic: str = "in",
        partition: int = 2,
        headers: Headers | None = None,
        *,
        error: Exception | None = None,
        node: str = "node",
        into: int = 0,
        topic_id: str = "",
    ) -> int:
        """A record that was consumed from a topic becomes a dead letter; return the letter's offset.

        :param into: partition of the dead-letter topic.
        :param topic_id: id of the topic where the record was consumed.
        """
        own = OWN if headers is None else headers
        self.kafka.append(
            "consumed", value.encode(), b"key", partition=partition, timestamp_ms=1_000, headers=own
        )
        record: Any = next(r for r in self.kafka.records("consumed") if r.value() == value.encode())
        why = dead_letter_headers(record, error or ValueError(value), node, ConsumedAt(topic_id=topic_id))
        moved = [
            (name, topic.encode() if name.endswith(".topic") else text) for name, text in why[len(own) :]
        ]
        return self.kafka.append(
            DEAD, value.encode(), b"key", partition=into, timestamp_ms=1_000, headers=[*own, *moved]
        )

    def timers_letter(self, node: str = "node") -> int:
        """A timer becomes a dead letter; return its offset."""
        return self.kafka.append(
            DEAD, None, None, headers=dead_letter_headers(None, ValueError("x"), node, ConsumedAt())
        )

    def replay(
        self,
        replay_id: str = "r1",
        cluster: ClusterPort | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
    ) -> Replay:
        return self.tool(replay_id, cluster, where, limit).run()

    def tool(
        self,
        replay_id: str = "r1",
        cluster: ClusterPort | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        *,
        accept_repeats: bool = False,
    ) -> DeadLetterReplay:
        return DeadLetterReplay(
            cluster or self.kafka,
            SETTINGS,
            replay_id=replay_id,
            selection=Selection.parse(where, limit),
            accept_repeats=accept_repeats,
            clock=self.clock,
        )

    def came_back(self) -> Counter[tuple[str, int, str]]:
        return Counter(
            (record.topic(), record.partition(), (record.value() or b"").decode())
            for topic in ("in", "mid")
            for record in self.kafka.records(topic)
        )

    def values_back(self) -> list[str]:
        """The values that came back, sorted; one that came twice stands there twice."""
        return sorted(value for _, _, value in self.came_back().elements())

    def last(self, topic: str) -> LogRecord:
        return self.kafka.records(topic)[-1]

    def lag(self) -> int:
        """As Kafka's own tools show it."""
        partition = TopicPartition(DEAD, 0)
        committed = self.kafka.reader(group_id=f"{DEAD}-replay").committed([partition])
        end = self.kafka.admin().end_offsets([partition], isolation="read_committed")[partition]
        return end - committed[partition].offset
