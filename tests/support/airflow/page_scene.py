"""The pages in Airflow's own API server: two teams, a DAG with an application each, and Kafka in memory.

The server is Airflow's, as it makes it, on SQLite in the test session's home; users log in by its tokens.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from airflow import plugins_manager, settings
from airflow._shared import module_loading
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.collection import update_dag_parsing_results_in_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.team import Team
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.pages.live_readings import LiveReadings
from airflow_kstreams.pages.page_connections import PageSource
from airflow_kstreams.pages.page_routes import make_application
from airflow_kstreams.pages.plugin import KStreamsPlugin
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.airflow.airflow_environment import prepare
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from httpx2 import Response
    from starlette.types import ASGIApp

ROOT = Path(__file__).parents[3]
#: DAG -> its team. Each names the application of its own name; the last one names none.
TEAMS = {"orders": "north", "shipping": "south", "plain": "north"}
RUN = "one"
NOW_MS = 1_700_000_000_000
_ENTRY_POINTS = "[airflow.plugins]\nkstreams = airflow_kstreams.pages.plugin:KStreamsPlugin\n"


@dataclass(kw_only=True)
class PageScene:
    """Airflow's API server with the pages, and who asks it.

    :param app: the server.
    :param readings: the looks of the pages at Kafka.
    :param opened: the connections by which Kafka was read so far.
    """

    app: ASGIApp
    readings: LiveReadings
    opened: list[PageSource]

    def token(self, user: str, *, team: str, role: str = "viewer", seconds: int = 600) -> str:
        """Return a token of Airflow's for a user; one of no seconds has expired."""
        who = SimpleAuthManagerUser(username=user, role=role, teams=[team])
        return get_auth_manager().generate_jwt(who, expiration_time_in_seconds=seconds)

    def client(self, token: str | None = None, **headers: str) -> TestClient:
        """Return a browser of a user, who is logged in by Airflow's cookie."""
        cookies = {} if token is None else {"_token": token}
        return TestClient(self.app, cookies=cookies, headers=headers, follow_redirects=False)

    def get(self, path: str, *, team: str = "north") -> Response:
        """Ask for a page as a viewer of a team."""
        return self.client(self.token("nina", team=team)).get(f"/kstreams{path}")


@contextmanager
def page_scene() -> Iterator[PageScene]:
    """Start the server; its database is gone afterwards."""
    home = prepare()
    database = home / "airflow.db"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
        patched.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "nina:viewer:north,sven:viewer:south")
        patched.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)
        _let_go()
        shutil.copy(ROOT / ".setup" / "airflow-empty.db", database)
        try:
            with _plugins(home):
                kafka = {team: _kafka(dag_id) for dag_id, team in TEAMS.items() if dag_id != "plain"}
                opened: list[PageSource] = []

                def opening(source: PageSource, look_ms: int) -> InMemoryKafka:
                    opened.append(source)
                    return kafka[source.team or ""]

                readings = LiveReadings(open_cluster=opening, allowed=lambda: True)
                pages = KStreamsPlugin.fastapi_apps[0]["app"]
                patched.setattr(pages, "_make", lambda: make_application(readings))
                patched.setattr(pages, "_app", None)
                _fill_database()
                yield PageScene(app=create_app("core"), readings=readings, opened=opened)
                readings.close()
        finally:
            purge_cached_app()
            _let_go()
            database.unlink()


def _let_go() -> None:
    """Close what this process has open of the database."""
    if settings.engine is not None:
        settings.engine.dispose()


@contextmanager
def _plugins(home: Path) -> Iterator[None]:
    """Let Airflow find the plugin as an installed package's, also where an older installation is here."""
    found = {point.value for point in entry_points(group="airflow.plugins")}
    folder = home / "page-scene"
    if "airflow_kstreams.pages.plugin:KStreamsPlugin" not in found:
        information = folder / "page_scene-1.0.dist-info"
        information.mkdir(parents=True, exist_ok=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: page-scene\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(_ENTRY_POINTS)
        sys.path.insert(0, str(folder))
    _forget_plugins()
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        _forget_plugins()


def _forget_plugins() -> None:
    for cached in (
        module_loading._get_grouped_entry_points,
        plugins_manager._get_plugins,
        plugins_manager._get_ui_plugins,
        plugins_manager.get_fastapi_plugins,
        plugins_manager._get_extra_operators_links_plugins,
    ):
        cached.cache_clear()


def _kafka(application_id: str) -> InMemoryKafka:
    """Make a cluster with one finished run of an application."""
    clock = ManualClock(now_ms=NOW_MS)
    kafka = InMemoryKafka(clock=clock)
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    application = Application(on=kafka, clock=clock, application_id=application_id, topology=builder.build())
    kafka.append("in", b"a value that no page shows", b"a key that no page shows")
    application.run(RUN, (0, 1))
    return kafka


def _fill_database() -> None:
    with create_session(scoped=False) as session:
        for team in sorted(set(TEAMS.values())):
            bundle = DagBundleModel(name=team)
            bundle.teams = [Team(name=team)]
            session.add(bundle)
        session.flush()
        for dag_id, team in TEAMS.items():
            with DAG(dag_id, schedule=None) as dag:
                if dag_id != "plain":
                    incremental_batch(
                        application_id=dag_id, application="/apps/one.py", kafka_conn_id="kafka"
                    )
            _store(dag, team, session)
    for dag_id in ("orders", "shipping"):
        keep_result(dag_id, RUN, {"run_id": RUN, "application_id": dag_id, "finished": True, "records_in": 1})


def _store(dag: DAG, bundle: str, session: Any) -> None:
    """Store a DAG as Airflow's processor of DAG files does."""
    dag.fileloc, dag.relative_fileloc = __file__, f"{dag.dag_id}.py"
    lazy = LazyDeserializedDAG.from_dag(dag)
    update_dag_parsing_results_in_db(bundle, None, [lazy], {}, 0.1, set(), session)
    session.flush()


def store_dag(dag: DAG, bundle: str) -> None:
    """Store a DAG in the database."""
    with create_session(scoped=False) as session:
        _store(dag, bundle, session)


def keep_result(
    dag_id: str, run_id: str, result: object, *, task_id: str = "incremental_batch.finish_run"
) -> None:
    """Make a dag run that has succeeded, one of whose tasks left this in XCom."""
    with create_session(scoped=False) as session:
        row = SerializedDagModel.get(dag_id, session=session)
        assert row is not None
        run = row.dag.create_dagrun(
            run_id=run_id,
            run_after=_at(),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.SUCCESS,
            session=session,
        )
        for instance in run.get_task_instances(session=session):
            instance.state = TaskInstanceState.SUCCESS
        session.flush()
        XComModel.set(
            "return_value",
            result,
            dag_id=dag_id,
            task_id=task_id,
            run_id=run_id,
            serialize=False,
            session=session,
        )


def _at() -> Any:
    from airflow._shared.timezones import timezone

    return timezone.utcnow()


def keep_rendered(dag_id: str, run_id: str, fields: dict[str, Any]) -> None:
    """Make a dag run whose tasks' fields were rendered so."""
    keep_result(dag_id, run_id, None)
    with create_session(scoped=False) as session:
        for instance in session.scalars(
            select(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        ):
            kept = RenderedTaskInstanceFields(instance, render_templates=False, rendered_fields=dict(fields))
            session.add(kept)
