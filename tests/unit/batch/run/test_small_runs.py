"""A run asks Kafka for no more than its promises need: requests are counted, and clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError, RunSupersededError
from airflow_kstreams.streams.ports import ClusterPort, ReaderPort
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application

T = TypeVar("T")


class Counting:
    """Counts port calls."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.names[name] += 1
        return effect()


class Readers:
    """A cluster that notes which readers it makes."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self.crossing, self.writer, self.admin = cluster.crossing, cluster.writer, cluster.admin
        self.small: list[bool] = []

    def reader(self, *, small: bool = False, **given: Any) -> ReaderPort:
        self.small.append(small)
        return self._cluster.reader(**given)


def application(kafka: InMemoryKafka, on: ClusterPort) -> Application:
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by_key().count(store="counts").to_stream().send_to("out")
    return Application(on=on, clock=kafka.clock, application_id="app", topology=builder.build())


def test_coordinator_looks_at_no_clients_handle_when_it_reads_the_protocols_topics() -> None:
    kafka = InMemoryKafka()
    readers = Readers(kafka)
    ours = application(kafka, readers)
    for run_id in ("one", "two"):
        kafka.append("in", b"value", b"key")
        ours.run(run_id)
    slice_ = ours.begin("empty")
    readers.small.clear()
    ours.begin("empty", order=(0, 2))
    ours.finish("empty")
    assert slice_.plan.empty
    assert readers.small
    assert all(readers.small)


class Asked(Counting):
    """Counts port calls, and keeps what they ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.asked.append((name, arguments[0] if arguments else ()))
        return super().call(name, client, effect, arguments)

    def times(self, name: str, topic: str) -> int:
        return sum(name == asked and topic in topics for asked, topics in self.asked)


def test_begin_looks_nothing_up_twice_when_every_topic_is_there() -> None:
    kafka, asked = InMemoryKafka(), Asked()
    ours = application(kafka, FaultyCluster(kafka, asked))
    kafka.append("in", b"value", b"key")
    ours.run("one")
    asked.asked.clear()
    ours.begin("two")
    assert asked.times("admin.describe_topics", "in") == 1
    assert asked.times("admin.topic_configs", "in") == 1
    assert asked.times("admin.topic_configs", "app-counts-changelog") == 1
    assert asked.times("admin.topic_configs", "app-metadata") == 1
    assert len([name for name, _ in asked.asked if name == "admin.topic_configs"]) == 1


def test_finish_reads_the_ledger_once_under_its_claim_when_its_caller_has_just_read_it() -> None:
    kafka, asked = InMemoryKafka(), Asked()
    ours = application(kafka, FaultyCluster(kafka, asked))
    ours.begin("run")
    with closing(ours.coordinator()) as coordinator:
        seen = coordinator.session.read_ledger(wait_ms=0)
        asked.asked.clear()
        coordinator.finish("run", seen=seen)
    claimed = [name for name, _ in asked.asked].index("writer.init_transactions")
    before = asked.asked[:claimed]
    assert not [name for name, _ in before if name.startswith("reader.")]
    # The leaders of the claim's own topics.
    assert [name for name, _ in before if name == "admin.describe_topics"] == ["admin.describe_topics"]


def test_finish_reads_the_ledger_anew_when_it_has_lost_a_race() -> None:
    kafka = InMemoryKafka()
    ours = application(kafka, kafka)
    with closing(ours.coordinator()) as coordinator:
        empty = coordinator.session.read_ledger(wait_ms=0)
    kafka.append("in", b"value", b"key")
    ours.run("run")
    with closing(ours.coordinator()) as coordinator:
        assert coordinator.finish("run", seen=empty).run_id == "run"
        kept = coordinator.session.read_ledger()
    assert kept.is_finished("run")


def test_write_proves_nothing_when_the_claim_was_lost_or_is_old() -> None:
    kafka = InMemoryKafka()
    ours = application(kafka, kafka)
    with closing(ours.coordinator()) as driver:
        assert not driver.session.has_written_within(1.0)
        ours.begin("run", coordinator=driver)
        assert driver.session.has_written_within(1.0)
        kafka.clock.sleep(1.5)
        assert not driver.session.has_written_within(1.0)
        driver.lease.renew()
        assert driver.session.has_written_within(1.0)
        ours.begin("run", order=(0, 2))
        with pytest.raises(RunSupersededError):
            driver.lease.renew()
        assert not driver.session.has_written_within(1.0)


def test_writer_of_a_claim_is_made_before_the_requests_that_precede_the_claim() -> None:
    kafka, asked = InMemoryKafka(), Asked()
    ours = application(kafka, FaultyCluster(kafka, asked))
    ours.begin("run")
    names = [name for name, _ in asked.asked]
    assert names.index("cluster.writer") < names.index("admin.broker_configs")
    assert names.index("admin.broker_configs") < names.index("writer.init_transactions")
    assert asked.names["cluster.writer"] == asked.names["writer.close"] == 1


def test_writer_that_never_claimed_is_closed_when_the_begin_is_refused() -> None:
    kafka, asked = InMemoryKafka(), Asked()
    ours = application(kafka, FaultyCluster(kafka, asked))
    ours.settings = {"transaction.timeout.ms": 10_000, "commit.interval.ms": 9_000}
    with pytest.raises(ConfigError, match="leaves a transaction no room"):
        ours.begin("run")
    assert asked.names["cluster.writer"] == asked.names["writer.close"] == 1
    assert not asked.names["writer.init_transactions"]
