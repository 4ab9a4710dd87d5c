"""Error handlers on the real broker: a dead letter commits with everything else the task did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, RecordError
from tests.in_process import Application

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
DEAD = {
    "deserialization.exception.handler": "dead-letter",
    "processing.exception.handler": "dead-letter",
}


def inverses(source: str, target: str, on_value: Callable[[int], None] = lambda _: None) -> Topology:
    def inverse(value: int) -> int:
        on_value(value)
        return 12 // value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream(source).map_values(inverse).send_to(target)
    return builder.build()


@pytest.fixture
def source(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("in"), 1)


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 1)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_bad_records_become_dead_letters_with_their_bytes_when_the_run_goes_on(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    guarantee: str,
) -> None:
    produce(source, [("a", b"3"), ("b", b"no number"), ("c", b"0"), ("d", b"4")])
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "processing.guarantee": guarantee},
    )
    summary = application.run("run-1")
    assert [row.json() for row in consume_all(target)] == [4, 3]
    letters = consume_all(f"{application_id}-dead-letter")
    assert [(row.key, row.value) for row in letters] == [(b"b", b"no number"), (b"c", b"0")]
    assert [dict(row.headers)["__streams.errors.offset"] for row in letters] == [b"1", b"2"]
    assert [task.records_dead_lettered for task in summary.tasks] == [2]


def test_dead_letter_is_not_there_when_its_transaction_was_aborted(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    produce(source, [("a", b"0"), ("b", b"1")])
    broken = [True]

    def breaks_at_one(value: int) -> None:
        if value == 1 and broken:
            raise RecordError("power cut", topic="", partition=-1, offset=-1, node="")

    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target, breaks_at_one),
        settings=DEAD,
    )
    slice_ = application.begin("run-1")
    with pytest.raises(RecordError, match="power cut"):
        application.tasks(slice_)
    assert consume_all(f"{application_id}-dead-letter") == []
    broken.clear()
    application.run("run-1", (0, 2))
    assert [row.value for row in consume_all(f"{application_id}-dead-letter")] == [b"0"]
    assert [row.json() for row in consume_all(target)] == [12]


def test_run_does_not_begin_when_the_named_dead_letter_topic_is_missing(
    kafka: str, application_id: str, source: str, target: str
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "errors.dead.letter.queue.topic.name": f"{application_id}-nowhere"},
    )
    with pytest.raises(ConfigError, match=r"nowhere' does not exist.*(?s:.)*--create --topic"):
        application.begin("run-1")


def test_run_does_not_begin_when_the_topology_reads_its_own_dead_letters(
    kafka: str, application_id: str, source: str, target: str
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "errors.dead.letter.queue.topic.name": source},
    )
    with pytest.raises(ConfigError, match="also read by the topology"):
        application.begin("run-1")
