"""The cleaner of the in-memory Kafka leaves a reader what ``delete.retention.ms`` keeps for it."""

from __future__ import annotations

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka

LOG = TopicPartition("log", 0)


def test_reader_meets_the_tombstone_of_what_it_has_read_when_the_cleaner_runs_in_between() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("log", cleanup_policy="compact")
    kafka.append("log", b"v", b"k")
    reader = kafka.reader(group_id="app")
    reader.assign({LOG: 0})
    (first,) = reader.poll(max_records=1, timeout_seconds=0).records[LOG]
    kafka.append("log", None, b"k")

    kafka.compact("log", drop_tombstones=True)

    (second,) = reader.poll(max_records=1, timeout_seconds=0).records[LOG]
    assert (first.value(), second.value()) == (b"v", None)
    kafka.compact("log", drop_tombstones=True)
    assert kafka.records("log") == []
