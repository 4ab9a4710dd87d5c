"""The Java partitioner of docs/explanation/growing.md, its very text, beside ours: a key has one place."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.streams import LinearHashPartitioner, partition_of_key
from tests.integration.java.peer import JavaRecord, KafkaClients, KafkaStreamsPeer, PeerError, compiled

pytestmark = pytest.mark.promise("partitioners-agree")

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "growing.md"
_SECONDS = 60
_NAME = "LinearHashPartitioner"
_SETTING = "linear.hash.initial.partitions.flights"
#: (first count, counts behind it).
_GROWTHS = [
    (1, range(1, 18)),
    (3, range(3, 26)),
    (10, (10, 11, 15, 18, 20, 39, 40, 41)),
    (7, (7, 700, 10_007)),
]


@pytest.fixture(scope="session")
def partitioner_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled class."""
    (text,) = re.findall(r"```java\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    folder = tmp_path_factory.mktemp("partitioner")
    source = folder / f"{_NAME}.java"
    source.write_text(text, encoding="utf-8")
    compiled(source, folder)
    return folder


def _keys(count: int) -> list[bytes]:
    rng = random.Random(21)
    return [b"", b"\x00", b"\xff" * 9, *(rng.randbytes(rng.randrange(40)) for _ in range(count))]


def test_places_are_those_of_the_documented_java_partitioner(
    kafka_streams: KafkaStreamsPeer, partitioner_classes: Path
) -> None:
    keys = _keys(2_000)
    cases = [(initial, count) for initial, counts in _GROWTHS for count in counts]
    java = kafka_streams.partitions_by(
        _NAME, partitioner_classes, [({_SETTING: f"{initial}"}, [count], keys) for initial, count in cases]
    )
    ours = LinearHashPartitioner
    for (initial, count), places in zip(cases, java, strict=True):
        by_function = [partition_of_key(key, initial, count) for key in keys]
        by_object = [ours({"flights": initial}).partition("flights", key, count) for key in keys[:20]]
        assert places == by_function, f"{initial} -> {count}"
        assert by_object == by_function[:20]


def test_java_partitioner_keeps_to_the_first_count_as_long_as_it_lives(
    kafka_streams: KafkaStreamsPeer, partitioner_classes: Path
) -> None:
    keys = _keys(200)
    (places,) = kafka_streams.partitions_by(_NAME, partitioner_classes, [({_SETTING: "3"}, [4, 7, 12], keys)])
    assert places == [partition_of_key(key, 3, 4) for key in keys] * 3


def test_java_partitioner_spreads_records_without_key(
    kafka_streams: KafkaStreamsPeer, partitioner_classes: Path
) -> None:
    (places,) = kafka_streams.partitions_by(
        _NAME, partitioner_classes, [({_SETTING: "2"}, [5], [None] * 500)]
    )
    assert {*places} == {0, 1, 2, 3, 4}


@pytest.fixture
def growing_java(kafka: str, partitioner_classes: Path) -> Iterator[KafkaClients]:
    """Java's clients with the partitioner at hand."""
    clients = KafkaClients(kafka, classes=partitioner_classes)
    yield clients
    clients.close()


def test_producers_of_both_languages_agree_when_their_topic_grows(
    kafka: str,
    grow: Callable[[str, int], None],
    growing_java: KafkaClients,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
) -> None:
    topic = create_topic(topic_name("growing"), 3)
    keys = _keys(500)
    settings = {"partitioner_class": _NAME, f"linear.hash.initial.partitions.{topic}": "3"}
    producer = Producer({"bootstrap.servers": kafka})
    try:
        partitioner = LinearHashPartitioner({topic: 3}, producer, refresh_seconds=0)
        for partitions in (3, 5, 8):
            if partitions > 3:
                grow(topic, partitions)
            by_java = growing_java.produce(
                [JavaRecord(topic=topic, key=key.hex(), value=None) for key in keys], **settings
            )
            expected = [partition_of_key(key, 3, partitions) for key in keys]
            assert [partition for partition, _ in by_java] == expected
            for number, key in enumerate(keys):
                place = partitioner.partition(topic, key)
                producer.produce(topic, key=key, value=b"%d/%d" % (partitions, number), partition=place)
            assert producer.flush(_SECONDS) == 0
            ours = {row.value: row.partition for row in consume_all(topic) if row.value is not None}
            assert [ours[b"%d/%d" % (partitions, number)] for number in range(len(keys))] == expected
    finally:
        producer.close()


@pytest.mark.parametrize("given", [{}, {"linear.hash.initial.partitions.{topic}": "4"}])
def test_java_producer_is_refused_when_its_first_count_cannot_be(
    given: dict[str, str],
    kafka: str,
    partitioner_classes: Path,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = create_topic(topic_name("growing"), 3)
    settings = {name.format(topic=topic): text for name, text in given.items()}
    clients = KafkaClients(kafka, classes=partitioner_classes)
    try:
        with pytest.raises(PeerError):
            clients.produce(
                [JavaRecord(topic=topic, key="00", value=None)], partitioner_class=_NAME, **settings
            )
    finally:
        clients.close()
    assert f"linear.hash.initial.partitions.{topic}: expected a number from 1 to 3" in capfd.readouterr().err
