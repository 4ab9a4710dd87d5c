"""Executors of a real standalone cluster are killed in the middle of a run: Spark's retries and ours, on
other executors, leave nothing out and double nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.servers import embedded
from tests.support.kafka.kafka_tools import hanging_transactions
from tests.support.spark.gated_scene import Scene, kill_executor_at, reached
from tests.support.spark.spark_cluster import spark_cluster, submit_arguments

pytestmark = pytest.mark.promise("exactly-once", "no-secret-is-seen")

RECORDS = 4_000
#: Spark gives a stage up after so many lost tasks; then it is for the driver to launch the job again.
TASK_FAILURES = 2


def test_run_ends_exactly_when_its_executors_are_killed_again_and_again(
    scene: Scene, broker: embedded.Broker, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    scene.publish(0, RECORDS)
    marker = scene.arm("first", 2_000)
    with spark_cluster(tmp_path, wait_until) as master:

        def on_cluster(*confs: str) -> Scene:
            arguments = submit_arguments(master, scene.environment, *confs)
            launch = {"MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": arguments}
            return replace(scene, launch=launch, client=broker.sasl_config)

        in_slice = list(scene.sent)
        driver = on_cluster(f"spark.task.maxFailures={TASK_FAILURES}").start("run-1")
        killed = [kill_executor_at(marker, driver, wait_until)]
        frozen = scene.stops()
        scene.publish(RECORDS, RECORDS + 500)
        killed += [kill_executor_at(marker, driver, wait_until) for _ in range(1, TASK_FAILURES)]
        wait_until(reached(marker, driver), "the gate once more", seconds=120)
        scene.open_gates()
        assert driver.wait() == 0, driver.output()[-6000:]
        assert "launching its unfinished tasks again" in driver.output(), (
            "the stage was given up, the run not"
        )
        assert len({executor.pid for executor, _ in killed}) == TASK_FAILURES
        assert scene.stops() == frozen, "a run that has begun keeps its stop offsets"
        assert scene.results() == scene.sums(in_slice)
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert hanging_transactions(scene.bootstrap) == []
    holders = [path for path in left if embedded.SASL_PASSWORD.encode() in path.read_bytes()]
    assert holders == [driver.client_config], "no executor that was killed left a copy to read"
