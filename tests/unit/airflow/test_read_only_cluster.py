from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams import inspect
from airflow_kstreams.pages.read_only_cluster import ReadOnlyCluster, WriteRefusedError
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import (
    AdminPort,
    ClusterPort,
    CommittedOffset,
    ReaderPort,
    TopicPartition,
    TopicSpec,
)
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("pages-write-nothing")

_AT = TopicPartition("in", 0)
#: What writes, of all calls of the ports: every other one is passed on.
_WRITES: dict[str, Callable[[ReadOnlyCluster], Any]] = {
    "ClusterPort.writer": lambda cluster: cluster.writer(transactional_id="app-0_0"),
    "ReaderPort.commit": lambda cluster: cluster.reader(group_id="app").commit({_AT: CommittedOffset(1)}),
    "AdminPort.create_topics": lambda cluster: cluster.admin().create_topics(
        [TopicSpec(name="new", partitions=1)]
    ),
    "AdminPort.create_partitions": lambda cluster: cluster.admin().create_partitions("in", 2),
    "AdminPort.alter_topic": lambda cluster: cluster.admin().alter_topic("in", {"retention.ms": "1"}),
    "AdminPort.delete_topics": lambda cluster: cluster.admin().delete_topics(["in"]),
    "AdminPort.delete_records": lambda cluster: cluster.admin().delete_records({_AT: 1}),
}
_READS = {
    "ClusterPort": {"admin", "crossing", "reader"},
    "ReaderPort": {"assign", "close", "committed", "pause", "poll", "resume"},
    "AdminPort": {
        "allowed",
        "broker_addresses",
        "broker_configs",
        "close",
        "describe_topics",
        "end_epochs",
        "end_offsets",
        "group_ids",
        "group_members",
        "offsets_for_times",
        "start_offsets",
        "topic_configs",
        "topic_names",
    },
}


@pytest.fixture
def shop() -> Application:
    clock = ManualClock(now_ms=1_700_000_000_000)
    kafka = InMemoryKafka(clock=clock)
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by_key().count(store="counts")
    application = Application(on=kafka, clock=clock, application_id="shop", topology=builder.build())
    kafka.append("in", b"value", b"key")
    application.run("one", (0, 1))
    kafka.append("in", b"value", b"key")
    return application


def contents(kafka: Any) -> dict[str, Any]:
    with_admin = kafka.admin()
    topics = sorted(with_admin.topic_names())
    found = with_admin.describe_topics(topics)
    partitions = [TopicPartition(name, n) for name in topics for n in range(found[name].partitions)]
    return {
        "topics": found,
        "ends": with_admin.end_offsets(partitions, isolation="read_uncommitted"),
        "starts": with_admin.start_offsets(partitions),
        "configs": with_admin.topic_configs(topics),
        "committed": kafka.reader(group_id="shop").committed(partitions),
    }


def test_every_call_of_the_ports_is_one_that_reads_or_one_that_is_refused_here() -> None:
    for port in (ClusterPort, ReaderPort, AdminPort):
        calls = {name for name in vars(port) if not name.startswith("_")}
        writes = {name.partition(".")[2] for name in _WRITES if name.startswith(port.__name__)}
        assert calls == _READS[port.__name__] | writes
        assert not writes & _READS[port.__name__]


@pytest.mark.parametrize("write", _WRITES)
def test_call_is_refused_when_it_would_write(shop: Application, write: str) -> None:
    before = contents(shop.on)
    with ReadOnlyCluster(shop.cluster) as cluster, pytest.raises(WriteRefusedError, match="only read Kafka"):
        _WRITES[write](cluster)

    assert contents(shop.on) == before


def test_looks_read_on_a_cluster_that_refuses_writes(shop: Application) -> None:
    before = contents(shop.on)
    with ReadOnlyCluster(shop.cluster) as cluster:
        assert [run.run_id for run in inspect.runs("shop", cluster).runs] == ["one"]
        assert inspect.run("shop", None, cluster).run.run_id == "one"
        assert inspect.compare("shop", "one", "one", cluster).figures
        assert inspect.lag("shop", cluster).lag == 1
        assert inspect.plan("shop", cluster).kind == "new"
        assert [each.finished for each in inspect.applications(cluster).applications] == [1]
        assert inspect.applications(cluster, only=["other"]).applications == ()

    assert contents(shop.on) == before


def test_clients_are_closed_once_when_a_look_leaves_them_open_or_closes_them() -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.close = lambda: closed.append(name)

        def __getattr__(self, call: str) -> Callable[[], None]:
            return lambda: None

    class Clients:
        def admin(self) -> Closing:
            return Closing("admin")

        def reader(self, **how: object) -> Closing:
            return Closing("reader")

    with ReadOnlyCluster(Clients()) as cluster:  # type: ignore[arg-type]
        cluster.admin()
        reader = cluster.reader(group_id="app")
        reader.close()
        assert closed == ["reader"]

    assert closed == ["reader", "admin"]
