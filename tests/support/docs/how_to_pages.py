"""Follows a how-to page as its reader does: writes the files that it shows, and gives its commands to the
command line, which finds a Kafka in memory.

``airflow-kstreams run`` becomes a run without Spark here: its options are parsed by the command itself, and
the tasks run in this process. So a page's commands are executed from the page's own text.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from airflow_kstreams.cli.app import app
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    import pytest

_PROGRAM = "airflow-kstreams"


def values_of(code: str) -> dict[str, Any]:
    """Run a block of Python, and return the names that it defines."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def command_lines(code: str) -> Iterator[list[str]]:
    """Yield the words of each command of a block, whose lines are joined at backslashes."""
    for line in re.sub(r"\\\n\s*", "", code).splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


@dataclass(kw_only=True)
class Follower:
    """One who follows a page in a folder, with a Kafka in memory."""

    folder: Path
    kafka: InMemoryKafka
    clock: ManualClock
    _tries: int = 0

    def write(self, code: str) -> Path:
        """Write a file that a page shows, whose first line names it (``# dags/orders.py``), without that
        line, and return its path.
        """
        first, _, content = code.partition("\n")
        path = self.folder / first.lstrip("#/ ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path

    def append(self, topic: str, value: bytes, key: bytes) -> None:
        """Append a record that is dated now."""
        self.kafka.append(topic, value, key, timestamp_ms=self.clock.now_ms())

    def follow(self, code: str, *, exit_code: int = 0) -> str:
        """Give the commands of a block to the command line, and return what the last one printed.

        :param exit_code: with which each has to end.
        """
        return self.followed(code, exit_code=exit_code)[-1]

    def followed(self, code: str, *, exit_code: int = 0) -> list[str]:
        """Give the commands of a block to the command line, and return what each printed."""
        printed: list[str] = []
        for words in command_lines(code):
            if words[0] == "export":
                for pair in words[1:]:
                    name, _, value = pair.partition("=")
                    os.environ[name] = value
                continue
            assert words[0] == _PROGRAM, f"no command of ours: {words}"
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == exit_code, f"{words}: {result.output} {result.exception!r}"
            printed.append(result.output)
        return printed

    def run(self, application_id: str, path: Path, run_id: str, settings: dict[str, str]) -> None:
        """Begin, process and finish a run as a driver does, without Spark."""
        self._tries += 1
        application = Application(
            on=self.kafka,
            clock=self.clock,
            application_id=application_id,
            topology=ApplicationFile.read(path).topology(),
            settings={"autostop.at": "eol", **settings},
        )
        worked_on = ""
        while worked_on != run_id:  # a run that is unfinished comes first
            slice_ = application.begin(run_id, (0, self._tries))
            worked_on = slice_.run_id
            application.tasks(slice_)
            self.clock.sleep(10)
            application.finish(worked_on)
        self.clock.sleep(3_600)

    def become(self, command: Sequence[str]) -> None:
        """Run what ``airflow-kstreams run`` becomes: an application file with the driver's options."""
        named: dict[str, str] = {}
        settings: dict[str, str] = {}
        for option, value in zip(command[2::2], command[3::2], strict=True):
            if option == "--setting":
                name, _, text = value.partition("=")
                settings[name] = text
            else:
                named[option] = value
        run_id = named.get("--run-id", f"by-hand-{self._tries}")
        self.run(named["--application-id"], Path(command[1]), run_id, settings)


def follower(folder: Path, monkeypatch: pytest.MonkeyPatch, *, now_ms: int = 1_790_000_000_000) -> Follower:
    """Return one who follows a page in a folder, which becomes the current one; the command's cluster is a
    new Kafka in memory until the test ends.
    """
    clock = ManualClock(now_ms=now_ms)
    found = Follower(folder=folder, kafka=InMemoryKafka(clock=clock), clock=clock)
    monkeypatch.chdir(folder)
    for name in ("KSTREAMS_BOOTSTRAP_SERVERS", "KSTREAMS_APPLICATION_ID"):
        monkeypatch.setenv(name, "")  # so that it is as it was when the test is over
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *_, **__: found.kafka)
    monkeypatch.setattr(os, "execve", lambda _, command, __: found.become(command))
    return found
