"""The DAG that ``airflow-kstreams init`` writes, as Airflow loads it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.unit.first_steps.test_project import EXAMPLES, project


@pytest.mark.parametrize(
    ("example", "schedule"), zip(EXAMPLES, ("@hourly", "0 6 * * 1-5", "none"), strict=True)
)
def test_dag_of_a_first_project_runs_the_application_beside_it(
    example: str, schedule: str, tmp_path: Path
) -> None:
    written = project(example, schedule=schedule)  # type: ignore[arg-type]
    written.write(tmp_path)

    dag = runpy.run_path(str(tmp_path / "dags" / f"{written.module}_dag.py"))["dag"]

    assert (dag.dag_id, dag.schedule) == (written.module, None if schedule == "none" else schedule)
    steps = {task_id.rpartition(".")[2]: task for task_id, task in dag.task_dict.items()}
    assert list(steps) == ["capture_stop_offsets", "run_topology", "finish_run"]
    assert {task.application_id for task in steps.values()} == {written.application_id}
    assert steps["run_topology"].application == str(tmp_path / f"{written.module}.py")
