"""The test driver, fed a run's slice at a time, gives what whole runs give: outputs and changelogs, in their
order, with timestamps and headers.

The runs are those of ``batch``: begin, each task by its runner, finish, on the in-memory Kafka. Topologies,
records and slices are drawn. What is left out here stands in ``docs/explanation/testing.md``, and
``unit/testing/test_where_driver_and_run_differ.py`` has a case of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import Topology, serdes
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.timestamps import InvalidTimestamp
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.topology.drawn_parts import INPUTS, KEYS, Part, parts, topology_of

pytestmark = pytest.mark.promise("driver-gives-what-runs-give")

#: Topic, key, value, timestamp, partition (modulo the number of partitions).
Row = tuple[str, str, int | None, int, int]
Written = list[tuple[bytes | None, bytes | None, int, Any]]

ROW: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(INPUTS),
    st.sampled_from(KEYS),
    st.sampled_from([1, 2, 3, 4, None]),
    st.integers(1, 60),
    st.integers(0, 1),
)
ROWS: st.SearchStrategy[list[Row]] = st.lists(ROW, max_size=4) | st.lists(ROW, min_size=10, max_size=30)


@settings(max_examples=examples(40), deadline=None)
@given(
    drawn=st.lists(parts(), min_size=1, max_size=3),
    slices=st.lists(ROWS, min_size=1, max_size=3),
    partitions=st.integers(1, 2),
    buffered=st.integers(1, 6),
    every=st.sampled_from([0, 1, 2, 5]),
    dated=st.sampled_from([None, None, "skip", "partition_time"]),
    handler=st.sampled_from(["skip", "dead-letter"]),
)
def test_driver_gives_what_runs_give_when_it_is_fed_their_slices(
    drawn: list[Part],
    slices: list[list[Row]],
    partitions: int,
    buffered: int,
    every: int,
    dated: InvalidTimestamp | None,
    handler: str,
) -> None:
    topology = topology_of(drawn, dated=dated)
    # The tasks of a driver's first run are open before it knows which ones have nothing to read.
    slices[0] = [(t, "x", 1, 5, n) for t in INPUTS for n in range(partitions)] + slices[0]
    chosen: dict[str, object] = {
        "buffered.records.per.partition": buffered,
        "commit.every.records": every,
        "processing.exception.handler": handler,
    }
    plan = topology.plan("app")
    counts = {
        topic: partitions for topic in {*plan.sources, *plan.outputs} if topic not in plan.repartition_topics
    }
    outputs = _by_runs(topology, slices, counts, chosen)
    count = sum(len(log) for topic in outputs if topic.startswith("out-") for log in outputs[topic].values())
    event(f"{count // 20 * 20}+ results")
    with TopologyTestDriver(topology, application_id="app", partitions=counts, settings=chosen) as driver:
        for rows in slices:
            with driver.run():
                for topic, key, value, timestamp_ms, partition in rows:
                    driver.pipe_input(
                        topic,
                        key=key,
                        value=value,
                        timestamp_ms=timestamp_ms,
                        partition=partition % partitions,
                    )
        for topic in outputs.keys() - {*INPUTS}:
            assert _read(driver, topic) == outputs[topic], topic


def _by_runs(
    topology: Topology, slices: list[list[Row]], counts: dict[str, int], chosen: Mapping[str, object]
) -> dict[str, dict[int, Written]]:
    """Return what runs wrote, by topic and partition, changelogs included."""
    kafka = InMemoryKafka()
    for topic, count in counts.items():
        kafka.create_topic(topic, partitions=count)
    app = Application(
        application_id="app",
        topology=topology,
        on=kafka,
        clock=kafka.clock,
        # Rows put a key into any partition, which says otherwise that the topics have grown.
        settings={"settle.ms": 0, "initial.partitions": _first(counts), **chosen},
    )
    for number, rows in enumerate(slices):
        for topic, key, value, timestamp_ms, partition in rows:
            data = None if value is None else serdes.json().serialize(value)
            kafka.append(
                topic, data, key.encode(), partition=partition % counts[topic], timestamp_ms=timestamp_ms
            )
        app.run(f"run-{number}", (0, number))
    dead_letters = {"app-dead-letter"} & {*kafka.topics()}
    changelogs = topology.plan("app").changelogs
    return {topic: _records(kafka, topic) for topic in {*counts, *changelogs, *dead_letters}}


def _first(counts: Mapping[str, int]) -> str:
    return ",".join(f"{topic}={count}" for topic, count in counts.items() if topic in INPUTS)


def _records(kafka: InMemoryKafka, topic: str) -> dict[int, Written]:
    found: dict[int, Written] = defaultdict(list)
    for record in kafka.records(topic):
        found[record.partition()].append(
            (record.key(), record.value(), record.timestamp()[1], _headers(record.headers() or []))
        )
    return dict(found)


def _read(driver: TopologyTestDriver, topic: str) -> dict[int, Written]:
    found: dict[int, Written] = defaultdict(list)
    for record in driver.read_output(topic, key_serde=serdes.bytes(), value_serde=serdes.bytes()):
        headers = _headers(record.headers)
        found[record.partition].append((record.key, record.value, record.timestamp_ms, headers))
    return dict(found)


def _headers(headers: Headers) -> Headers:
    """Return headers without those that name the id of a topic, which the driver has not."""
    ids = ("__streams.errors.first.place", "__streams.errors.topic.id")
    return [header for header in headers if header[0] not in ids]
