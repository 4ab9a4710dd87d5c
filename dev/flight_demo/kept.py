"""A demo that stays up: which processes it has, for later commands that show or end it.

The file is written before the first of its processes may outlive the demo, and says once all is up. So what a
demo that was killed has left behind is found, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from dev.flight_demo.children import end_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, told from a later one with the same number by when it began."""

    name: str
    pid: int
    began: float

    @classmethod
    def of(cls, name: str, pid: int) -> Self:
        """Look at a process that runs."""
        return cls(name=name, pid=pid, began=psutil.Process(pid).create_time())

    def running(self) -> psutil.Process | None:
        """Return the process, or None when it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = process.create_time() == self.began and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDemo:
    """What stays up.

    :param broker: its address.
    :param airflow: address of Airflow's pages.
    :param page: the one to open.
    :param processes: the broker's and Airflow's.
    :param ready: whether the demo has run to its end.
    :param check: the command that checks its tables; empty without any.
    """

    broker: str
    airflow: str
    page: str
    processes: Sequence[Process]
    ready: bool
    check: str = ""

    @classmethod
    def found(cls, file: Path) -> Self | None:
        """Read a demo of which something runs, None if there is none."""
        try:
            read = json.loads(file.read_text())
            demo = cls(**{**read, "processes": [Process(**process) for process in read["processes"]]})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        return demo if any(process.running() for process in demo.processes) else None

    @classmethod
    def of(
        cls, pids: Mapping[str, int], *, broker: str, airflow: str, page: str, ready: bool, check: str = ""
    ) -> Self:
        """Describe a demo by the numbers of its processes."""
        processes = [Process.of(name, pid) for name, pid in pids.items()]
        return cls(broker=broker, airflow=airflow, page=page, processes=processes, ready=ready, check=check)

    def write(self, file: Path) -> None:
        """Write the file, whole or not at all."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(file)

    def end(self) -> None:
        """End all its processes, and what they have started."""
        end_families([process.pid for process in self.processes if process.running()])

    def lines(self) -> list[str]:
        """Say what is up, where, and how to stop it."""
        ended = [process.name for process in self.processes if not process.running()]
        return [
            *([f"the demo is not whole any more: {', '.join(ended)} ended"] if ended else []),
            f"page:    {self.page}",
            f"Airflow: {self.airflow}, without a login: whoever reaches it from this machine is its admin",
            f"broker:  {self.broker}, without a login, reached from this machine only",
            "look:    .venv/bin/airflow-kstreams runs --application-id flight-delays "
            f"--bootstrap-server {self.broker}",
            *([f"tables:  {self.check}"] if self.check else []),
            "stop:    dev/demo --stop",
        ]
