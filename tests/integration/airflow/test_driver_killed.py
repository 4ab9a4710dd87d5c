"""A Spark driver that ends early under Airflow: the dag run notices, and its retry resumes the slice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.support.spark.gated_scene import APPLICATION, Scene

pytestmark = pytest.mark.filterwarnings("default")


def kill_driver_of(worker_pid: int) -> None:
    """Kill the JVM that a Python worker belongs to, with SIGKILL."""
    driver = next(process for process in psutil.Process(worker_pid).parents() if process.name() == "java")
    driver.kill()  # not waited for: that would take its exit code from the operator, which is its parent


def test_airflows_retry_resumes_the_subtopology_when_its_driver_was_killed(
    scene: Scene, run_dag: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    for name, value in scene.environment.items():
        monkeypatch.setenv(name, value)
    scene.publish(0, 2_000)
    in_slice = list(scene.sent)
    marker = scene.arm("first", 1_000)
    frozen: list[dict[str, int]] = []

    def strike() -> None:
        wait_until(lambda: marker.exists() and marker.read_text(), "gate first", seconds=120)
        frozen.append(scene.stops())
        scene.publish(2_000, 2_500)
        kill_driver_of(int(marker.read_text()))
        scene.open_gates()

    striker = threading.Thread(target=strike)
    striker.start()
    done = run_dag(
        "increments_in_parts", {"application_id": scene.application_id, "application": str(APPLICATION)}
    )
    striker.join(60)

    assert done.state == "success", done.error_text()
    tries = {name.removeprefix("batch."): count for name, count in done.tries.items()}
    assert tries["run_subtopology_0"] == 2
    assert tries["run_subtopology_1"] == 1, "the subtopology that failed was tried again alone"
    assert done.results["batch.run_subtopology_0"]["records_in"] == 2_000
    assert not done.results["batch.run_subtopology_1"]["finished"]
    assert [scene.stops()] == frozen, "the retried run keeps the stop offsets it began with"
    assert done.results["batch.finish_run"]["record_span"] == 2_000
    assert scene.results() == scene.sums(in_slice)


def test_run_fails_when_spark_ends_well_without_having_processed_anything(
    scene: Scene, run_dag: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in scene.environment.items():
        monkeypatch.setenv(name, value)
    scene.publish(0, 10)
    binary = scene.folder / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nexit 0\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}:{os.environ['PATH']}")

    done = run_dag("increments", {"application_id": scene.application_id, "application": str(APPLICATION)})

    assert done.tasks["batch.run_topology"] == "failed"
    assert "tasks 0_0, 0_1 of run" in done.error_text()
    assert "are not at their stop offsets" in done.error_text()
