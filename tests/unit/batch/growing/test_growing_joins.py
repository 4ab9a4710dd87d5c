"""Growth of one of several topics that meet in keyed state, and of topics that the topology writes itself."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, Topology
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("keys-stay-when-topics-grow")

KEYS = [f"k{number}" for number in range(30)]


def application(kafka: InMemoryKafka, topology: Topology, **settings: Any) -> Application:
    return Application(
        application_id="app", topology=topology, on=kafka, settings={"settle.ms": 0, **settings}
    )


def send(kafka: InMemoryKafka, topic: str, first: int, value: int, timestamp_ms: int) -> None:
    count = len(kafka.partitions(topic))
    for key in KEYS:
        at = partition_of_key(key.encode(), first, count)
        kafka.append(topic, b"%d" % value, key.encode(), partition=at, timestamp_ms=timestamp_ms)


def results(kafka: InMemoryKafka) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for record in kafka.records("out"):
        found.setdefault((record.key() or b"").decode(), []).append(
            serdes.json().deserialize(record.value() or b"")
        )
    return found


def joined() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    rates = builder.table("rates", store="rates")
    builder.stream("orders").join(rates, lambda order, rate: [order, rate]).send_to("out")
    return builder.build()


@pytest.mark.parametrize("grows", ["orders", "rates", "both"])
def test_each_order_meets_its_rate_when_one_topic_has_grown_further(grows: str) -> None:
    kafka = InMemoryKafka()
    for topic in ("orders", "rates"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    app = application(kafka, joined())
    send(kafka, "rates", 2, 7, 10)
    send(kafka, "orders", 2, 1, 20)
    app.run("run-1")
    if grows in ("orders", "both"):
        kafka.add_partitions("orders", 3)
    if grows in ("rates", "both"):
        kafka.add_partitions("rates", 5)
    send(kafka, "rates", 2, 8, 30)
    send(kafka, "orders", 2, 2, 40)
    app.run("run-2")
    app.run("run-3")
    send(kafka, "orders", 2, 3, 50)
    app.run("run-4")
    found = results(kafka)
    assert {key: found[key][-1] for key in KEYS} == {key: [3, 8] for key in KEYS}
    # A table's news may come a run later where its new partition had to wait, and no order is lost for it.
    assert all([order for order, _ in met] == [1, 2, 3] for met in found.values())
    if grows == "orders":
        assert found == {key: [[1, 7], [2, 8], [3, 8]] for key in KEYS}


def test_joined_topics_are_refused_when_they_began_with_different_counts() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("orders", partitions=4)
    kafka.create_topic("rates", partitions=2)
    kafka.create_topic("out")
    with pytest.raises(TopologyError, match="'orders' has 4") as refused:
        application(kafka, joined()).run("run-1")
    assert "initial.partitions=TOPIC=N" in refused.value.fix
    send(kafka, "rates", 2, 7, 10)
    send(kafka, "orders", 2, 1, 20)
    app = application(kafka, joined(), **{"initial.partitions": "orders=2"})
    app.run("run-1")
    app.run("run-2")
    assert results(kafka) == {key: [[1, 7]] for key in KEYS}


def joined_in_windows() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    window = SlidingWindow(size_ms=10, grace_ms=0)
    left = builder.stream("orders").with_window(window)
    pairs = left.join(builder.stream("rates").with_window(window), lambda a, b: [a, b], name="pairs")
    pairs.send_to("out")
    return builder.build()


@pytest.mark.promise("nothing-is-late-when-a-partition-waits")
@pytest.mark.parametrize("grows", ["orders", "rates", "both"])
def test_pairs_meet_within_their_window_when_a_partition_had_to_wait(grows: str) -> None:
    kafka = InMemoryKafka()
    for topic in ("orders", "rates"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    app = application(kafka, joined_in_windows())
    send(kafka, "rates", 2, 1, 10)
    send(kafka, "orders", 2, 1, 15)
    app.run("run-1")
    send(kafka, "rates", 2, 2, 100)  # what the new partitions wait for
    send(kafka, "orders", 2, 2, 105)
    for topic in ("orders", "rates"):
        if grows in (topic, "both"):
            kafka.add_partitions(topic, 3)
    for value in (3, 4, 5, 6):
        send(kafka, "rates", 2, value, 100 * value)
        send(kafka, "orders", 2, value, 100 * value + 5)
    for number in (2, 3):
        app.run(f"run-{number}")
    found = {key: sorted(pairs) for key, pairs in results(kafka).items()}
    assert found == {key: [[value, value] for value in range(1, 7)] for key in KEYS}


def through() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    between = builder.stream("in").map_values(lambda value: value).through("between")
    listed = between.group_by_key().aggregate(list, lambda key, value, so_far: [*so_far, value], store="l")
    listed.to_stream().send_to("out")
    return builder.build()


@pytest.mark.parametrize("count", [3, 4, 6])
def test_engine_places_keys_by_linear_hashing_when_a_topic_between_has_grown(count: int) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=1)
    kafka.create_topic("between", partitions=2)
    kafka.create_topic("out")
    app = application(kafka, through())
    for run in range(4):
        if run == 1:
            kafka.add_partitions("between", count)
        send(kafka, "in", 1, run, 10 * run)
        app.run(f"run-{run}")
    assert {key: values[-1] for key, values in results(kafka).items()} == {key: [0, 1, 2, 3] for key in KEYS}
    for partition in range(count):
        for record in kafka.records("between"):
            if record.partition() == partition and record.offset() and int(record.value() or b"0") > 0:
                assert partition == partition_of_key(record.key() or b"", 2, count)


def test_what_others_wrote_between_comes_first_when_that_topic_has_grown() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=1)
    kafka.create_topic("between", partitions=1)
    kafka.create_topic("out")
    app = application(kafka, through())
    send(kafka, "in", 1, 0, 0)
    app.run("run-0")
    send(kafka, "between", 1, 1, 10)  # by somebody else, before the growth and after it
    kafka.add_partitions("between", 2)
    send(kafka, "between", 1, 2, 20)
    send(kafka, "in", 1, 3, 30)
    app.run("run-1")
    send(kafka, "in", 1, 4, 40)
    app.run("run-2")
    listed = {key: values[-1] for key, values in results(kafka).items()}
    stays = [key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 0]
    assert {key: listed[key] for key in stays} == {key: [0, 1, 2, 3, 4] for key in stays}
    # What the engine itself wrote while the new partition waited went to the old one.
    assert {tuple(listed[key]) for key in KEYS if key not in stays} == {(0, 1, 3, 2, 4)}
