"""A real log that lost its end and has grown past the committed offset again."""

from __future__ import annotations

import struct
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

#: Of a batch: base offset, and how many bytes follow these two numbers.
_BATCH = struct.Struct(">qi")


def publish(broker: Broker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for value in values:
        producer.produce("in", value, value, partition=0)
        assert producer.flush(30) == 0  # each in a batch of its own


def cut(broker: Broker, offset: int) -> None:
    """Take a batch and all behind it from the log of ``in-0``, while the broker is down."""
    (segment,) = Path(broker.folder).rglob("in-0/*.log")
    data, at = segment.read_bytes(), 0
    while (found := _BATCH.unpack_from(data, at))[0] < offset:
        at += _BATCH.size + found[1]
    segment.write_bytes(data[:at])
    for index in segment.parent.glob("*.*index"):
        index.unlink()


def test_run_is_refused_when_the_log_was_cut_and_has_grown_again(tmp_path: Path) -> None:
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream("in").send_to("out")
    with Broker(port=free_port(), folder=tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
            created.result()
        app = Application(application_id="app", topology=builder.build(), bootstrap=broker.bootstrap)
        publish(broker, "a", "b", "c")
        app.run("first")
        app.run("quiet")

        broker.kill()
        cut(broker, 1)
        broker.start(die_with_parent=True)
        publish(broker, "B", "C", "D")
        with pytest.raises(DataLossError) as caught:
            app.begin("next")
        assert "in-0: runs have read the record at offset 2 under leader epoch 0" in caught.value.cause
        assert "the record at offset 2 is of leader epoch" in caught.value.cause

        accept(caught.value, broker.bootstrap)
        app.run("next")
        assert [row.value for row in read_rows(broker.bootstrap, "out")] == [b"a", b"b", b"c", b"D"]
