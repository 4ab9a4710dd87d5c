"""Finds what a page is about, for the user who asks for it: the application of a DAG, and what Airflow keeps
of its runs.

Everything here is read from Airflow's database in one session, on a thread of the API server's pool. An
application is one that the DAG names. A backfill has an application of its own, whose id stands in the
results of its tasks alone; it is found there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_kstreams.pages.access import PageAccess, PageNotFoundError, SeenDag
from airflow_kstreams.pages.dag_applications import (
    NamedApplication,
    SerializedApplications,
    applications_of,
)
from airflow_kstreams.pages.kept_runs import INSTANCES, kept_applications, kept_runs
from airflow_kstreams.pages.views import KeptRun

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


#: Task instances of each application that a list looks at, for its last run.
_OF_A_LIST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundApplication:
    """An application that the user may see.

    :param named: the application, as its DAG names it.
    :param kept: its last runs as Airflow keeps them, the newest first; none if the user may not see results.
    """

    named: NamedApplication
    kept: tuple[KeptRun, ...]


class PageDirectory:
    """Finds applications in Airflow's database. Each method asks for the user's permission first."""

    def __init__(self) -> None:
        self._serialized = SerializedApplications()

    def everything(self, user: Any) -> list[FoundApplication]:
        """Return the applications of all DAGs that the user may see."""
        with create_session(scoped=False) as session:
            tasks = self._serialized.of_all(session)
            return [
                found
                for dag in PageAccess(user, session).dags(tasks)
                for found in _found(
                    session, dag, applications_of(session, dag, tasks[dag.dag_id]), instances=_OF_A_LIST
                )
            ]

    def application(
        self, user: Any, dag_id: str, application_id: str, *, run_id: str | None = None
    ) -> FoundApplication:
        """Return an application of a DAG.

        :param run_id: id of a run, to return what Airflow keeps of that one alone.
        :raises PageNotFoundError: the user may not see the DAG, or it names no such application.
        """
        with create_session(scoped=False) as session:
            dag = PageAccess(user, session).dag(dag_id)
            named = self._named(session, dag, run_id)
            matching = [each for each in named if each.shown.application_id == application_id]
            if not matching:
                raise PageNotFoundError
            return _found(session, dag, matching, run_id=run_id)[0]

    def of_dag(self, user: Any, dag_id: str, *, run_id: str | None = None) -> list[FoundApplication]:
        """Return the applications of a DAG, or those that one of its DAG runs has worked on.

        :param run_id: id of the DAG run.
        :raises PageNotFoundError: the user may not see the DAG, or there is none.
        """
        with create_session(scoped=False) as session:
            dag = PageAccess(user, session).dag(dag_id)
            if session.scalar(select(DagModel.dag_id).where(DagModel.dag_id == dag_id)) is None:
                raise PageNotFoundError
            named = self._named(session, dag, run_id)
            if run_id is not None and dag.results:
                worked_on = {
                    application_id
                    for application_id, _ in kept_applications(session, dag_id, _tasks_of(named), run_id)
                }
                named = [each for each in named if each.shown.application_id in worked_on] or named
            return _found(session, dag, named, run_id=run_id)

    def _named(self, session: Session, dag: SeenDag, run_id: str | None) -> list[NamedApplication]:
        """Return the applications that a DAG names, and those of its backfills."""
        named = applications_of(session, dag, self._serialized.of_dag(session, dag.dag_id))
        known = {each.shown.application_id for each in named}
        if not dag.results:
            return named
        backfills = []
        for application_id, task_id in kept_applications(session, dag.dag_id, _tasks_of(named), run_id):
            live = next((each for each in named if task_id in each.shown.task_ids), None)
            if application_id not in known and live is not None:
                known.add(application_id)
                shown = replace(live.shown, application_id=application_id)
                backfills.append(replace(live, shown=shown))
        return [*named, *backfills]


def _tasks_of(named: Iterable[NamedApplication]) -> list[str]:
    return sorted({task_id for each in named for task_id in each.shown.task_ids})


def _found(
    session: Session,
    dag: SeenDag,
    named: Iterable[NamedApplication],
    *,
    run_id: str | None = None,
    instances: int = INSTANCES,
) -> list[FoundApplication]:
    return [
        FoundApplication(
            named=each,
            kept=tuple(kept_runs(session, each.shown, run_id=run_id, instances=instances))
            if dag.results
            else (),
        )
        for each in named
    ]
