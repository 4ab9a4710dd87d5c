"""What Airflow's workers run when nothing is new: the three operators, each in a Python of its own.

Each line of standard input is a request, each line of standard output its answer, both JSON. Processes come
one after the other, as tasks do. Airflow's scheduling, and what its own processes tell each other, is no part
of it. Seconds are the sum over the three, of each from the moment when it had imported ``airflow.sdk``, or
from its start, as the request's system says.

usage: python -m dev.benchmarks.empty_tasks_host FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.benchmarks.empty_host import application_file, serve
from dev.benchmarks.systems import OURS_IN_THREE_STARTED

_TASKS = ("run.capture_stop_offsets", "run.run_topology", "run.finish_run")
_DAG = """\
from airflow.sdk import DAG

from airflow_kstreams.operators.incremental_batch import incremental_batch

with DAG(dag_id="bench", schedule=None) as dag:
    incremental_batch(
        group_id="run", application_id={application_id!r}, application={file!r}, settings={settings!r}
    )
"""


def main() -> int:
    """Answer requests until standard input ends."""
    return serve(_seconds)


def _seconds(request: Mapping[str, Any], folder: Path) -> float:
    dag = folder / f"{request['application_id']}_dag.py"
    text = _DAG.format(
        application_id=request["application_id"],
        file=str(application_file(request, folder)),
        settings={"processing.guarantee": request["guarantee"]},
    )
    dag.write_text(text, encoding="utf-8")
    return sum(_seconds_of_task(request, dag, task_id) for task_id in _TASKS)


def _seconds_of_task(request: Mapping[str, Any], dag: Path, task_id: str) -> float:
    command = [sys.executable, "-m", "dev.benchmarks.empty_task", str(dag), task_id, request["run_id"]]
    started = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said["ended"] - (started if request["system"] == OURS_IN_THREE_STARTED.name else said["imported"])


if __name__ == "__main__":
    sys.exit(main())
