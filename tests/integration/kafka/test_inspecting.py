"""Looks at runs on a real broker: the plan is what the next begin freezes, and no look leaves anything
behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from airflow_kstreams import inspect
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.support.kafka.in_process import Application
from tests.support.kafka.traces import broker_state

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.promise("inspect-writes-nothing")


def counting(topic: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    by_value = builder.stream(topic).select_key(lambda key, value: value).group_by_key()
    by_value.count(store="totals")
    return builder.build()


def test_plan_is_the_next_begin_and_no_look_leaves_anything_behind(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    kafka_admin: AdminClient,
) -> None:
    topic = create_topic(f"orders-{application_id}", 3)
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=counting(topic),
        settings={"autostop.at": "eol"},
    )
    produce(topic, [(f"k{number}", f"v{number}") for number in range(30)])
    untouched = broker_state(kafka_admin)
    first = inspect.plan(application_id, kafka, topology=app.topology)
    assert (first.kind, first.records, first.refused) == ("new", 30, None)
    assert not broker_state(kafka_admin).changed_since(untouched)
    for number in range(3):
        app.run(f"r{number}")
        produce(topic, [(f"k{number}", f"v{number}") for number in range(10)])
    before = broker_state(kafka_admin)

    seen = inspect.runs(application_id, kafka)
    full = inspect.run(application_id, "r0", kafka)
    pair = inspect.compare(application_id, "r0", "r1", kafka)
    waiting = inspect.lag(application_id, kafka)
    planned = inspect.plan(application_id, kafka)
    known = inspect.applications(kafka)

    assert not broker_state(kafka_admin).changed_since(before)
    assert [run.run_id for run in seen.runs] == ["r2", "r1", "r0"]
    assert full.audit is not None
    assert full.audit.missing == 0
    assert {each.what: each.first for each in pair.figures}["records in"] == 30
    assert waiting.lag == planned.records == 10
    assert application_id in {each.application_id for each in known.applications}

    slice_ = app.begin("r3")
    frozen = {(part.topic, part.partition): (part.start_offset, part.stop_offset) for part in slice_.inputs}
    shown = {(part.topic, part.partition): (part.start, part.stop) for part in planned.partitions}
    assert shown == {tp: span for tp, span in frozen.items() if span[0] < span[1]}
    again = inspect.plan(application_id, kafka)
    assert (again.kind, again.run_id, again.records) == ("resume", "r3", 10)
