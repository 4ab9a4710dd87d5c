"""A global table on a real broker: what each run sees is what lay in the topic when it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from tests.support.kafka.in_process import Application, tasks_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.promise("global-tables-stand-still-in-a-run")

NAMES = 500


def _topology(codes: str, names: str, out: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    table = builder.global_table(names, storage="rocksdb")
    named = builder.stream(codes).left_join(
        table, lambda code, name: f"{code}:{name}", key=lambda k, code: code
    )
    named.send_to(out)
    return builder.build()


def test_every_task_of_a_run_sees_the_whole_topic_as_it_was_when_the_run_began(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    kafka_admin: AdminClient,
) -> None:
    codes, out = (create_topic(topic_name(which), 2) for which in ("codes", "out"))
    names = create_topic(topic_name("names"), 3, cleanup_policy="compact")
    app = Application(bootstrap=kafka, application_id=application_id, topology=_topology(codes, names, out))

    def name(text: str) -> None:
        produce(names, [(f"c{number}", f"{text}{number}") for number in range(NAMES)])

    def ask() -> None:
        produce(codes, [(f"k{number}", f"c{number}") for number in range(NAMES)])

    name("a")
    ask()
    slice_ = app.begin("one", (0, 1))
    first, second = tasks_of(slice_)
    app.task(slice_, first.subtopology, first.group)
    name("b")
    app.task(slice_, second.subtopology, second.group)
    app.finish("one")
    ask()
    app.run("two", (0, 2))
    found = sorted(row.value.decode() for row in consume_all(out))
    assert found == sorted(f"c{number}:{text}{number}" for number in range(NAMES) for text in "ab")

    ask()
    slice_ = app.begin("three", (0, 3))
    kafka_admin.delete_topics([names])[names].result()
    with pytest.raises(DataLossError, match="is not what it was when run 'three' began: it was deleted"):
        app.task(slice_, first.subtopology, first.group)
