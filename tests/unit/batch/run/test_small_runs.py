"""A run asks Kafka for no more than its promises need: requests are counted, and clients."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import ClusterPort, ReaderPort
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application


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
