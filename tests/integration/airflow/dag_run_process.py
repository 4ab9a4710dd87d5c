"""Runs one DAG of the tests in a process of its own, which a test may kill: the Airflow worker. It exits with
0 if the dag run succeeded.

Arguments: DAG id, logical date, configuration of the dag run as JSON. Started again with the same, it goes on
with the dag run, as the scheduler does, where ``dag.test()`` alone would make another one under its name.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow.utils.state import DagRunState
from sqlalchemy import select

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

_DAGS = Path(__file__).parent / "dags" / "increments.py"


def main(dag_id: str, logical_date: str, conf: str) -> int:
    """Run the DAG as ``dag.test()`` does, and return the exit code."""
    spec = importlib.util.spec_from_file_location("kstreams_test_dags", _DAGS)
    if spec is None or spec.loader is None:
        raise ImportError(str(_DAGS))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    at = datetime.fromisoformat(logical_date)
    _fail_lost_tasks(dag_id)
    with going_on():
        dag_run = getattr(module, dag_id).test(run_after=at, logical_date=at, run_conf=json.loads(conf))
    return 0 if dag_run.state == DagRunState.SUCCESS else 1


def _fail_lost_tasks(dag_id: str) -> None:
    """Do what the scheduler does with Airflow tasks whose worker is not heard of any more."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        session.query(TaskInstance).filter_by(dag_id=dag_id, state="running").update({"state": "failed"})


@contextmanager
def going_on() -> Iterator[None]:
    """Let ``dag.test()`` go on with a dag run that is there: its tasks are cleared, their tries count."""
    from airflow.models import dagrun

    make = dagrun.get_or_create_dagrun

    def find(*, dag: Any, logical_date: datetime, session: Session, **facts: Any) -> DagRun:
        found: DagRun | None = session.scalar(
            select(dagrun.DagRun).where(
                dagrun.DagRun.dag_id == dag.dag_id, dagrun.DagRun.logical_date == logical_date
            )
        )
        if found is None:
            return make(dag=dag, logical_date=logical_date, session=session, **facts)
        found.dag = dag
        found.set_state(DagRunState.RUNNING)
        session.commit()
        return found

    with mock.patch.object(dagrun, "get_or_create_dagrun", find):
        yield


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
