"""Dead letters that a DAG brings back, on a real broker; the application's tasks run in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.conftest import Row
from tests.support.kafka.in_process import Application

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("dead-letters-come-back-once")]


def test_letters_are_processed_once_when_their_cause_is_mended_and_a_dag_brings_them_back(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
    run_dag: Callable[..., Any],
) -> None:
    source, sink = (create_topic(topic_name(name), 2) for name in ("in", "out"))
    application = Application(
        application_id=application_id,
        topology=_numbers(source, sink, one="1", three="3"),
        bootstrap=kafka,
        settings={"processing.exception.handler": "dead-letter"},
    )
    sent = [
        Row(key=f"key-{n % 5}", value=word, timestamp_ms=1_000 + n)
        for n, word in enumerate(["one", "two", "three"] * 4)
    ]
    produce(source, sent)
    assert application.run("first").records_out == 8
    conf = {"application_id": application_id}

    # The cause is still there, so the letters come back, and die once more.
    replayed = run_dag("replay", conf)
    assert replayed.state == "success", replayed.error_text()
    assert replayed.results["replay"]["records_per_topic"] == {source: 4}
    assert sum(task.records_dead_lettered for task in application.run("second", (1, 1)).tasks) == 4

    application.topology = _numbers(source, sink, one="1", two="2", three="3")
    replayed = run_dag("replay", conf)
    assert replayed.results["replay"]["records"] == 4
    application.run("third", (2, 1))

    numbers = {"one": b"1", "two": b"2", "three": b"3"}
    read = [(row.key, row.value, row.timestamp_ms) for row in consume_all(sink)]
    assert sorted(read) == sorted((row.key.encode(), numbers[row.value], row.timestamp_ms) for row in sent)
    again = run_dag("replay", conf)
    assert again.results["replay"]["records"] == 0, "each letter comes back once"


def _numbers(source: str, sink: str, **numbers: str) -> Topology:
    """Turn words into numbers, as far as they are known."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(source).map_values(numbers.__getitem__).send_to(sink)
    return builder.build()
