"""A real log that lost its end and has grown again: past the committed offset, and past a run's stop."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import DataLossError
from dev.servers.embedded import Broker, free_port
from tests.conftest import read_rows
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept

pytestmark = pytest.mark.promise("rewritten-logs-are-refused")

#: Of a batch: base offset, and how many bytes follow these two numbers.
_BATCH = struct.Struct(">qi")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that these tests may kill."""
    with Broker(port=free_port(), folder=tmp_path_factory.mktemp("broker"), session_ms=3_000) as running:
        yield running


def application(broker: Broker, name: str) -> Application:
    """An application that copies from ``<name>-in`` to ``<name>-out``."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"{name}-{end}", 1, 1) for end in ("in", "out")]
    for created in admin.create_topics(topics).values():
        created.result()
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream(f"{name}-in").send_to(f"{name}-out")
    return Application(application_id=name, topology=builder.build(), bootstrap=broker.bootstrap)


def publish(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for value in values:
        producer.produce(topic, value, value, partition=0)
        assert producer.flush(30) == 0  # each in a batch of its own


def cut(broker: Broker, topic: str, offset: int) -> None:
    """Kill the broker, take a batch and all behind it from the log of partition 0, and start it again."""
    broker.kill()
    (segment,) = Path(broker.folder).rglob(f"{topic}-0/*.log")
    data, at = segment.read_bytes(), 0
    while (found := _BATCH.unpack_from(data, at))[0] < offset:
        at += _BATCH.size + found[1]
    segment.write_bytes(data[:at])
    for index in segment.parent.glob("*.*index"):
        index.unlink()
    broker.start(die_with_parent=True)


def written(broker: Broker, topic: str) -> list[bytes | None]:
    return [row.value for row in read_rows(broker.bootstrap, topic)]


def test_run_is_refused_when_the_log_was_cut_and_has_grown_again(broker: Broker) -> None:
    app = application(broker, "between")
    publish(broker, "between-in", "a", "b", "c")
    app.run("first")
    app.run("quiet")
    cut(broker, "between-in", 1)
    publish(broker, "between-in", "B", "C", "D")
    with pytest.raises(DataLossError) as caught:
        app.begin("next")
    assert "between-in-0: runs have read the record at offset 2 under leader epoch 0" in caught.value.cause
    assert "the record at offset 2 is of leader epoch" in caught.value.cause

    accept(caught.value, broker.bootstrap)
    app.run("next")
    assert written(broker, "between-out") == [b"a", b"b", b"c", b"D"]


def test_task_is_refused_when_the_log_was_cut_under_its_run_and_has_grown_again(broker: Broker) -> None:
    app = application(broker, "during")
    publish(broker, "during-in", "a")
    app.run("first")
    publish(broker, "during-in", "b", "c", "d")
    slice_ = app.begin("cut")
    cut(broker, "during-in", 2)
    publish(broker, "during-in", "C", "D", "E")
    with pytest.raises(DataLossError) as caught:
        app.task(slice_, 0, 0)
    assert "during-in-0: run 'cut' stops at 4, where the log was of leader epoch 0" in caught.value.cause
    assert "now the record at offset 2 is of leader epoch" in caught.value.cause
    assert written(broker, "during-out") == [b"a"]

    accept(caught.value, broker.bootstrap)
    app.run("next")
    assert written(broker, "during-out") == [b"a", b"b", b"C", b"D", b"E"]
