"""Operators whose Airflow task is killed while a process of theirs runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
import structlog
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.hooks.spark import TopologySubmitHook
from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work import application_work
from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.streams.errors import KilledError
from airflow_kstreams.streams.topology.loader import main
from tests.support.fresh_python import ROOT
from tests.support.kafka.reset_scene import APP, ResetScene

if TYPE_CHECKING:
    from airflow.sdk import Context


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


def _hook() -> TopologySubmitHook:
    return TopologySubmitHook.adopt(SparkSubmitHook(conn_id="spark_default"))


def test_spark_is_ended_when_the_task_was_killed_while_it_was_being_started(
    submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs after the fork and before the hook holds the process."""
    hook = _hook()
    (submitted.parent / "spark-submit").write_text("#!/bin/sh\nexec sleep 600\n")
    started: list[subprocess.Popen[str]] = []

    def start(*given: Any, **more: Any) -> subprocess.Popen[str]:
        started.append(real(*given, **more))
        hook.on_kill()
        return started[-1]

    real = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr("airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen", start)
        with pytest.raises(KilledError):
            hook.submit("a.py")

    (process,) = started
    assert process.wait() == -signal.SIGTERM


_HANGING = """
def topology():
    import os, pathlib, time
    pathlib.Path({started!r}).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def hanging(tmp_path: Path) -> tuple[Path, Path]:
    """An application file that never loads, and the file that it writes its process id to."""
    file, started = tmp_path / "hanging_application.py", tmp_path / "started"
    file.write_text(_HANGING.format(started=str(started)))
    return file, started


@pytest.mark.parametrize("kind", [CaptureStopOffsetsOperator, RunTopologyOperator])
def test_loading_ends_when_the_task_is_killed(
    kind: type[Any],
    scene: ResetScene,
    context: Context,
    hanging: tuple[Path, Path],
    submitted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, started = hanging
    operator = kind(
        task_id="t", application_id=APP, application=str(file), backfill_outputs={"out": "out-again"}
    )
    vars(context["dag_run"])["run_type"] = "backfill"  # the run operator loads the file in a backfill only
    loading = ApplicationLoader.loading

    def kill_once_it_hangs() -> bool:
        if started.exists() and started.read_text():
            operator.on_kill()
        return bool(operator.was_killed())

    monkeypatch.setattr(
        ApplicationLoader,
        "loading",
        lambda loader, name: loading(replace(loader, was_killed=kill_once_it_hangs), name),
    )
    monkeypatch.setattr("airflow_kstreams.batch.run.begin.intervals.check_interval", lambda *_: None)
    with pytest.raises(KilledError, match="while application file"):
        operator.execute(context)

    assert not psutil.pid_exists(int(started.read_text()))
    assert not submitted.exists()


_WORKER = """
import sys
import structlog
from airflow_kstreams.operators.work.application_work import ApplicationLoader
loader = ApplicationLoader(application=sys.argv[1], log=structlog.get_logger(), timeout_seconds=600)
loader.plan("app")
"""


def test_loading_ends_when_the_worker_was_killed_at_once(
    hanging: tuple[Path, Path], wait_until: Callable[..., Any]
) -> None:
    file, started = hanging
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(file)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as worker:
        wait_until(lambda: started.exists() and started.read_text(), "the file to be loaded")
        loader = psutil.Process(int(started.read_text()))
        worker.kill()

    try:
        wait_until(lambda: not loader.is_running(), "the end of the loader")
    finally:
        with suppress(psutil.NoSuchProcess):
            loader.kill()


def test_nothing_is_loaded_when_the_worker_is_gone_already(tmp_path: Path) -> None:
    never, loaded = tmp_path / "application.py", tmp_path / "loaded"
    never.write_text(f"import pathlib\npathlib.Path({str(loaded)!r}).touch()\n")
    done = subprocess.run(
        [sys.executable, "-m", main.__module__, str(never), "app", "--parent", str(os.getppid())],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert not loaded.exists()


def test_log_and_answer_are_whole_when_loading_takes_longer_than_one_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_work, "_LOOK_SECONDS", 0.001)
    file = tmp_path / "application.py"
    file.write_text(
        "from airflow_kstreams.streams import KStreamBuilder, serdes\n"
        "def topology():\n"
        "    print('before', flush=True)\n"
        "    builder = KStreamBuilder(default_key_serde=serdes.string())\n"
        "    builder.stream('in', value_serde=serdes.string()).send_to('out', value_serde=serdes.string())\n"
        "    print('after')\n"
        "    return builder.build()\n"
    )
    loader = ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=60)
    plan = loader.plan("app")
    assert [sub.id for sub in plan.subtopologies] == [0]
    text = capsys.readouterr().out
    assert text.index("before") < text.index("after")
