"""Importing the package must cost nothing: no network, no thread, no client, no Airflow, no Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]

#: Runs in a process of its own. Airflow itself is imported before the guard stands: what it does is its own
#: business.
_WALK = """
import importlib, json, pkgutil, socket, sys, threading
import airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, DAG, Param, TaskGroup, task

touched = []
def refuse(self, *args, **kwargs):
    touched.append(repr(args))
    raise OSError("no network at import")
socket.socket.connect = socket.socket.connect_ex = socket.socket.bind = refuse
def lookup(*args, **kwargs):
    touched.append(repr(args))
    raise OSError("no network at import")
socket.getaddrinfo = lookup

before = set(threading.enumerate())
import airflow_kstreams
names = [m.name for m in pkgutil.walk_packages(airflow_kstreams.__path__, "airflow_kstreams.")]
threads = {}
for name in names:
    importlib.import_module(name)
    new = [t.name for t in threading.enumerate() if t not in before]
    if new:
        threads[name] = new
print(json.dumps({"names": names, "threads": threads, "touched": touched}))
"""

_TOP = """
import json, sys, time
import airflow_kstreams
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""

_AIRFLOW_SIDE = """
import json, runpy, sys
import airflow.sdk
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, DAG, Param, TaskGroup, task
dags = [value for value in runpy.run_path(sys.argv[1]).values() if isinstance(value, DAG)]
top = {name.partition(".")[0] for name in sys.modules}
heavy = sorted(top & {"confluent_kafka", "pyspark", "pandas", "pyarrow"})
runs_at_once = {dag.dag_id: dag.max_active_runs for dag in dags}
print(json.dumps({"heavy": heavy, "runs_at_once": runs_at_once}))
"""


def _run(code: str, home: Path, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "AIRFLOW_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_touches_no_network_and_starts_no_thread_when_every_module_is_imported(tmp_path: Path) -> None:
    found = _run(_WALK, tmp_path)

    files = {
        ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (_ROOT / "airflow_kstreams").rglob("*.py")
    }
    assert {*found["names"], "airflow_kstreams"} == files
    assert found["threads"] == {}
    assert found["touched"] == []


def test_import_loads_no_framework_and_no_client_when_only_the_package_is_imported(tmp_path: Path) -> None:
    loaded = set(_run(_TOP, tmp_path))

    assert "airflow_kstreams" in loaded
    assert loaded.isdisjoint({"airflow", "pyspark", "confluent_kafka", "pandas", "pyarrow"})


#: Each name is asked for first by somebody: no other may have to come before it.
_NAMES = """
import importlib, json, sys
homes = importlib.import_module("airflow_kstreams.streams")._HOMES
first_of_each_home = {home: name for name, home in homes.items()}
for name in first_of_each_home.values():
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "airflow_kstreams"]:
        del sys.modules[loaded]
    getattr(importlib.import_module("airflow_kstreams.streams"), name)
module = importlib.import_module("airflow_kstreams.streams")
print(json.dumps([name for name in module.__all__ if getattr(module, name, None) is None]))
"""


def test_each_name_of_the_engine_can_be_asked_for_first(tmp_path: Path) -> None:
    assert _run(_NAMES, tmp_path) == []


#: What a triggerer imports on its event loop when it makes a trigger.
_TRIGGERS = """
import json, sys
import airflow.triggers.base, airflow.triggers.shared_stream
from airflow.sdk import BaseHook
before = set(sys.modules)
import airflow_kstreams.triggers.condition, airflow_kstreams.triggers.finished_runs
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_triggerer_loads_neither_the_dsl_nor_a_client_when_it_makes_a_trigger(tmp_path: Path) -> None:
    loaded = _run(_TRIGGERS, tmp_path)
    parts = [".".join(name.split(".")[:3]) for name in loaded]
    assert {"airflow_kstreams.streams.kstream", "airflow_kstreams.streams.state"}.isdisjoint(parts)
    assert "confluent_kafka" not in loaded


@pytest.mark.parametrize(
    "dag",
    [
        "flight_delays_hourly",
        "flight_delays_report",
        "flight_delays_followed",
        "flight_delays_backfill",
    ],
)
def test_dag_file_loads_nothing_heavy_when_airflow_is_loaded(dag: str, tmp_path: Path) -> None:
    found = _run(_AIRFLOW_SIDE, tmp_path, str(_ROOT / "dags" / f"{dag}.py"))

    assert found["runs_at_once"] == {dag: 1}, "runs of a shipped DAG go one after the other"
    assert found["heavy"] == []
