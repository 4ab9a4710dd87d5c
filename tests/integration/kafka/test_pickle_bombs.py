"""A pickle bomb in every place that is read from Kafka, or from the files beside it, never goes off."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from airflow_kstreams.hooks.reports import last_values
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.plan import TopologyPlan
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("nothing-from-kafka-is-run")

Produce = Callable[..., None]


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def counts(source: str, target: str) -> Topology:
    spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    by_value = builder.stream(source).group_by(lambda _, value: str(value), key_serde=serdes.string())
    by_value.count(store=spec).to_stream().send_to(target, value_serde=serdes.int64())
    return builder.build()


@dataclass
class Scene:
    """An application after one run."""

    application: Application
    source: str
    state_dir: Path
    produce: Produce
    bomb: bytes

    def everywhere(self, topic: str, *keys: bytes) -> None:
        headers = [("kind", self.bomb), ("run", self.bomb), ("bomb", self.bomb)]
        rows = [
            {"key": key, "value": self.bomb, "partition": 0, "headers": headers} for key in (self.bomb, *keys)
        ]
        self.produce(topic, rows)

    @property
    def plan(self) -> TopologyPlan:
        return self.application.topology.plan(self.app)

    @property
    def app(self) -> str:
        return self.application.application_id


def offsets(scene: Scene) -> None:
    consumer = Consumer({"bootstrap.servers": scene.application.bootstrap, "group.id": scene.app})
    try:
        (found,) = consumer.committed([TopicPartition(scene.source, 0)], timeout=30)
        planted = TopicPartition(scene.source, 0, found.offset, scene.bomb.decode())
        consumer.commit(offsets=[planted], asynchronous=False)
    finally:
        consumer.close()


def files(scene: Scene) -> None:
    planted = [path for path in scene.state_dir.rglob("*") if path.name == "checkpoint"]
    assert planted
    for path in planted:
        path.write_bytes(scene.bomb)


PLACES: dict[str, Callable[[Scene], None]] = {
    "input": lambda scene: scene.everywhere(scene.source),
    "repartition topic": lambda scene: scene.everywhere(next(iter(scene.plan.repartition_topics))),
    "changelog": lambda scene: scene.everywhere(next(iter(scene.plan.changelogs))),
    "metadata topic": lambda scene: scene.everywhere(f"{scene.app}-metadata", scene.app.encode()),
    "run ledger": lambda scene: scene.everywhere(f"{scene.app}-runs", b"run-0"),
    "checkpoint of the ledger": lambda scene: scene.everywhere(
        f"{scene.app}-runs", b"__checkpoint__", b"__details__/0", b"__index__/A"
    ),
    "lease": lambda scene: scene.everywhere(f"{scene.app}-runs", b"__lease__", b"__assignment__"),
    "metadata of offsets": offsets,
    "checkpoint file": files,
}


@pytest.fixture
def scene(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Produce,
    tmp_path: Path,
) -> Scene:
    source, state_dir = create_topic(topic_name("in"), 1), tmp_path / "state"
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=counts(source, create_topic(topic_name("out"), 1)),
        settings={
            "deserialization.exception.handler": "dead-letter",
            "state.dir": str(state_dir),
            "task.max.attempts": 1,
            "client.timeout.ms": 5_000,
        },
    )
    produce(source, [("a", 1), ("b", 2)])
    application.run("run-1")
    # Protocol 0 is text, which is all that the metadata of offsets may be.
    return Scene(application, source, state_dir, produce, pickle.dumps(Bomb(tmp_path / "crater"), protocol=0))


@pytest.mark.parametrize("place", PLACES)
def test_bomb_never_goes_off_when_it_lies_where_something_is_read(
    scene: Scene, place: str, tmp_path: Path
) -> None:
    PLACES[place](scene)
    scene.produce(scene.source, [("c", 3)])
    try:
        scene.application.run("run-2")
    except KStreamsError as error:
        assert "crater" not in str(error), "what is read from Kafka does not stand in errors"
    for topic in (scene.source, f"{scene.app}-runs", f"{scene.app}-metadata"):
        last_values(KafkaCluster({"bootstrap.servers": scene.application.bootstrap}), topic)
    assert not (tmp_path / "crater").exists()


def test_bomb_goes_off_when_it_is_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "crater"), protocol=0))
    assert (tmp_path / "crater").exists()
