"""Asks Airflow who a request comes from, and which DAGs that user may see.

Rule: a page is shown for a DAG that stands in its path. The user needs Airflow's permission to read that
DAG's runs, which is asked with the DAG's team. What the user may not see, and what does not exist, look
alike: :class:`PageNotFoundError`. A parameter of the query never names a DAG: Airflow's own dependency
``requires_access_dag`` would take it from there, and passes where there is none.

``~`` is Airflow's word for any DAG, and is refused. The team is read anew for each request: Airflow keeps it
for half a minute, also that of a DAG that did not exist yet.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel

from airflow_kstreams.hooks.airflow_versions import has_teams

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_ANY_DAG = "~"


class PageNotFoundError(Exception):
    """There is no such page for this user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDag:
    """A DAG whose runs the user may see.

    :param dag_id: id of the DAG.
    :param team: name of its team; None without one.
    :param results: whether the user may see what its tasks leave in XCom, too.
    """

    dag_id: str
    team: str | None
    results: bool


class PageAccess:
    """What one user may see.

    :param user: the user, as Airflow's dependency gives it.
    :param session: session on Airflow's database.
    """

    def __init__(self, user: Any, session: Session) -> None:
        self._user = user
        self._session = session

    def dag(self, dag_id: str) -> SeenDag:
        """Return a DAG whose runs the user may see.

        :raises PageNotFoundError: the user may not, or the id names no single DAG. Whether the DAG exists is
            not looked at.
        """
        if dag_id == _ANY_DAG or not dag_id:
            raise PageNotFoundError
        return self._seen(dag_id, self._teams([dag_id]).get(dag_id))

    def dags(self, among: Collection[str]) -> list[SeenDag]:
        """Return the DAGs whose runs the user may see, by their ids.

        :param among: ids of DAGs that exist.
        """
        allowed = get_auth_manager().get_authorized_dag_ids(
            user=self._user, method="GET", session=self._session
        )
        asked, seen = allowed & set(among), list[SeenDag]()
        teams = self._teams(asked)
        for dag_id in sorted(asked):
            with suppress(PageNotFoundError):
                seen.append(self._seen(dag_id, teams.get(dag_id)))
        return seen

    def _seen(self, dag_id: str, team: str | None) -> SeenDag:
        if not self._may_get(dag_id, team, DagAccessEntity.RUN):
            raise PageNotFoundError
        return SeenDag(dag_id=dag_id, team=team, results=self._may_get(dag_id, team, DagAccessEntity.XCOM))

    def _may_get(self, dag_id: str, team: str | None, entity: DagAccessEntity) -> bool:
        return get_auth_manager().is_authorized_dag(
            method="GET",
            access_entity=entity,
            details=DagDetails(id=dag_id, team_name=team),
            user=self._user,
        )

    def _teams(self, dag_ids: Collection[str]) -> dict[str, str | None]:
        if not has_teams():
            return {dag_id: DagModel.get_team_name(dag_id, session=self._session) for dag_id in dag_ids}
        return DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=self._session)
