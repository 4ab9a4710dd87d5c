"""Runs one DAG of the tests in a process of its own, which a test may kill: the Airflow worker.

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
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from airflow.utils.state import DagRunState
from sqlalchemy import select

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG
    from sqlalchemy.orm import Session

_DAGS = Path(__file__).parent / "dags" / "increments.py"


def main(dag_id: str, logical_date: str, conf: str) -> None:
    """Run the DAG as ``dag.test()`` does."""
    spec = importlib.util.spec_from_file_location("kstreams_test_dags", _DAGS)
    if spec is None or spec.loader is None:
        raise ImportError(str(_DAGS))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with going_on():
        run(getattr(module, dag_id), logical_date, json.loads(conf))


def run(dag: DAG, logical_date: str, conf: dict[str, Any]) -> DagRun:
    """Run a DAG at a date with ``dag.test()``."""
    at = datetime.fromisoformat(logical_date)
    return cast("DagRun", dag.test(run_after=at, logical_date=at, run_conf=conf))


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
    main(*sys.argv[1:])
