"""Asks a module in a Python process of its own, which ends with the time of the look."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow_kstreams.streams.errors import reported_in


class Unanswered(Exception):
    """A process gave no answer; the text says why."""


def ask(module: str, *words: str, environment: Mapping[str, str], seconds: float) -> Any:
    """Run a module, and return the last line that it prints, read as JSON.

    :param module: its name; it reports errors as marked lines of stderr.
    :param seconds: time for the process; it is ended with all that it has started.
    :raises KStreamsError: the error that it reports.
    :raises Unanswered: there was no answer.
    """
    with subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment},
        start_new_session=True,
    ) as process:
        try:
            printed, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Unanswered(f"no answer within {seconds:g} s") from None
        finally:
            # What it has started, such as Spark's Java, belongs to its group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for line in complaint.splitlines():
        if (reported := reported_in(line)) is not None:
            raise reported
    lines = printed.splitlines()
    if process.returncode or not lines:
        raise Unanswered(_raised(complaint) or "it printed nothing")
    return json.loads(lines[-1])


def _raised(complaint: str) -> str:
    r"""Return the line that names the error: some go on with what was asked, and where to read about it.

    >>> _raised("Traceback:\n  raise\nOperationalError: no such table: dag\n[SQL: SELECT]\n(See: http)")
    'OperationalError: no such table: dag'
    """
    lines = complaint.strip().splitlines()
    named = [line for line in lines if line[:1].isalpha() and ": " in line]
    return [*lines, *named][-1] if lines else ""
