"""Reads what Airflow keeps of an application's runs: the small results that its tasks left in XCom.

Only tasks that work on the application are looked at, and only figures of
:class:`~airflow_kstreams.batch.report.results.RunResult` are taken: a task's result may be anything, and a
page shows no values. Nothing is made of what lies there but JSON: Airflow's own way to read a result may
import classes that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import and_, select

from airflow_kstreams.batch.report.results import RunResult
from airflow_kstreams.pages.views import DagApplication, KeptRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

_RESULT = "return_value"
#: Number of task instances that are looked at.
INSTANCES = 300
_FIGURES = frozenset(RunResult.__annotations__)


def kept_runs(
    session: Session, app: DagApplication, *, run_id: str | None = None, instances: int = INSTANCES
) -> list[KeptRun]:
    """Return the last runs of an application as Airflow keeps them, the newest first.

    Of the tasks of one DAG run, the one that says most of its end comes first.

    :param app: the application.
    :param run_id: id of a DAG run, to look at that one alone; None for the last ones.
    :param instances: number of task instances to look at.
    """
    found: dict[str, KeptRun] = {}
    for row in _instances(session, app.dag_id, app.task_ids, run_id, instances):
        figures = figures_in(row.value)
        if figures.get("application_id", app.application_id) != app.application_id:
            continue
        kept = KeptRun(
            dag_id=app.dag_id,
            task_id=row.task_id,
            airflow_run_id=row.run_id,
            ended_at=row.end_date,
            state=str(row.state or "none"),
            figures=figures,
        )
        before = found.get(row.run_id)
        if before is None or _says_more(kept, before):
            found[row.run_id] = kept
    return list(found.values())


def kept_applications(
    session: Session, dag_id: str, task_ids: Sequence[str], run_id: str | None
) -> list[tuple[str, str]]:
    """Return the applications that a DAG's tasks have worked on, each with the task's id: among them those of
    backfills, which have ids of their own.

    :param run_id: id of a DAG run, to look at that one alone; None for the last ones.
    """
    found = [
        (application_id, row.task_id)
        for row in _instances(session, dag_id, task_ids, run_id)
        if isinstance(application_id := figures_in(row.value).get("application_id"), str)
    ]
    return list(dict.fromkeys(found))


def figures_in(value: Any) -> dict[str, object]:
    """Return the figures of a result; none if it is no result of a run.

    :param value: what lies in XCom: JSON, as text or already decoded.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping) or "application_id" not in value or "run_id" not in value:
        return {}
    return {name: each for name, each in value.items() if name in _FIGURES}


def _says_more(kept: KeptRun, than: KeptRun) -> bool:
    return _rank(kept) > _rank(than)


def _rank(kept: KeptRun) -> tuple[bool, bool]:
    return bool(kept.figures.get("finished")), bool(kept.figures)


def _instances(
    session: Session, dag_id: str, task_ids: Sequence[str], run_id: str | None, count: int = INSTANCES
) -> Sequence[Any]:
    """Return task instances with what they left in XCom, those of the newest DAG runs first."""
    own_result = and_(
        XComModel.dag_id == TaskInstance.dag_id,
        XComModel.run_id == TaskInstance.run_id,
        XComModel.task_id == TaskInstance.task_id,
        XComModel.map_index == TaskInstance.map_index,
        XComModel.key == _RESULT,
    )
    asked = (
        select(
            TaskInstance.task_id,
            TaskInstance.run_id,
            TaskInstance.state,
            TaskInstance.end_date,
            XComModel.value,
        )
        .join(DagRun, and_(DagRun.dag_id == TaskInstance.dag_id, DagRun.run_id == TaskInstance.run_id))
        .outerjoin(XComModel, own_result)
        .where(TaskInstance.dag_id == dag_id, TaskInstance.task_id.in_(list(task_ids)))
    )
    if run_id is not None:
        asked = asked.where(TaskInstance.run_id == run_id)
    return session.execute(asked.order_by(DagRun.id.desc()).limit(count)).all()
