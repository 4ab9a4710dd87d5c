"""SIGKILL in the middle of a run: the same run resumes with the same stop offsets, and nothing is lost or
doubled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from tests.support.spark.gated_scene import Scene, reached

pytestmark = pytest.mark.promise("exactly-once", "stops-never-move")

RECORDS = 4_000


@pytest.mark.parametrize("gate", ["first", pytest.param("second", marks=pytest.mark.prove)])
def test_nothing_is_lost_or_doubled_when_the_driver_is_killed(
    scene: Scene, wait_until: Callable[..., Any], gate: str
) -> None:
    scene.publish(0, RECORDS)
    marker = scene.arm(gate, 2_000)
    first = scene.start("run-1")
    wait_until(reached(marker, first), f"gate {gate}", seconds=120)
    frozen = scene.stops()
    in_slice = list(scene.sent)
    scene.publish(RECORDS, RECORDS + 500)
    first.kill()
    scene.open_gates()
    second = scene.start("run-1")
    assert second.wait() == 0, second.output()[-6000:]
    assert scene.stops() == frozen, "a run that has begun keeps its stop offsets"
    assert scene.results() == scene.sums(in_slice)
    for process in first.family:
        assert not process.is_running() or process.status() == "zombie", (
            "a killed driver leaves nothing behind"
        )


def test_nothing_is_lost_or_doubled_when_a_python_worker_is_killed(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, RECORDS)
    marker = scene.arm("first", 2_000)
    process = scene.start("run-1")
    wait_until(reached(marker, process), "gate first", seconds=120)
    frozen = scene.stops()
    os.kill(int(marker.read_text()), signal.SIGKILL)
    scene.open_gates()
    assert process.wait() == 0, process.output()[-6000:]
    assert scene.stops() == frozen
    assert scene.results() == scene.sums(scene.sent)


@pytest.mark.prove  # dev/test lets tasks of at-least-once die at many port calls (simulation)
@pytest.mark.promise("at-least-once")
def test_nothing_is_lost_in_at_least_once_when_the_driver_is_killed(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, RECORDS)
    marker = scene.arm("first", 2_000)
    first = scene.start("run-1", processing_guarantee="at_least_once")
    wait_until(reached(marker, first), "gate first", seconds=120)
    first.kill()
    scene.open_gates()
    second = scene.start("run-1", processing_guarantee="at_least_once")
    assert second.wait() == 0, second.output()[-6000:]
    results, expected = scene.results(), scene.sums(scene.sent)
    assert results.keys() == expected.keys()
    assert all(results[key] >= expected[key] for key in expected), "records may repeat, none may be missing"


@pytest.mark.prove  # dev/test gives a run up and has the next one finish it (integration/airflow)
def test_older_slice_is_finished_first_when_its_owner_never_comes_back(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, RECORDS)
    marker = scene.arm("first", 2_000)
    first = scene.start("run-1", lease_ms="3000")
    wait_until(reached(marker, first), "gate first", seconds=120)
    first.kill()
    scene.open_gates()
    scene.publish(RECORDS, RECORDS + 500)

    second = scene.start("run-2")
    assert second.wait() == 0, second.output()[-6000:]
    assert "was not renewed for 3 s" in second.output(), "the dead owner's lease says how long it lasts"
    assert scene.results() == scene.sums(scene.sent)
    ledger = read_ledger(KafkaCluster({"bootstrap.servers": scene.bootstrap}), scene.application_id)
    assert set(ledger.all_runs()) == {"run-1", "run-2"}
