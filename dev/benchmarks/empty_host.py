"""What Airflow's worker runs: ``execute`` of the three operators, one after the other, or of those that are
asked for.

Each line of standard input is a request, each line of standard output its answer, both JSON. The suite asks
it for empty runs only: one with new records starts Spark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dev.benchmarks.spark_host import application_of

#: The end of an application file, which spark-submit runs.
_MAIN = """
if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""


def main() -> int:
    """Answer requests until standard input ends."""
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever Airflow prints is no answer
    os.environ["AIRFLOW_HOME"] = str(folder / "airflow")
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{folder / 'airflow.db'}"
    import airflow.sdk  # noqa: F401 - what a worker has imported before it executes a task

    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, {"seconds": _seconds(json.loads(line), folder)})
    return 0


def _answer(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _seconds(request: Mapping[str, Any], folder: Path) -> float:
    from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, FinishRunOperator
    from airflow_kstreams.operators.run_topology import RunTopologyOperator

    source = application_of(request)
    file = folder / "suite_topologies_empty.py"
    file.write_text(f"{source.text}\n\ntopology = {source.function}\n{_MAIN}", encoding="utf-8")
    os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": request["bootstrap"]}}
    )
    os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps({"conn_type": "spark", "host": "local[2,4]"})
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
        context: Any = _context(operator.task_id, request["run_id"])
        started = time.monotonic()
        operator.execute(context)
        total += time.monotonic() - started
    return total


def _context(task_id: str, run_id: str) -> dict[str, Any]:
    """Return what the operators read of Airflow's context."""
    now = datetime.now(UTC)
    dag_run = SimpleNamespace(run_id=run_id, clear_number=0, data_interval_start=now, data_interval_end=now)
    return {"ti": SimpleNamespace(dag_id="bench", task_id=task_id, try_number=1), "dag_run": dag_run}


if __name__ == "__main__":
    sys.exit(main())
