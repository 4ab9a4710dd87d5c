"""Exploring real topics: what the sample holds, and that the broker is left as it was."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kstreams.explore import Exploration, explore
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from tests.support.kafka.traces import broker_state

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[3]
Make = Callable[..., str]
Produce = Callable[..., None]


def totals(orders: str, names: str, checked: str, out: str) -> Topology:
    """Everything that a run would write for: a through topic, a repartition topic, stores, an output."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    table = builder.table(names, store="names")
    stream = builder.stream(orders).filter(lambda _, cents: cents >= 0).through(checked)
    named = stream.map(lambda key, cents: (key.upper(), cents)).join(table, lambda cents, name: [name, cents])
    named.group_by_key().count(store="orders-by-name").to_stream().send_to(out, value_serde=serdes.int64())
    named.send_to(f"{out}-2")
    return builder.build()


@pytest.fixture
def orders(
    topic_name: Make,
    create_topic: Make,
    consume_all: Callable[..., Any],
    kafka_admin: AdminClient,
    wait_until: Callable[..., Any],
) -> str:
    """An empty topic, on a broker that has seen a consumer before and so made its own offsets topic."""
    topic = create_topic(topic_name("orders"), 3)
    assert consume_all(topic) == []
    wait_until(
        lambda: "__consumer_offsets" in kafka_admin.list_topics(timeout=SECONDS).topics, "the offsets topic"
    )
    return topic


def seen_offsets(seen: Exploration, topic: str) -> list[tuple[int, int]]:
    return sorted((one.partition, one.offset) for one in seen.sample.records if one.topic == topic)


def passed_on(topic: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream(topic).send_to("never-made")
    return builder.build()


@pytest.mark.promise("exploring-writes-nothing")
def test_broker_is_as_it_was_when_a_topology_that_writes_much_was_explored(
    kafka: str,
    kafka_admin: AdminClient,
    orders: str,
    topic_name: Make,
    create_topic: Make,
    produce: Produce,
) -> None:
    names = create_topic(topic_name("names"), 3)
    produce(names, [{"key": name.upper(), "value": f'"name of {name}"', "timestamp_ms": 1} for name in "abc"])
    produce(orders, [{"key": "abc"[n % 3], "value": n, "timestamp_ms": n + 2} for n in range(30)])
    topology = totals(orders, names, "through-never-made", "out-never-made")
    before = broker_state(kafka_admin)

    seen = explore(topology, kafka, last=12)

    assert not broker_state(kafka_admin).changed_since(before)
    assert seen.errors == ()
    assert {one.value[0] for one in seen.outputs("out-never-made-2")} == {f"name of {name}" for name in "abc"}
    assert [one.value[1] for one in seen.outputs("out-never-made-2")] == list(range(18, 30))
    assert sorted(one.value for one in seen.outputs("out-never-made")) == sorted([1, 2, 3, 4] * 3)
    assert len(seen.outputs("through-never-made")) == 12


def test_sample_is_the_last_records_over_all_partitions_when_they_hold_unequal_times(
    kafka: str, orders: str, produce: Produce
) -> None:
    rows = [{"value": "old", "partition": 0, "timestamp_ms": 10 + n} for n in range(8)]
    rows += [{"value": "new", "partition": 1, "timestamp_ms": 100 + n} for n in range(3)]
    produce(orders, rows)
    seen = explore(passed_on(orders), kafka, last=5)
    assert seen_offsets(seen, orders) == [(0, 6), (0, 7), (1, 0), (1, 1), (1, 2)]
    assert seen.sample.partitions[orders] == 3
    assert len(explore(passed_on(orders), kafka, last=100).sample.records) == 11
    assert len(explore(passed_on(orders), kafka, last={orders: 2}).sample.records) == 2
    assert explore(passed_on(orders), kafka, last=0).sample.records == ()


def test_sample_reaches_further_back_when_the_tail_holds_aborted_records(
    kafka: str, orders: str, produce: Produce
) -> None:
    good = [{"value": "good", "partition": 0, "timestamp_ms": 5} for _ in range(6)]
    aborted = [{"value": "bad", "partition": 0, "timestamp_ms": 6} for _ in range(60)]
    produce(orders, good)
    produce(orders, aborted, transactional_id=f"explored-{orders}", abort=True)
    seen = explore(passed_on(orders), kafka, last=4)
    assert seen_offsets(seen, orders) == [(0, 2), (0, 3), (0, 4), (0, 5)]


def test_nothing_is_seen_when_the_topic_is_empty(kafka: str, orders: str) -> None:
    seen = explore(passed_on(orders), kafka)
    assert seen.sample.records == ()
    assert seen.notes == (f"the sample has no record of {orders!r}",)
    assert len(seen.outputs("never-made")) == 0


@pytest.mark.usefixtures("orders")
def test_topics_are_named_when_they_do_not_exist(kafka: str, kafka_admin: AdminClient) -> None:
    before = broker_state(kafka_admin)
    with pytest.raises(KafkaClientError, match="topics that do not exist: no-such-input"):
        explore(passed_on("no-such-input"), kafka)
    assert not broker_state(kafka_admin).changed_since(before)


def test_keys_values_headers_and_times_are_those_of_the_topic_when_sampled(
    kafka: str, orders: str, produce: Produce, consume_all: Callable[..., Any]
) -> None:
    produce(
        orders, [{"key": b"\x00", "value": None, "timestamp_ms": 7, "headers": [("h", b"1"), ("h", None)]}]
    )
    (sampled,) = explore(passed_on(orders), kafka).sample.records
    (row,) = consume_all(orders)
    assert (sampled.key, sampled.value, sampled.timestamp_ms) == (row.key, row.value, row.timestamp_ms)
    assert tuple(sampled.headers) == row.headers
    assert (sampled.partition, sampled.offset) == (row.partition, row.offset)


APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream({topic!r}).map_values(lambda value: {factor} * value).send_to("out")
    return builder.build()
"""


def test_command_compares_the_rounds_when_a_sample_of_real_records_is_kept(
    sasl_bootstrap: str, kafka_admin: AdminClient, orders: str, produce: Produce, tmp_path: Path
) -> None:
    produce(orders, [{"key": "k", "value": n, "timestamp_ms": n} for n in range(5)])
    application, sample = tmp_path / "rounds_app.py", tmp_path / "orders.sample"
    login = tmp_path / "client.properties"
    login.write_text(
        f"bootstrap.servers={sasl_bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="alice" password="alice-secret";\n'
    )
    before = broker_state(kafka_admin)

    def round_of(factor: int, *options: str) -> subprocess.CompletedProcess[str]:
        application.write_text(APPLICATION.format(topic=orders, factor=factor))
        command = [sys.executable, "-m", "airflow_kstreams.cli", "explore", str(application)]
        return subprocess.run(
            [*command, "--sample", str(sample), *options],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    first = round_of(2, "--command-config", str(login))
    assert (first.returncode, first.stderr) == (0, "")
    assert "out: 5 records" in first.stdout
    second = round_of(3)  # no broker named: the sample is enough
    assert (second.returncode, second.stderr) == (0, "")
    assert re.search(r"KSTREAM-SINK-0000000002 \(sink at rounds_app.py:\d+\): 4 differences", second.stdout)
    assert "alice-secret" not in first.stdout + second.stdout
    assert not broker_state(kafka_admin).changed_since(before)
