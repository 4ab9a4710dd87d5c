"""The printed way past a batch that cannot be unpacked, in whole runs on the real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands

#: Clients that take 1 MB at once.
SMALL = {
    "fetch.message.max.bytes": "100000",
    "fetch.max.bytes": "900000",
    "message.max.bytes": "900000",
    "receive.message.max.bytes": "1000512",
}
BOMB = b"a" * 20_000_000


@pytest.mark.promise("unreadable-batches-are-named")
@pytest.mark.remedy("client_errors.unreadable_batch")
def test_runs_go_on_behind_a_batch_that_was_given_up_by_the_printed_command(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    consume_all: Callable[..., list[Any]],
) -> None:
    source, target = create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)
    producer = Producer(
        {"bootstrap.servers": kafka, "message.max.bytes": 100_000_000, "compression.type": "zstd"}
    )
    for value in (b"a", BOMB, b"b", b"c"):
        producer.produce(source, value, b"key")
        assert producer.flush(30) == 0
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream(source).send_to(target)
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=builder.build(), client=SMALL
    )
    with pytest.raises(KafkaClientError) as refused:
        application.run("first")
    assert refused.value.cause.startswith(f"{source}-0@1: ")
    assert not refused.value.is_retriable

    (printed,) = printed_commands(refused.value.fix)
    given = {"...": application_id, "OFFSET": "2"}
    execute([*(given.get(word, word) for word in printed), "--force", "--bootstrap-server", kafka], kafka)
    application.run("first", (0, 2))
    application.run("second", (0, 3))

    assert [row.value for row in consume_all(target)] in ([b"a", b"b", b"c"], [b"b", b"c"])
