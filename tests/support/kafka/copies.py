"""Records copied by way of an intermediate topic, on a Kafka in memory: what may go missing on the way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

APP = "app"
TEXT = serdes.string()


def copied() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").through("middle").send_to("out")
    return builder.build()


def counted() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").group_by(lambda _, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


def kafka_with_topics(*topics: str, partitions: int = 2) -> InMemoryKafka:
    """Make a cluster with topics, those of :func:`copied` unless given."""
    kafka = InMemoryKafka()
    for topic in topics or ("in", "middle", "out"):
        kafka.create_topic(topic, partitions=partitions)
    return kafka


def copying(kafka: InMemoryKafka, settings: Mapping[str, object] | None = None) -> Application:
    """Make the application that copies."""
    return Application(
        application_id=APP, topology=copied(), on=kafka, clock=kafka.clock, settings=settings or {}
    )


def counting(kafka: InMemoryKafka) -> Application:
    """Make the application of :func:`counted`, which commits each record."""
    return Application(
        application_id=APP,
        topology=counted(),
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": 1},
    )


def counts(kafka: InMemoryKafka) -> list[int]:
    """Return the counts that an application of :func:`counted` has given, in order."""
    return [int.from_bytes(value or b"", "big") for value in kafka.values("out")]


def publish(kafka: InMemoryKafka, *values: object, partition: int = 0, topic: str = "in") -> None:
    for value in values:
        kafka.append(topic, str(value).encode(), str(value).encode(), partition=partition)


def results(kafka: InMemoryKafka) -> list[str]:
    return sorted((value or b"").decode() for value in kafka.values("out"))


def recreate(kafka: InMemoryKafka, topic: str, partitions: int = 2) -> None:
    kafka.admin().delete_topics([topic])
    kafka.create_topic(topic, partitions=partitions)


def refused(app: Application, run_id: str) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        app.begin(run_id)
    return caught.value
