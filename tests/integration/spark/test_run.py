"""Whole runs through real drivers: Spark is started when there is something to do, and only then."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from tests.support.spark.gated_scene import APPLICATION, Scene, reached


def test_spark_is_not_started_when_nothing_is_new(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver's environment is that of its executors, too.
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    scene.publish(0, 500)
    first = scene.start("run-1", num_stream_threads="2")
    assert first.wait() == 0, first.output()[-6000:]
    assert scene.results() == scene.sums(scene.sent)
    assert "Spark session ready" in first.output()
    assert " INFO airflow_kstreams.batch.task.runner: task 0_0 done: " in first.output()
    assert first.output().count('"airflow.kstreams.process_total"') == 1, "once, by the driver"
    second = scene.start("run-2")
    assert second.wait() == 0, second.output()[-6000:]
    assert "Spark is not started" in second.output()
    assert "Spark session ready" not in second.output()
    assert "airflow.kstreams" not in second.output()
    ledger = read_ledger(KafkaCluster({"bootstrap.servers": scene.bootstrap}), scene.application_id)
    assert [(run.run_id, run.empty) for run in ledger.latest(9)] == [("run-1", False), ("run-2", True)]


def test_second_run_is_refused_when_the_first_is_at_work(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, 500)
    marker = scene.arm("first", 200)
    first = scene.start("run-1", lease_ms="3000")
    wait_until(reached(marker, first), "gate first", seconds=120)
    second = scene.start("run-2")
    assert second.wait() == 1
    error = json.loads(
        next(
            line.removeprefix("KSTREAMS-ERROR ")
            for line in second.output().splitlines()
            if line.startswith("KSTREAMS-ERROR ")
        )
    )
    assert error["type"] == "RunBusyError"
    assert "'run-1'" in error["cause"]
    assert f"process {first.pid}" in error["cause"]
    assert "just renewed its lease" in error["cause"]
    scene.open_gates()
    assert first.wait() == 0, first.output()[-6000:]
    assert scene.results() == scene.sums(scene.sent), "the first run was not disturbed"


def test_next_run_finishes_the_interrupted_one_first_when_a_person_stops_a_driver(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, 500)
    marker = scene.arm("first", 200)
    first = scene.start("run-1")
    wait_until(reached(marker, first), "gate first", seconds=120)
    first.signal(signal.SIGINT)
    assert first.wait() == 130, first.output()[-6000:]
    assert "interrupted: what is committed stays" in first.output()
    assert "Traceback" not in first.output().partition("interrupted: ")[2]
    scene.open_gates()
    second = scene.start("run-2")
    assert second.wait() == 0, second.output()[-6000:]
    assert "finishing the unfinished run run-1 first" in second.output()
    assert scene.results() == scene.sums(scene.sent)


@pytest.mark.promise("stuck-functions-are-named")
def test_run_fails_with_the_functions_name_and_a_retry_goes_on_when_a_function_never_returned(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, 500)
    marker = scene.arm("first", 200)
    stuck = scene.start("run-1", run_stall_timeout_ms="3000", num_stream_threads="2")
    wait_until(reached(marker, stuck), "gate first", seconds=120)
    assert stuck.wait() == 1
    error = json.loads(stuck.output().rpartition("KSTREAMS-ERROR ")[2].splitlines()[0])
    assert error["type"] == "CallsStuckError"
    assert "has been inside one call of first at " in error["cause"]
    assert "now in gate at " in error["cause"]
    scene.open_gates()
    retried = scene.start("run-1", run_stall_timeout_ms="3000")
    assert retried.wait() == 0, retried.output()[-6000:]
    assert scene.results() == scene.sums(scene.sent)


@pytest.mark.promise("orphans-write-nothing")
def test_older_driver_leaves_when_a_newer_attempt_takes_the_run_over(
    scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, 1_000)
    marker = scene.arm("first", 400)
    old = scene.start("run-1", lease_ms="3000")
    wait_until(reached(marker, old), "gate first", seconds=120)
    marker.unlink()
    new = scene.start("run-1", lease_ms="3000")
    assert old.wait() == 1
    assert "RunSupersededError" in old.output()
    scene.open_gates()
    assert new.wait() == 0, new.output()[-6000:]
    assert scene.results() == scene.sums(scene.sent)


def test_record_and_line_are_named_once_and_the_slice_stays_when_a_function_fails(scene: Scene) -> None:
    scene.publish(0, 300)
    scene.arm("first", 200).mkdir()  # where the function would write a file
    failed = scene.start("run-1")
    assert failed.wait() == 1
    lines = [line for line in failed.output().splitlines() if line.startswith("KSTREAMS-ERROR ")]
    assert len(lines) == 1, "Spark does not retry what a retry cannot help"
    error = json.loads(lines[0].removeprefix("KSTREAMS-ERROR "))
    assert error["type"] == "RecordError"
    assert f"processing failed for {scene.source}-0@" in error["cause"]
    assert "at node" in error["cause"]
    lines = APPLICATION.read_text(encoding="utf-8").splitlines()
    number, line = next((at, line) for at, line in enumerate(lines, 1) if "write_text" in line)
    assert f", in gate at {APPLICATION}:{number}: IsADirectoryError" in error["cause"]
    said = failed.output()
    frame = f'  File "{APPLICATION}", line {number}, in gate\n    {line.strip()}\n'
    assert said.index("in first\n") < said.index(frame) < said.rindex("What to do: ")
    frozen = scene.stops()
    scene.publish(300, 400)
    again = scene.start("run-1")
    assert again.wait() == 1
    assert scene.stops() == frozen
    assert scene.results() == {}
