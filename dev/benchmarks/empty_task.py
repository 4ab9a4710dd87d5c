"""One operator in a Python of its own, as Airflow's worker runs it: the DAG file, its templates, ``execute``.

usage: python -m dev.benchmarks.empty_task DAG_FILE TASK_ID RUN_ID

The last line of its standard output is JSON: when ``airflow.sdk`` was imported and when the task had ended,
by the clock of ``time.monotonic``, which all processes of a machine share.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any


def main() -> int:
    """Run one operator."""
    file, task_id, run_id = sys.argv[1:]
    import airflow.sdk
    import airflow.sdk.execution_time.task_runner  # noqa: F401 - what a worker has imported before

    imported = time.monotonic()
    operator = _dag(file).task_dict[task_id]
    context: Any = context_of(task_id, run_id)
    operator.render_template_fields(context)
    operator.execute(context)
    ended = time.monotonic()
    sys.stdout.write("\n" + json.dumps({"imported": imported, "ended": ended}) + "\n")
    return 0


def context_of(task_id: str, run_id: str) -> dict[str, Any]:
    """Return what the operators read of Airflow's context."""
    now = datetime.now(UTC)
    dag_run = SimpleNamespace(run_id=run_id, clear_number=0, data_interval_start=now, data_interval_end=now)
    return {"ti": SimpleNamespace(dag_id="bench", task_id=task_id, try_number=1), "dag_run": dag_run}


def _dag(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("bench_dag", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag


if __name__ == "__main__":
    sys.exit(main())
