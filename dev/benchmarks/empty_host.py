"""What Airflow's workers run: ``execute`` of the three operators, or of those that are asked for, all in one
process.

Each line of standard input is a request, each line of standard output its answer, both JSON. The suite asks
it for empty runs only: one with new records starts Spark.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.benchmarks.empty_task import context_of
from dev.benchmarks.spark_host import application_of

#: The end of an application file, which spark-submit runs.
_MAIN = """
if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""


def main() -> int:
    """Answer requests until standard input ends."""
    return serve(_seconds, imports=("airflow.sdk",))  # what a worker has imported before it executes a task


def serve(seconds: Callable[[Mapping[str, Any], Path], float], *, imports: Sequence[str] = ()) -> int:
    """Answer requests until standard input ends, in the folder that the command names.

    :param seconds: function that runs what a request asks for in a folder, and returns the time it took.
    :param imports: names of the modules to import before the first request.
    :return: the exit code.
    """
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever Airflow prints is no answer
    # An Airflow of its own for this process and its children, which has no database.
    os.environ["AIRFLOW_HOME"] = str(folder / "airflow")
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{folder / 'airflow.db'}"
    for name in imports:
        importlib.import_module(name)
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, {"seconds": seconds(json.loads(line), folder)})
    return 0


def _answer(answers: Any, said: Mapping[str, Any]) -> None:
    answers.write(json.dumps(said) + "\n")
    answers.flush()


def application_file(request: Mapping[str, Any], folder: Path) -> Path:
    """Write the application file with a request's topics in it, and set the connections of its tasks."""
    source = application_of(request)
    file = folder / f"{request['application_id'].replace('-', '_')}.py"
    file.write_text(f"{source.text}\n\ntopology = {source.function}\n{_MAIN}", encoding="utf-8")
    os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": request["bootstrap"]}}
    )
    os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps({"conn_type": "spark", "host": "local[2,4]"})
    return file


def _seconds(request: Mapping[str, Any], folder: Path) -> float:
    from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, FinishRunOperator
    from airflow_kstreams.operators.run_topology import RunTopologyOperator

    file = application_file(request, folder)
    common: dict[str, Any] = {
        "application_id": request["application_id"],
        "settings": {"processing.guarantee": request["guarantee"]},
    }
    operators = (
        CaptureStopOffsetsOperator(task_id="capture", application=str(file), **common),
        RunTopologyOperator(task_id="run", application=str(file), **common),
        FinishRunOperator(task_id="finish", **common),
    )
    total = 0.0
    asked = request.get("operators", [operator.task_id for operator in operators])
    for operator in (operator for operator in operators if operator.task_id in asked):
        context: Any = context_of(operator.task_id, request["run_id"])
        started = time.monotonic()
        operator.execute(context)
        total += time.monotonic() - started
    return total


if __name__ == "__main__":
    sys.exit(main())
