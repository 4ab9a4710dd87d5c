"""The submit hook against a real spark-submit; no broker is needed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.spark import TopologySubmitHook
from airflow_kstreams.launch.jvm_options import COMPILER, VARIABLE
from airflow_kstreams.launch.processes import end_session, session_members
from airflow_kstreams.streams.errors import (
    ERROR_MARKER,
    ConfigError,
    KilledError,
    ReportedError,
    SparkSessionError,
)
from tests.support.remedies import walked

pytestmark = pytest.mark.filterwarnings("default")

#: Reports its session and stays: the driver, its JVM, Spark's Python daemon and two workers.
_ENDLESS = """
import os, pathlib, sys, time
from pyspark.sql import SparkSession

folder = pathlib.Path(sys.argv[1])

def work(batches):
    import os, time
    (folder / f"worker-{os.getpid()}").touch()
    while True:
        time.sleep(3600)
    yield from batches

session = SparkSession.builder.getOrCreate()
session.range(0, 2, 1, 2).mapInArrow(work, "id long").collect()
"""
_REPORTS = """
import json, sys
print("something before", flush=True)
sys.stderr.write("MARKER" + json.dumps({"type": "ConfigError", "cause": "no such thing", "fix": "do this",
    "retriable": sys.argv[1] == "retriable"}) + chr(10))
for number in range(100):
    print("noise of Spark's shutdown", number)
sys.exit(1)
""".replace("MARKER", ERROR_MARKER)


@pytest.fixture(autouse=True)
def _spark_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2,4]"}))


@pytest.fixture
def submit_hook(tmp_path: Path) -> Iterator[Callable[..., TopologySubmitHook]]:
    made: list[TopologySubmitHook] = []

    def make(*arguments: str, **parameters: Any) -> TopologySubmitHook:
        settings = {"conn_id": "spark_default", "conf": {"spark.ui.enabled": "false"}, **parameters}
        made.append(TopologySubmitHook.adopt(SparkSubmitHook(application_args=list(arguments), **settings)))
        return made[-1]

    yield make
    for hook in made:
        hook.end_application()


def _application(folder: Path, text: str) -> str:
    path = folder / "application.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("retriable", [True, False])
def test_drivers_error_is_raised_and_mapped_when_it_reported_one(
    retriable: bool, submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path
) -> None:
    hook = submit_hook("retriable" if retriable else "not retriable")

    with pytest.raises(ReportedError if retriable else AirflowFailException) as raised, airflow_outcomes():
        hook.submit(_application(tmp_path, _REPORTS))

    assert str(raised.value) == "ConfigError: no such thing\nWhat to do: do this"


def test_sparks_own_output_is_shown_when_the_driver_reported_nothing(
    submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path
) -> None:
    with pytest.raises(SparkSessionError, match="exit code 1: ValueError: surprise"):
        submit_hook().submit(_application(tmp_path, "raise ValueError('surprise')"))


@pytest.mark.parametrize(
    "fault",
    [
        walked("spark_output.SparkOutput.failure: install Java", "echo 'JAVA_HOME is not set'; exit 1"),
        walked("spark_output.SparkOutput.failure: look for what ended", "kill -9 $$"),
        walked("spark_output.SparkOutput.failure: mend what the lines", "echo 'no such class'; exit 1"),
    ],
)
def test_spark_that_ended_without_a_report_is_started_again(
    fault: str,
    submit_hook: Callable[..., TopologySubmitHook],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, started = tmp_path / "spark-submit", tmp_path / "started"
    program.write_text(f"#!/bin/sh\n{fault}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    with pytest.raises(SparkSessionError):
        submit_hook().submit(_application(tmp_path, ""))

    program.write_text(f"#!/bin/sh\n: > {started}\n")
    submit_hook().submit(_application(tmp_path, ""))
    assert started.exists()


def test_driver_runs_on_airflows_python_when_no_other_is_named(
    submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath + os.pathsep + str(Path(_java()).parent))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    found = tmp_path / "python"
    text = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.prefix)"

    submit_hook(str(found)).submit(_application(tmp_path, text))

    import sys

    assert found.read_text(encoding="utf-8") == sys.prefix


def test_driver_starts_quickly_and_users_java_options_hold(
    submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path
) -> None:
    found = tmp_path / "options"
    text = """
import os, pathlib, sys
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
lang = session.sparkContext._jvm.java.lang.management.ManagementFactory
given = [str(option) for option in lang.getRuntimeMXBean().getInputArguments()]
pathlib.Path(sys.argv[1]).write_text(" ".join(given))
"""
    hook = submit_hook(
        str(found),
        env_vars={VARIABLE: "-Dmine=1"},
        conf={"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=3"},
    )

    hook.submit(_application(tmp_path, text))

    options = found.read_text(encoding="utf-8").split()
    levels = [option for option in options if option.startswith("-XX:TieredStopAtLevel=")]
    assert (levels[0], levels[-1]) == (COMPILER, "-XX:TieredStopAtLevel=3")
    assert options.index(COMPILER) < options.index("-Dmine=1")


def _java() -> str:
    import shutil

    found = shutil.which("java")
    assert found
    return found


@pytest.mark.remedy("spark.TopologySubmitHook.submit")
def test_missing_program_is_named_and_started_when_its_folder_is_on_the_path(
    submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = _java()
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="'spark3-submit' is not on the PATH"):
        submit_hook(spark_binary="spark3-submit").submit(_application(tmp_path, ""))

    folder, started = tmp_path / "bin", tmp_path / "started"
    folder.mkdir()
    (folder / "spark3-submit").write_text(f"#!/bin/sh\n: > {started}\n")
    (folder / "spark3-submit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")
    submit_hook(spark_binary="spark3-submit").submit(_application(tmp_path, ""))
    assert started.exists()
    # Or pyspark beside Airflow brings spark-submit: it starts without anything on the path.
    monkeypatch.setenv("PATH", os.defpath + os.pathsep + str(Path(java).parent))
    submit_hook().submit(_application(tmp_path, ""))


def test_driver_and_workers_are_gone_when_the_task_is_killed(
    submit_hook: Callable[..., TopologySubmitHook], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    hook = submit_hook(str(tmp_path))
    application = _application(tmp_path, _ENDLESS)
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            hook.submit(application)
        except KilledError as error:
            failures.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    workers = wait_until(
        lambda: found if len(found := list(tmp_path.glob("worker-*"))) == 2 else None, "two Python workers"
    )
    assert hook._submit_sp is not None
    session = hook._submit_sp.pid
    members = session_members(session)
    pids = {int(path.name.removeprefix("worker-")) for path in workers}
    assert pids <= set(members), "workers left the session"
    assert len(members) >= 5, "a JVM, a driver, a daemon and two workers"

    hook.on_kill()

    thread.join(30)
    assert not thread.is_alive()
    assert failures
    assert session_members(session) == []
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_killing_is_harmless_when_nothing_was_submitted(
    submit_hook: Callable[..., TopologySubmitHook],
) -> None:
    submit_hook().on_kill()


def test_own_session_is_never_ended_when_asked_to() -> None:
    with pytest.raises(ValueError, match="caller's own"):
        end_session(os.getsid(0), grace_seconds=1)
