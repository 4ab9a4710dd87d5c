"""Executors of a real standalone cluster whose Python is not the driver's: one line says what is missing, and
the archive that ``airflow-kstreams pack`` writes brings it. What they leave behind holds no password.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams import __version__
from dev.servers import embedded
from tests.support.airflow.python_environment import environment_with
from tests.support.spark.driver_process import DriverProcess
from tests.support.spark.gated_scene import Scene
from tests.support.spark.spark_cluster import spark_cluster, submit_arguments

pytestmark = pytest.mark.promise("no-secret-is-seen", "unfit-executors-end-the-run")


def told(driver: DriverProcess) -> dict[str, Any]:
    """What the driver tells when it fails; it must be all, without Spark's own words."""
    assert driver.wait() == 2, driver.output()[-6000:]
    (line,) = [line for line in driver.output().splitlines() if line.startswith("KSTREAMS-ERROR ")]
    assert "Traceback" not in driver.output()
    error: dict[str, Any] = json.loads(line.removeprefix("KSTREAMS-ERROR "))
    assert "\n" not in error["cause"]
    assert (
        f"{error['type']}: {error['cause']} [{error['code']}]\nWhat to do: {error['fix']}\n"
        in driver.output()
    )
    return error


def pack(folder: Path) -> list[str]:
    """Build the archive as a user does; returns the settings that the command prints."""
    command = [sys.executable, "-m", "airflow_kstreams.cli", "pack", "--output", str(folder / "k.tar.gz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("  spark.")]


def test_executors_say_what_they_lack_and_run_when_the_archive_brings_it(
    scene: Scene, broker: embedded.Broker, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    scene.publish(0, 500)
    bare = environment_with(tmp_path / "bare", "pyarrow")

    with spark_cluster(tmp_path, wait_until, checkout=False) as master:

        def start(python: Path, *confs: str, client: Mapping[str, object] | None = None) -> DriverProcess:
            launch = {
                "MASTER": master,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(python),
                # One executor tells all there is to tell.
                "PYSPARK_SUBMIT_ARGS": submit_arguments(
                    master, scene.environment, "spark.cores.max=1", *confs
                ),
            }
            return replace(scene, launch=launch, client=client or {}).start("run-1")

        missing = told(start(bare))
        assert missing["type"] == "ExecutorSetupError"
        assert missing["cause"].endswith(f"has no airflow_kstreams, the driver has {__version__}")
        assert str(bare) in missing["cause"]
        assert "airflow-kstreams pack" in missing["fix"]

        settings = pack(tmp_path)
        assert [setting.partition("=")[0] for setting in settings] == [
            "spark.archives",
            "spark.executorEnv.PYTHONPATH",
        ]
        brought = start(bare, *settings, client={**broker.sasl_config, "debug": "security,conf"})
        assert brought.wait() == 0, brought.output()[-6000:]
        left = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(bare)]
    assert any("stderr" in path.name for path in left), "the executors' logs"
    holders = [path for path in left if embedded.SASL_PASSWORD.encode() in path.read_bytes()]
    assert holders == [brought.client_config], "the user's own file; Spark's copies hold nothing to read"
    assert any(path.name.startswith("kstreams-kafka-") for path in left), "Spark's copies"
    assert scene.results() == scene.sums(scene.sent)
