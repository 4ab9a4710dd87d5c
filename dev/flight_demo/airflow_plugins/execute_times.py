"""An Airflow listener that notes how long each task ran: from before ``execute`` until its result is stored.

The time that Airflow needs to start a task's process is not the package's; the demo's figures leave it out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

TIMES_FILE = "KSTREAMS_DEMO_EXECUTE_TIMES"

_started: dict[str, float] = {}


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Start the clock."""
    _started[str(task_instance.id)] = time.monotonic()


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Stop the clock and append one line of JSON; lines this short are appended whole."""
    started = _started.pop(str(task_instance.id), None)
    if started is None or TIMES_FILE not in os.environ:
        return
    line = {
        "run_id": task_instance.run_id,
        "task_id": task_instance.task_id,
        "seconds": time.monotonic() - started,
    }
    with Path(os.environ[TIMES_FILE]).open("a") as times:
        times.write(json.dumps(line) + "\n")


class ExecuteTimesPlugin(AirflowPlugin):
    """Registers the listener, which is this module."""

    name = "execute_times"
    listeners = [sys.modules[__name__]]
