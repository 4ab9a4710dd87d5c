"""Texts of a task's log, whose lines are broken for people to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BREAK = re.compile(r"(?: \\)?\n {2,}(?=\S)")


def unbroken(text: str) -> str:
    """Return a text with its broken lines joined."""
    return _BREAK.sub(" ", text)


def said(pattern: str) -> str:
    """Return a regular expression for a text of words, wherever its lines are broken."""
    return pattern.replace(" ", r"(?: \\)?\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a task's log, as Airflow's viewer shows it.

    :param level: ``info``, ``error``, ...
    :param logger: name of the logger; that of this package for its lines and those of Spark.
    :param event: text, which the viewer breaks at line feeds only.
    :param exceptions: (class, text) of the exceptions that the viewer shows below it.
    """

    level: str
    logger: str
    event: str
    exceptions: Sequence[tuple[str, str]]

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.event.split("\n")

    @property
    def is_ours(self) -> bool:
        """Whether this package wrote it, or its error."""
        return self.logger.startswith("airflow_kstreams") or (self.logger == "task" and self.level == "error")


@contextmanager
def task_logs(file: Path) -> Iterator[TaskLogs]:
    """Write the logs of tasks that run in the block as Airflow's supervisor does, into a file."""
    from airflow.sdk.log import configure_logging

    with file.open("wb", buffering=0) as output:
        configure_logging.cache_clear()
        configure_logging(json_output=True, output=output, cache_logger_on_first_use=False)
        try:
            yield TaskLogs(file)
        finally:
            configure_logging.cache_clear()
            configure_logging()


class TaskLogs:
    """The logs of the tasks that ran since the last look.

    :param file: the file with all entries.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = 0

    def of_last_tasks(self) -> list[list[Entry]]:
        """Return the entries of each task, without what the scheduler's part of ``dag.test()`` says."""
        lines = self._file.read_text(encoding="utf-8").splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        tasks: list[list[Entry]] = []
        for line in new:
            said = json.loads(line)
            if said["event"].startswith("[DAG TEST] starting"):
                tasks.append([])
            logger = str(said.get("logger", ""))
            if tasks and (logger == "task" or logger.startswith(("airflow_kstreams", "airflow.task"))):
                tasks[-1].append(_entry(said, logger))
        return tasks


def _entry(said: dict[str, Any], logger: str) -> Entry:
    shown = said.get("exception") or said.get("error_detail") or ()
    return Entry(
        level=said["level"],
        logger=logger,
        event=said["event"],
        exceptions=[(each["exc_type"], each["exc_value"]) for each in shown],
    )
