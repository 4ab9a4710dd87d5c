"""Operators whose Airflow task is killed before there is anything of Spark to end.

Airflow's signal handler calls ``on_kill`` and the task goes on, so each test calls it at one place of
``execute`` and looks at what is started afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Context

from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.hooks.spark import TopologySubmitHook
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.run_state import FoundRun
from airflow_kstreams.streams.errors import KilledError
from tests.support.kafka.reset_scene import APP, ResetScene

pytestmark = pytest.mark.promise("killed-tasks-leave-resumable-runs")


@pytest.fixture
def context() -> Context:
    instance = SimpleNamespace(dag_id="d", task_id="t", try_number=1, map_index=-1)
    dag_run = SimpleNamespace(run_id="r", clear_number=0, data_interval_start=None, data_interval_end=None)
    return cast("Context", {"ti": instance, "dag_run": dag_run})


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> ResetScene:
    made = ResetScene(partitions=1)
    made.send("a")
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: made.kafka)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    return made


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once spark-submit was started."""
    marker, program = tmp_path / "submitted", tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return marker


def _calling_first(effect: Callable[..., Any], first: Callable[[], None]) -> Callable[..., Any]:
    def called(*given: Any, **more: Any) -> Any:
        first()
        return effect(*given, **more)

    return called


def _run_operator() -> RunTopologyOperator:
    return RunTopologyOperator(task_id="t", application_id=APP, application="a.py")


def test_spark_is_not_started_when_the_task_was_killed_while_kafka_was_asked(
    scene: ResetScene, context: Context, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin("r")
    operator = _run_operator()
    monkeypatch.setattr(FoundRun, "read", _calling_first(FoundRun.read, operator.on_kill))

    with pytest.raises(KilledError, match="before Spark was started") as caught:
        operator.execute(context)

    assert caught.value.is_retriable
    assert not submitted.exists()


def test_spark_is_not_started_when_the_task_was_killed_while_the_hook_was_made(
    scene: ResetScene, context: Context, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin("r")
    operator = _run_operator()
    monkeypatch.setattr(operator, "_get_hook", _calling_first(operator._get_hook, operator.on_kill))

    with pytest.raises(KilledError):
        operator.execute(context)

    assert not submitted.exists()


def _hook() -> TopologySubmitHook:
    return TopologySubmitHook.adopt(SparkSubmitHook(conn_id="spark_default"))


@pytest.mark.error_example("KS-RUN-009")
def test_spark_is_not_started_when_the_hook_was_killed_before(submitted: Path) -> None:
    hook = _hook()
    hook.on_kill()

    with pytest.raises(KilledError):
        hook.submit("a.py")

    assert not submitted.exists()


def test_driver_is_ended_when_the_task_was_killed_before_it_was_known(
    submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry finds the driver of an earlier try: until then the hook knows none to end."""
    operator = _run_operator()
    operator.on_kill()
    operator._hook = _hook()
    ended: list[str] = []
    monkeypatch.setattr(operator._hook, "on_kill", lambda: ended.append("driver"))

    with pytest.raises(KilledError):
        operator.poll_until_complete("application_1_0001", Context())

    assert ended == ["driver"]
