"""An Airflow worker that is asked to end, then one that is killed, in the middle of a run on a real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_kstreams.batch.inspect.finished_runs import finished_run
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.kafka.cluster import KafkaCluster
from tests.support.spark.gated_scene import Scene

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.promise("killed-tasks-leave-resumable-runs", "orphans-write-nothing"),
]

ROOT = Path(__file__).parent.parent.parent.parent
_WORKER = Path(__file__).parent / "dag_run_process.py"
_DATE = datetime(2026, 6, 1, tzinfo=UTC)
_DAG = "gated_inline"


@dataclass
class Worker:
    """An Airflow worker at work on the dag run.

    :ivar spark: what it has started.
    """

    process: subprocess.Popen[bytes]
    log: Path
    spark: list[psutil.Process] = field(default_factory=list)

    def remember(self) -> None:
        self.spark = psutil.Process(self.process.pid).children(recursive=True)

    def left(self) -> list[psutil.Process]:
        """What it had started and is still alive."""
        return [process for process in self.spark if _works(process)]

    def output(self) -> str:
        """The end of what it printed, Spark's lines included."""
        return self.log.read_text(errors="replace")[-6000:]

    def end(self) -> None:
        if self.process.poll() is None:
            self.remember()
            self.process.kill()
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(30)


def _works(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def start_worker(
    scene: Scene, airflow_database: Path, connections: Callable[..., None], tmp_path: Path
) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        log = tmp_path / f"worker-{len(workers)}.log"
        conf = json.dumps({"application_id": scene.application_id})
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(_WORKER), _DAG, _DATE.isoformat(), conf], stdout=out, stderr=out
            )
        workers.append(Worker(process, log))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


@pytest.mark.prove  # dev/test kills a driver under Airflow (test_driver_killed.py)
def test_run_goes_on_when_one_worker_was_asked_to_end_and_the_next_was_killed(
    scene: Scene,
    start_worker: Callable[[], Worker],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., Any],
) -> None:
    for name, value in {**scene.environment, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    scene.publish(0, 1_500)
    in_slice = list(scene.sent)
    gate = scene.arm("first", 1_000)

    def reach(worker: Worker) -> None:
        def reached() -> bool:
            assert worker.process.poll() is None, f"the worker ended early:\n{worker.output()}"
            return gate.exists() and bool(gate.read_text())

        try:
            wait_until(reached, "the gate", seconds=120)
        except pytest.fail.Exception:
            pytest.fail(f"the worker did not reach the gate:\n{worker.output()}")
        pid = int(gate.read_text())
        gate.unlink()
        worker.remember()
        assert pid in [process.pid for process in worker.spark]

    # The first worker is asked to end: nothing of Spark stays, the run does.
    first = start_worker()
    reach(first)
    stops = scene.stops()
    scene.publish(1_500, 2_000)
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(60)
    wait_until(lambda: not first.left(), "the end of all that the worker had started")
    status = read_status(KafkaCluster({"bootstrap.servers": scene.bootstrap}), scene.application_id)
    assert status.state is RunState.RUNNING
    assert scene.stops() == stops

    # The second one is killed: its driver is left behind, and works on.
    second = start_worker()
    reach(second)
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait(30)
    orphans = [process.pid for process in second.left()]
    assert len(orphans) >= 3, "a JVM, a driver and a Python worker"

    # The third takes the run over, and the driver that was left behind ends itself, before it could finish.
    third = start_worker()
    reach(third)
    wait_until(lambda: not second.left(), "the end of the driver that was left behind")
    scene.open_gates()
    assert third.process.wait(120) == 0, third.output()

    assert scene.results() == scene.sums(in_slice)
    last = finished_run(KafkaCluster({"bootstrap.servers": scene.bootstrap}), scene.application_id, None)
    assert last is not None
    assert {str(part.topic_partition): part.stop_offset for part in last.inputs} == stops
    assert last.generation == 3
