"""Two finishers of one run at the same moment, on the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.metadata_records import FINISHED, metadata_topic
from airflow_kstreams.batch.model import Slice
from airflow_kstreams.batch.task_attempt import TaskAssignment
from airflow_kstreams.batch.task_runner import TaskRunner
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.errors import RunBusyError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka

T = TypeVar("T")
APP = "app"
REPARTITION = f"{APP}-counts-repartition"
SETTINGS = ApplicationSettings.parse(APP, {"processing.guarantee": "exactly_once"})


class At:
    """Does something once, before a call."""

    def __init__(self) -> None:
        self.call_name = ""
        self.about = ""
        self.action: Callable[[], object] | None = None

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == self.call_name and self.about in str(arguments) and self.action is not None:
            action, self.action = self.action, None
            action()
        return effect()


@pytest.fixture
def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by(lambda key, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    kafka.append("in", b"v", b"k")
    return kafka


def run_tasks(kafka: InMemoryKafka, topology: Topology, slice_: Slice) -> None:
    for subtopology in (0, 1):
        TaskRunner(
            topology=topology,
            assignment=TaskAssignment(
                task_id=TaskId(subtopology=subtopology, group=0),
                run_id=slice_.run_id,
                generation=slice_.generation,
            ),
            cluster=kafka,
            settings=SETTINGS,
            clock=kafka.clock,
        ).run()


@pytest.mark.parametrize(
    ("call", "about"),
    [("writer.commit", ""), ("reader.poll", ""), ("reader.assign", REPARTITION)],
    ids=["at the commit", "at the first read", "when repartitioned records are looked for"],
)
@pytest.mark.parametrize("holds_lease", [True, False])
def test_run_is_finished_once_when_somebody_else_finishes_it_meanwhile(
    kafka: InMemoryKafka, topology: Topology, call: str, about: str, holds_lease: bool
) -> None:
    at = At()
    cluster = FaultyCluster(kafka, at)
    owner = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    begun = owner.begin("run", topology.plan(APP), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice)
    finisher = owner
    if not holds_lease:
        owner.close()
        finisher = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    at.call_name, at.about, at.action = call, about, lambda: other.finish("run")
    try:
        summary = finisher.finish("run")
    except RunBusyError:
        assert not holds_lease
        summary = finisher.finish("run")
    assert at.action is None
    assert summary == other.finish("run")
    markers = [
        r for r in kafka.records(metadata_topic(APP)) if (r.key(), r.value()) == (APP.encode(), FINISHED)
    ]
    assert len(markers) == 1
