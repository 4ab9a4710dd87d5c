"""A standalone Spark cluster from pip's pyspark: one master, two workers of one slot each, loopback only."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark

from dev.servers.embedded import HOST, free_port
from dev.servers.quick_java import QUICK_SPARK

ROOT = Path(__file__).parents[3]
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_EXECUTOR_MEMORY = "512m"
_WORKER_MEMORY = "600m"
WORKERS = 2


@contextmanager
def spark_cluster(folder: Path, wait_until: Callable[..., Any], *, checkout: bool = True) -> Iterator[str]:
    """Run a cluster and give its master's address.

    :param folder: for its logs and scratch files.
    :param checkout: whether its executors import this checkout's modules.
    """
    port = free_port(2)
    master = f"spark://{HOST}:{port}"
    place = ["--host", HOST]
    commands = [["master.Master", *place, "--port", str(port), "--webui-port", str(port + 1)]]
    for number in range(WORKERS):
        scratch = ["--work-dir", str(folder / f"worker-{number}")]
        size = ["--cores", "1", "--memory", _WORKER_MEMORY]
        commands.append(["worker.Worker", *place, "--webui-port", "0", *size, *scratch, master])
    processes = []
    try:
        for number, (name, *arguments) in enumerate(commands):
            with (folder / f"spark-{number}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
                        env=_environment(folder, checkout=checkout),
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        wait_until(lambda: _alive_workers(port + 1) == WORKERS, "the Spark cluster")
        yield master
    finally:
        for process in reversed(processes):
            _end(process)


def worker_daemons(master: str) -> list[psutil.Process]:
    """Return the daemons of a cluster that this process runs, which start its executors."""
    return [
        process
        for process in psutil.Process().children()
        if {"org.apache.spark.deploy.worker.Worker", master} <= {*process.cmdline()}
    ]


def executor_of(worker: psutil.Process) -> psutil.Process:
    """Return the executor's JVM that started a Python worker."""
    return next(
        parent for parent in worker.parents() if "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline())
    )


def submit_arguments(master: str, environment: dict[str, str], *confs: str) -> str:
    """Return what ``PYSPARK_SUBMIT_ARGS`` says for a driver on the cluster.

    :param environment: what executors need, too.
    :param confs: further settings, ``name=value``.
    """
    settings = [
        "spark.driver.memory=512m",
        "spark.ui.enabled=false",
        f"spark.executor.memory={_EXECUTOR_MEMORY}",
        f"spark.executor.extraJavaOptions={QUICK_SPARK}",
        *(f"spark.executorEnv.{name}={value}" for name, value in environment.items()),
        *confs,
    ]
    return shlex.join(
        ["--master", master, *(word for each in settings for word in ("--conf", each)), "pyspark-shell"]
    )


def _environment(folder: Path, *, checkout: bool) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT) if checkout else "",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


def _alive_workers(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{web_port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # its pages come up one after the other
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a daemon and whatever it started, executors first of all."""
    if process.poll() is None:
        for started in psutil.Process(process.pid).children(recursive=True):
            try:
                started.kill()
            except psutil.NoSuchProcess:
                continue
        process.kill()
    process.wait(30)
