"""The state of new processors is copied on Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.streams import KStreamBuilder, LinearHashPartitioner, Topology, serdes
from tests.support.kafka.in_process import Application

KEYS = [f"carrier-{number}" for number in range(24)]


def counting(source: str, sink: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream(source).group_by_key().count(store="counted").to_stream().send_to(sink)
    return builder.build()


def test_counts_go_on_when_spark_has_copied_the_state_of_new_processors(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
) -> None:
    source, sink = topic_name("flights"), topic_name("counted")
    create_topic(source, 2)
    create_topic(sink, 1)
    app = Application(bootstrap=kafka, application_id=application_id, topology=counting(source, sink))
    producer = Producer({"bootstrap.servers": kafka})

    def send() -> None:
        partitioner = LinearHashPartitioner({source: 2}, producer, refresh_seconds=0)
        for key in KEYS:
            where = partitioner.partition(source, key.encode())
            producer.produce(source, b"1", key.encode(), partition=where)
        assert producer.flush(30) == 0

    def expand() -> subprocess.CompletedProcess[str]:
        to = ["--to", "4", "--application-id", application_id, "--bootstrap-server", kafka]
        on = ["--master", "local[2]", "--parallel", "2", "--no-wait"]
        command = [sys.executable, "-m", "airflow_kstreams.cli", "expand", "processors", *to, *on]
        return subprocess.run(
            command, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False
        )

    send()
    app.run("run-1")
    app.cluster.admin().create_partitions(source, 4)
    send()
    app.run("run-2")
    app.run("run-3")
    expanded = expand()
    assert expanded.returncode == 0, expanded.stderr[-4000:]
    assert "All state is copied: the next run makes the takeover" in expanded.stdout
    send()
    (told,) = app.run("run-4").warnings
    assert told.startswith("subtopology 0 has 4 processors from this run on, 2 before")
    assert len(read_status(app.cluster, application_id).grouped[0].by_group) == 4
    counts = {row.key.decode(): row.value for row in consume_all(sink)}
    assert counts == dict.fromkeys(KEYS, (3).to_bytes(8))
