"""What Spark ships to executors, unpickled by other Pythons, as a worker of Spark does it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import cloudpickle

from airflow_kstreams import __version__
from airflow_kstreams.batch.protocol.slice.stops import Span, TaskShare
from airflow_kstreams.spark.driver.package_archive import remedy, shipped
from airflow_kstreams.spark.executor.task_host import TaskHost
from tests.support.airflow.python_environment import PACKAGE, build_wheel, environment_with, install
from tests.support.spark.shipped_hosts import a_continuous_host, a_host, written_config

_LIBRARIES = Path(pyspark.__file__).parent / "python" / "lib"


_WORKER = f"""
import sys
sys.path[:0] = {[str(path) for path in _LIBRARIES.glob("*.zip")]!r}
import pyarrow
from pyspark import cloudpickle
function = cloudpickle.loads(sys.stdin.buffer.read())
ids = pyarrow.RecordBatch.from_pydict({{"id": [0]}})
for batch in function(iter([ids])):
    for report in batch.column(0).to_pylist():
        print(report)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_config(tmp_path_factory.mktemp("config"))


def run_on(python: Path, host: TaskHost) -> list[dict[str, Any]]:
    """Run the shipped function as a Spark worker with that Python does; returns the rows."""
    done = subprocess.run(
        [str(python), "-I", "-c", _WORKER],
        input=cloudpickle.dumps(shipped(host)),  # type: ignore[no-untyped-call]
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def cause_on(python: Path, host: TaskHost) -> str:
    """The one error that an executor with that Python reports."""
    ((error,),) = [row.values() for row in run_on(python, host)]
    assert error["type"] == "ExecutorSetupError"
    assert error["retriable"] is False
    assert error["fix"] == remedy()
    cause = error["cause"]
    assert f"at {python})" in cause
    assert "\n" not in cause
    return str(cause)


def test_executor_says_so_when_the_package_is_missing(tmp_path: Path, config: Path) -> None:
    python = environment_with(tmp_path / "bare", "pyarrow")

    cause = cause_on(python, a_host(config))

    assert cause.endswith(f"has no airflow_kstreams, the driver has {__version__}")


def test_executor_says_so_when_the_package_is_another_version(tmp_path: Path, config: Path) -> None:
    python = environment_with(tmp_path / "other", PACKAGE, "pyarrow")
    install(python, build_wheel(tmp_path, version="0.0.9"))

    cause = cause_on(python, a_host(config))

    assert f"has airflow_kstreams 0.0.9 at {tmp_path / 'other'}" in cause
    assert cause.endswith(f"the driver has {__version__}")


@pytest.mark.parametrize(
    ("missing", "there"),
    [
        ("msgspec", ["pyarrow", "tenacity", "confluent-kafka"]),
        ("confluent_kafka", ["pyarrow", "msgspec", "tenacity"]),
        ("tenacity", ["pyarrow", "msgspec", "confluent-kafka"]),
    ],
)
def test_executor_says_so_when_a_requirement_is_missing(
    missing: str, there: list[str], wheel: Path, tmp_path: Path, config: Path
) -> None:
    python = environment_with(tmp_path / "bare", *there)
    install(python, wheel, dependencies=False)

    cause = cause_on(python, a_host(config))

    assert f"has airflow_kstreams {__version__}, but {missing} cannot be imported there" in cause


def test_executor_names_the_module_when_it_was_compiled_for_another_python(
    wheel: Path, tmp_path: Path, config: Path
) -> None:
    python = environment_with(tmp_path / "bare", "pyarrow", "tenacity", "confluent-kafka")
    install(python, wheel, dependencies=False)
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    (site / "msgspec").mkdir()
    (site / "msgspec" / "__init__.py").write_text("from ._core import Struct")

    assert "but msgspec._core cannot be imported there" in cause_on(python, a_host(config))


def test_continuous_task_is_told_the_same_when_the_package_is_missing(tmp_path: Path, config: Path) -> None:
    python = environment_with(tmp_path / "bare", "pyarrow")

    assert "has no airflow_kstreams" in cause_on(python, a_continuous_host(config))


@pytest.mark.remedy("package_archive.shipped")
def test_task_runs_when_the_package_was_installed_as_the_error_says(
    wheel: Path, tmp_path: Path, config: Path
) -> None:
    python = environment_with(tmp_path / "whole", PACKAGE, "pyarrow")
    assert "has no airflow_kstreams" in cause_on(python, a_host(config))
    install(python, wheel)

    (row,) = run_on(python, a_host(config, TaskShare(0, 0, (Span(0, 1, 5, 7),), True)))

    assert row["error"]["type"] == "TopologyError", "it is the application file that has no topology"
    assert "must define a function topology()" in row["error"]["cause"]
