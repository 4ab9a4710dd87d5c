"""Two finishers of one run at the same moment, on the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.metadata_records import FINISHED, metadata_topic
from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka

T = TypeVar("T")
APP = "app"


class Before:
    """Does something once, right before a commit."""

    def __init__(self) -> None:
        self.action: Callable[[], object] | None = None

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == "writer.commit" and self.action is not None:
            action, self.action = self.action, None
            action()
        return effect()


def test_run_is_finished_once_when_somebody_finishes_it_under_the_hands_of_its_owner() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    builder = KStreamBuilder()
    builder.stream("in", key_serde=serdes.bytes(), value_serde=serdes.bytes()).send_to("out")
    settings = ApplicationSettings.parse(APP, {"processing.guarantee": "exactly_once"})
    before = Before()
    owner = Coordinator(FaultyCluster(kafka, before), settings, clock=kafka.clock)
    owner.begin("run", builder.build().plan(APP), hold_lease=True)
    other = Coordinator(kafka, settings, clock=kafka.clock)
    before.action = lambda: other.finish("run")
    summary = owner.finish("run")
    assert summary == other.finish("run")
    assert kafka.values(metadata_topic(APP)).count(FINISHED) == 1
