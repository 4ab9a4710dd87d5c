"""Starts an application file as a user would, as a process of its own that a test may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

ROOT = Path(__file__).parents[3]


@dataclass(kw_only=True)
class DriverProcess:
    """One driver, with everything it starts.

    :param application: the application file.
    :param arguments: its command line.
    :param environment: on top of this process's own.
    :param log: file that takes its output.
    """

    application: Path
    arguments: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    family: list[psutil.Process] = field(default_factory=list)

    def start(self) -> DriverProcess:
        """Start it."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.driver.memory=512m --conf spark.ui.enabled=false "
            "pyspark-shell",
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(self.application), *self.arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def kill(self) -> None:
        """Kill the driver's Python process with SIGKILL, as the out-of-memory killer would; nothing can clean
        up.
        """
        self._remember_family()
        os.kill(self._running().pid, signal.SIGKILL)
        self._running().wait(30)

    def signal(self, number: signal.Signals) -> None:
        """Send the driver's Python process a signal."""
        os.kill(self._running().pid, number)

    def wait(self, seconds: float = 120) -> int:
        """Wait for the end and return the exit code."""
        return self._running().wait(seconds)

    def stop(self) -> None:
        """End it and everything it started; safe to call at any time."""
        if self.process is None:
            return
        self._remember_family()
        for process in (
            [*self.family, psutil.Process(self.process.pid)] if self.process.poll() is None else self.family
        ):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(30)

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        return self._running().pid

    @property
    def client_config(self) -> Path:
        """The file of client settings that it is given."""
        return Path(self.arguments[self.arguments.index("--client-config") + 1])

    @property
    def exit_code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._running().poll()

    def check_alive(self) -> None:
        """Fail with its output if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"the driver ended with {self.process.returncode}:\n{self.output()[-6000:]}")

    def output(self) -> str:
        """Return what it printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _remember_family(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.family = psutil.Process(self.process.pid).children(recursive=True)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise RuntimeError("not started")
        return self.process


def driver(
    application: Path,
    folder: Path,
    *,
    bootstrap: str,
    application_id: str,
    run_id: str,
    client: Mapping[str, object] = MappingProxyType({}),
    **settings: str,
) -> DriverProcess:
    """Describe a driver for a local broker; settings by their names with underscores.

    It runs a batch unless ``autostop_at`` is given as empty.

    :param client: client settings besides the address, or another address, too.
    """
    settings = {"autostop_at": "eol", **settings}
    config = folder / f"client-{uuid.uuid4().hex[:8]}.json"
    config.write_text(json.dumps({"bootstrap.servers": bootstrap, **client}))
    arguments = ["--application-id", application_id, "--run-id", run_id, "--client-config", str(config)]
    for name, value in settings.items():
        arguments += ["--setting", f"{name.replace('_', '.')}={value}"]
    return DriverProcess(
        application=application,
        arguments=arguments,
        environment={},
        log=folder / f"driver-{uuid.uuid4().hex[:8]}.log",
    )
