"""Runs of many tasks on a real broker and a real Spark cluster. An executor is killed in the middle of a
subtopology, the driver in the middle of another, and the next driver is overtaken while it is alive: the run
ends right all the same. It prints where its time went, and that of two runs after it, which nothing disturbs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from dev.servers import embedded
from tests.support.kafka.kafka_tools import hanging_transactions
from tests.support.spark.gated_scene import Scene, kill_executor_at, reached
from tests.support.spark.large_scene import APPLICATION, Attempt, LargeScene, Size, peak_memory
from tests.support.spark.spark_cluster import spark_cluster, worker_daemons

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3_600)]

_MANY_SUBTOPOLOGIES = Size(subtopologies=8, partitions=100, records=4_000)
_MANY_PARTITIONS = Size(subtopologies=2, partitions=1_000, records=10_000)
_GATE_SECONDS = 600.0
#: Published when the first run has begun: not of its slice.
_LATER = 500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Broker]:
    """A real broker of these tests' own: thousands of partitions are not for that of the others."""
    folder = tmp_path_factory.mktemp("large-broker")
    with embedded.Broker(port=embedded.free_port(), folder=folder, heap="1g") as running:
        yield running


@pytest.fixture(scope="module")
def kafka(broker: embedded.Broker) -> str:
    """Its ``bootstrap.servers``."""
    return broker.bootstrap


@pytest.fixture(scope="module")
def kafka_admin(kafka: str) -> AdminClient:
    """Plain admin client of it."""
    return AdminClient({"bootstrap.servers": kafka, "log_level": 2})


@pytest.mark.parametrize(
    ("scene", "size", "killed_at"),
    [
        pytest.param(size.partitions, size, killed_at, id=f"{size.subtopologies}x{size.partitions}")
        for size, killed_at in ((_MANY_SUBTOPOLOGIES, (1, 3, 5)), (_MANY_PARTITIONS, (0, 1, 1)))
    ],
    indirect=["scene"],
)
def test_run_of_many_tasks_ends_right_when_it_is_killed_again_and_again(
    scene: Scene,
    size: Size,
    killed_at: tuple[int, int, int],
    broker: embedded.Broker,
    create_topic: Callable[..., str],
    wait_until: Callable[..., Any],
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    scene.application, scene.keys = APPLICATION, size.keys
    large = LargeScene(size=size, scene=scene)
    for topic in large.between:
        create_topic(topic, size.partitions)
    with spark_cluster(tmp_path, wait_until) as master:
        scene.launch = large.launch(master)
        with peak_memory({"broker": broker.pid or 0, **_workers(master)}) as peaks:
            scene.publish(0, size.records)
            attempts = _killed(large, wait_until, *killed_at)
            frozen = scene.stops()
            assert large.collected() == large.expected(scene.sent[: size.records])
            assert large.committed([scene.source]) == frozen
            between = large.topics[1:]
            assert large.committed(between) == large.ends(between)
            assert _ledger(scene) == {"run-1": len(attempts)}

            scene.publish(size.records + _LATER, 2 * size.records)
            for run_id in ("run-2", "run-3"):
                attempts.append(large.start(run_id))
                attempts[-1].end(0)
                assert large.collected() == large.expected(scene.sent)
                assert large.committed(large.topics) == large.ends(large.topics)
        assert _ledger(scene) == {"run-1": len(attempts) - 2, "run-2": 1, "run-3": 1}
    assert hanging_transactions(scene.bootstrap) == []
    tell(large.report(attempts, peaks))


def _killed(
    large: LargeScene, wait_until: Callable[..., Any], executor: int, driver: int, overtaken: int
) -> list[Attempt]:
    """Have the first run killed in three of its subtopologies; return its drivers.

    :param executor: where an executor is killed.
    :param driver: where its driver is killed.
    :param overtaken: where the second driver is overtaken, by a third one.
    """
    scene = large.scene

    # An executor: Spark tries its task again on another one, and the driver goes on.
    markers = large.gates(executor)
    first = large.start("run-1")
    _reach(markers, first, wait_until)
    marker = markers[0]
    _, task = kill_executor_at(marker, first.driver, wait_until, seconds=_GATE_SECONDS)
    large.interrupted(executor)
    frozen = scene.stops()
    scene.publish(large.size.records, large.size.records + _LATER)
    wait_until(reached(marker, first.driver), "the gate once more", seconds=_GATE_SECONDS)
    assert int(marker.read_text()) != task.pid
    scene.open_gates()

    # The driver: the next one goes on where it was.
    markers = large.gates(driver)
    _reach(markers, first, wait_until)
    for marker in markers:
        marker.unlink()
    left = large.interrupted(driver)
    first.kill()
    assert {*first.launched()} == {*range(driver + 1)}
    if overtaken != driver:
        scene.open_gates()
        markers = large.gates(overtaken)
    second = large.start("run-1")
    _reach(markers, second, wait_until)
    again = second.launched()
    assert min(again) == driver, "what was done before is not done again"
    assert len(markers) <= again[driver] <= left

    # A driver that is alive: the next one fences every task of it.
    left = large.interrupted(overtaken)
    third = large.start("run-1")
    second.end(1)
    assert "RunSupersededError" in second.driver.output()
    scene.open_gates()
    third.end(0)
    assert f"fenced {large.size.tasks} transactional ids" in third.driver.output()
    again = third.launched()
    assert min(again) == overtaken
    assert len(markers) <= again[overtaken] <= left
    assert scene.stops() == frozen, "a run that has begun keeps its stop offsets"
    for process in first.driver.family:
        assert not process.is_running() or process.status() == "zombie", "a killed driver leaves nothing"
    return [first, second, third]


def _reach(markers: list[Path], attempt: Attempt, wait_until: Callable[..., Any]) -> None:
    """Wait until a task waits at each gate."""
    for marker in markers:
        wait_until(reached(marker, attempt.driver), f"gate {marker.name}", seconds=_GATE_SECONDS)


def _workers(master: str) -> dict[str, int]:
    """Return the ids of what starts executors: the daemons of the cluster."""
    return {f"executor {number}": daemon.pid for number, daemon in enumerate(worker_daemons(master))}


def _ledger(scene: Scene) -> dict[str, int]:
    """Return the runs that the ledger says are finished, with their generations."""
    runs = read_ledger(KafkaCluster({"bootstrap.servers": scene.bootstrap}), scene.application_id).all_runs()
    return {run_id: summary.generation for run_id, summary in runs.items()}
