"""Records as large as the real broker takes them: copied, moved, kept, dead-lettered and brought back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import RecordError
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("large-records-are-taken-or-named")

Consume = Callable[..., list[Any]]
#: What producers that take more than the client by itself can write into a topic that says nothing.
LARGE = [Random(size).randbytes(size) for size in (1_000_000, 1_030_000, 1_048_400)]
COMPRESSED = b"x" * 3_000_000


@pytest.fixture
def topics(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> tuple[str, str]:
    return create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)


def write(kafka: str, topic: str, values: list[bytes]) -> None:
    """As Java's producer does with a large max.request.size."""
    producer = Producer(
        {"bootstrap.servers": kafka, "message.max.bytes": 10_000_000, "compression.type": "lz4"}
    )
    refused: list[Any] = []
    for value in values:
        producer.produce(topic, value, b"key", on_delivery=lambda error, _: refused.append(error))
        producer.flush(30)
    assert refused == [None] * len(values)


def moved_and_kept(source: str, target: str, on_value: Callable[[bytes], bytes]) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    grouped = builder.stream(source).map_values(on_value).group_by(lambda key, value: key * 30, name="moved")
    grouped.reduce(lambda _, new: new, store="last").to_stream().send_to(target)
    return builder.build()


def copied(source: str, target: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream(source).send_to(target)
    return builder.build()


def test_largest_records_are_moved_kept_dead_lettered_and_brought_back(
    kafka: str, application_id: str, topics: tuple[str, str], consume_all: Consume
) -> None:
    source, target = topics
    broken = [True]

    def breaks(value: bytes) -> bytes:
        if broken and value in (LARGE[2], COMPRESSED):
            raise ValueError("!" * 9_000)
        return value

    write(kafka, source, [*LARGE, COMPRESSED])
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=moved_and_kept(source, target, breaks),
        settings={"processing.exception.handler": "dead-letter", "commit.every.records": 1},
    )

    application.run("run-1")

    assert [row.value for row in consume_all(target)] == LARGE[:2]
    whole, without = consume_all(f"{application_id}-dead-letter")
    assert (whole.key, whole.value) == (b"key", LARGE[2])
    assert (without.key, without.value) == (b"key", None)
    headers = dict(without.headers)
    assert headers["__streams.errors.left.out"] == b"the value (3,000,000 bytes)"
    assert headers["__streams.errors.offset"] == b"3"
    done = DeadLetterReplay(application.cluster, application.checked, replay_id="r1").run()
    assert (done.records, done.left_out) == (1, 1)
    broken.clear()
    application.run("run-2")
    assert consume_all(target)[-1].value == LARGE[2]


def test_compressed_record_is_copied_when_the_client_is_told_to_take_it(
    kafka: str, application_id: str, topics: tuple[str, str], consume_all: Consume
) -> None:
    source, target = topics
    write(kafka, source, [LARGE[2], COMPRESSED])
    application = Application(bootstrap=kafka, application_id=application_id, topology=copied(source, target))
    with pytest.raises(RecordError, match=rf"result of {source}-0@1 .*about 3,000,1\d\d bytes.*1,048,588"):
        application.run("run-1")
    assert consume_all(target) == []

    told = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=copied(source, target),
        client={"message.max.bytes": "4000000"},
    )
    told.run("run-1", (0, 2))

    assert [row.value for row in consume_all(target)] == [LARGE[2], COMPRESSED]
