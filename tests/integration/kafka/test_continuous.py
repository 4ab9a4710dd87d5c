"""Continuous runs on the real broker, without Spark: the real client's ends, fences, purges and deletions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import RunBusyError, TaskFencedError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from tests.conftest import Row
from tests.support.kafka.continuous_scene import Running, SwitchingApplication
from tests.support.kafka.waiting import WaitingClock

WORDS = ("ant", "bee", "cat", "dog", "elk")


class Scene:
    """Counts by word, and the oracle."""

    def __init__(self, bootstrap: str, application_id: str, source: str, target: str) -> None:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        words = builder.stream(source).group_by(lambda key, value: value)
        words.count(store="counts").to_stream().send_to(target, value_serde=serdes.int64())
        self.source, self.target = source, target
        self.repartition = f"{application_id}-counts-repartition"
        self.cluster = KafkaCluster({"bootstrap.servers": bootstrap})
        self.application = SwitchingApplication(
            topology=builder.build(),
            cluster=self.cluster,
            clock=SystemClock(),
            application_id=application_id,
            settings={"commit.every.records": 1, "commit.interval.ms": 50, "lease.ms": 3_000},
        )
        self.sent: list[str] = []

    def expected(self) -> dict[bytes, list[int]]:
        """Every count of every word, exactly once and in order."""
        return {word.encode(): list(range(1, count + 1)) for word, count in Counter(self.sent).items()}


@pytest.fixture
def scene(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> Scene:
    return Scene(kafka, application_id, create_topic(topic_name("in"), 2), create_topic(topic_name("out"), 2))


@pytest.fixture
def publish(scene: Scene, produce: Callable[..., None]) -> Callable[[int], None]:
    def send(count: int) -> None:
        numbers = range(len(scene.sent), len(scene.sent) + count)
        words = [WORDS[number * number % len(WORDS)] for number in numbers]
        scene.sent += words
        # In a transaction, so that every log ends with a marker.
        produce(
            scene.source,
            [Row(key="k", value=word, partition=n % 2) for n, word in enumerate(words)],
            transactional_id=f"{scene.source}-producer",
        )

    return send


@pytest.fixture
def results(scene: Scene, consume_all: Callable[..., list[Row]]) -> Callable[[], dict[bytes, list[int]]]:
    def read() -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for row in consume_all(scene.target):
            found.setdefault(row.key, []).append(int.from_bytes(row.value, "big"))
        return found

    return read


def test_nothing_is_lost_or_doubled_when_modes_are_switched_and_a_driver_is_killed(
    scene: Scene,
    publish: Callable[[int], None],
    results: Callable[[], dict[bytes, list[int]]],
    wait_until: Callable[..., Any],
) -> None:
    application = scene.application
    topic = ProtocolTopics(application.application_id).metadata

    def caught_up(running: Running) -> Callable[[], bool]:
        def check() -> bool:
            running.rounds(2)
            return results() == scene.expected()

        return check

    publish(8)
    application.batch("b-1")
    publish(6)
    running = application.run_continuously("c-1")
    assert not scene.cluster.admin().describe_topics([topic])
    wait_until(caught_up(running), "the first results")
    publish(5)
    wait_until(caught_up(running), "records that come while it runs")
    application.clock = WaitingClock(SystemClock(), running.coordinator.lease.renew)
    with pytest.raises(RunBusyError):
        application.begin("b-2")
    application.clock = SystemClock()
    running.stop()
    publish(4)
    application.batch("b-2")
    assert results() == scene.expected()

    killed = application.run_continuously("c-2")
    publish(7)
    killed.rounds(3)

    application.batch("b-3")  # waits until the lease of the one that was killed has ended
    assert results() == scene.expected()
    publish(3)
    with pytest.raises(TaskFencedError):
        for _ in range(50):
            killed.rounds(1, renew=False)
    killed.close()
    application.batch("b-4")
    assert results() == scene.expected()


def test_offsets_stand_at_the_ends_and_processed_records_are_purged_when_all_is_done(
    scene: Scene,
    publish: Callable[[int], None],
    results: Callable[[], dict[bytes, list[int]]],
    wait_until: Callable[..., Any],
) -> None:
    running = scene.application.run_continuously("c-1")
    publish(9)
    partitions = [TopicPartition(topic, n) for topic in (scene.source, scene.repartition) for n in (0, 1)]
    admin, reader = scene.cluster.admin(), scene.cluster.reader(group_id=scene.application.application_id)

    def at_the_ends() -> bool:
        running.rounds(1)
        committed = {tp: found.offset for tp, found in reader.committed(partitions).items()}
        ends = admin.end_offsets(partitions, isolation="read_uncommitted")
        return bool(results() == scene.expected() and committed == ends)

    try:
        wait_until(at_the_ends, "offsets at the ends of the logs, past transaction markers")
    finally:
        reader.close()
    running.housekeeping.purge_processed()
    repartition = partitions[2:]
    assert admin.start_offsets(repartition) == admin.end_offsets(repartition, isolation="read_uncommitted")
    running.stop()
