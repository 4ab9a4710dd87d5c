"""Continuous runs through real drivers: 8 tasks on 2 slots, clean stops, switching, and a kill."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from tests.conftest import Row
from tests.support.spark.driver_process import DriverProcess
from tests.support.spark.gated_scene import Scene, reached

pytestmark = pytest.mark.promise("modes-may-be-switched")

PARTITIONS = 4
MASTER = "local[2,4]"


@pytest.fixture
def wide(scene: Scene, topic_name: Callable[..., str], create_topic: Callable[..., str]) -> Scene:
    """The scene with four partitions: four tasks before the repartition topic, and four behind it."""
    return replace(
        scene,
        source=create_topic(topic_name("in"), PARTITIONS),
        target=create_topic(topic_name("out"), PARTITIONS),
    )


def cluster_of(scene: Scene) -> KafkaCluster:
    return KafkaCluster({"bootstrap.servers": scene.bootstrap})


def start(scene: Scene, run_id: str, **settings: str) -> DriverProcess:
    """Start a continuous run on two slots."""
    return scene.start(run_id, autostop_at="", **settings)


def committed(scene: Scene) -> dict[TopicPartition, int]:
    """Committed offset of every partition that a task reads."""
    topics = (scene.source, f"{scene.application_id}-sums-repartition")
    reader = cluster_of(scene).reader(group_id=scene.application_id)
    try:
        partitions = [TopicPartition(topic, n) for topic in topics for n in range(PARTITIONS)]
        return {tp: found.offset for tp, found in reader.committed(partitions).items()}
    finally:
        reader.close()


def publish(scene: Scene, first: int, last: int) -> None:
    """Publish records numbered [first, last): every input and repartition partition gets some."""
    rows = [(f"key-{n}", {"n": n, "to": f"to-{n % 40}"}) for n in range(first, last)]
    scene.sent += rows
    scene.produce(
        scene.source,
        [Row(key=key, value=value, partition=n % PARTITIONS) for n, (key, value) in enumerate(rows)],
    )


def arrived(scene: Scene, process: DriverProcess) -> Callable[[], bool]:
    """Return a condition: the results are those of all that was published."""

    def check() -> bool:
        process.check_alive()
        return scene.results() == scene.sums(scene.sent)

    return check


@pytest.mark.promise("no-task-starves")
@pytest.mark.parametrize(
    ("threads", "number"),
    [pytest.param(1, signal.SIGTERM, marks=pytest.mark.prove), (3, signal.SIGINT)],
)
def test_every_task_makes_progress_and_ends_cleanly_when_eight_share_two_slots(
    wide: Scene, wait_until: Callable[..., Any], threads: int, number: signal.Signals
) -> None:
    process = start(wide, "forever", num_stream_threads=str(threads))
    publish(wide, 0, 200)
    wait_until(arrived(wide, process), "the first results", seconds=120)
    before = committed(wide)
    assert len(before) == 2 * PARTITIONS
    publish(wide, 200, 600)
    wait_until(arrived(wide, process), "the second results")
    wait_until(
        lambda: all(offset > before[tp] for tp, offset in committed(wide).items()),
        "progress of each of the eight tasks",
    )
    process.signal(number)
    assert process.wait() == 0, process.output()[-6000:]
    assert f"8 tasks in 2 slots, up to {counted(threads, 'thread')} each" in process.output()
    assert "continuous run forever stopped: 8 tasks" in process.output()
    assert "Traceback" not in process.output()
    lease = read_ledger(cluster_of(wide), wide.application_id).lease
    assert lease is not None and lease.expires_ms == 0, "the lease is given up"


@pytest.mark.prove  # dev/test has the same without Spark (integration/kafka/test_continuous.py)
def test_nothing_is_lost_or_doubled_when_modes_are_switched_and_a_driver_is_killed(
    wide: Scene, wait_until: Callable[..., Any]
) -> None:
    publish(wide, 0, 300)
    first = wide.start("batch-1")
    assert first.wait() == 0, first.output()[-6000:]
    topic = ProtocolTopics(wide.application_id).metadata
    admin = cluster_of(wide).admin()
    assert admin.describe_topics([topic])

    marker = wide.arm("second", 400)
    publish(wide, 300, 500)
    killed = start(wide, "continuous-1", lease_ms="6000")
    wait_until(reached(marker, killed), "a task in the middle of its records", seconds=120)
    assert not admin.describe_topics([topic]), "batch to continuous deletes the metadata topic"
    killed.kill()
    wide.open_gates()
    publish(wide, 500, 600)

    waited = wide.start("batch-2")
    assert waited.wait() == 0, waited.output()[-6000:]
    assert "was not renewed for 6 s" in waited.output()
    assert wide.results() == wide.sums(wide.sent)

    publish(wide, 600, 700)
    running = start(wide, "continuous-2")
    wait_until(arrived(wide, running), "the results of a continuous run", seconds=120)
    running.signal(signal.SIGTERM)
    assert running.wait() == 0, running.output()[-6000:]
    assert wide.results() == wide.sums(wide.sent)
    assert list(read_ledger(cluster_of(wide), wide.application_id).all_runs()) == ["batch-1", "batch-2"]
