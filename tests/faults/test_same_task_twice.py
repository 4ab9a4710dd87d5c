"""Two attempts of one Spark task at once, as speculation would start them: the younger one does the work, the
older one sees it done, and every result is there once.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.kafka.in_process import Application
from tests.support.spark.gated_scene import APPLICATION, Scene
from tests.support.spark.spark_hosts import run_spark_task

pytestmark = pytest.mark.promise("zombies-change-nothing")

RECORDS = 3_000


def host_of(scene: Scene, application: Application, slice_: Slice, shares: Sequence[TaskShare]) -> TaskHost:
    config = scene.folder / "client.json"
    config.write_text(json.dumps({"bootstrap.servers": scene.bootstrap}))
    return TaskHost(
        source=ApplicationFile.read(APPLICATION),
        settings=application.checked,
        tasks=(tuple(shares),),
        run_id=slice_.run_id,
        generation=slice_.generation,
        slice=without_partitions(slice_),
        client=ClientSettings(path=str(config)),
    )


def outcomes_of(reports: list[HostReport]) -> list[str]:
    """Return the outcomes in the order of the tasks; all must have one."""
    assert [report.error for report in reports] == [None] * len(reports)
    done = sorted((report.report.task_id, report.report.outcome) for report in reports if report.report)
    return [outcome for _, outcome in done]


def test_every_result_is_there_once_when_spark_tasks_run_twice_at_once(
    scene: Scene, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in scene.environment.items():
        monkeypatch.setenv(name, value)
    scene.publish(0, RECORDS)
    application = Application(
        bootstrap=scene.bootstrap,
        application_id=scene.application_id,
        topology=ApplicationFile.read(APPLICATION).topology(),
        settings={"commit.interval.ms": 100, "num.stream.threads": 2},
    )
    driver = application.coordinator()
    slice_ = application.begin("run-1", coordinator=driver)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for subtopology, gate in enumerate(("first", "second")):
            host = host_of(scene, application, slice_, driver.unfinished(slice_, subtopology))
            marker = scene.arm(gate, 1_500)
            try:
                older = pool.submit(run_spark_task, host, 0)
                wait_until(reached_by(marker, "", older), "the older attempt at the gate")
                process_id = marker.read_text()
                younger = pool.submit(run_spark_task, host, 0)
                wait_until(reached_by(marker, process_id, younger), "the younger attempt at the gate")
            finally:
                scene.open_gates()
            outcomes = [outcomes_of(attempt.result()) for attempt in (older, younger)]
            assert ("already_done", "done") in zip(*outcomes, strict=True), (
                "the task at the gate: fenced in the middle, then done by the other attempt"
            )
    driver.close()
    assert application.begin("run-1", (0, 2)).inputs == slice_.inputs
    application.finish("run-1")
    assert scene.results() == scene.sums(scene.sent)


def reached_by(marker: Path, not_by: str, attempt: Future[Any]) -> Callable[[], bool]:
    """Return a condition: another process than that one has come to the gate."""

    def check() -> bool:
        assert not attempt.done(), attempt.result()
        return marker.exists() and marker.read_text() not in ("", not_by)

    return check
