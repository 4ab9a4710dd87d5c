"""The pages' application in Airflow's API server: who asks, what for, what Kafka says, and the page.

Every route is a GET, asks Airflow who the user is, and names the DAG in its path, or is a list of what the
user may see. Nothing is written: pages have buttons that call Airflow's own REST API, which checks the user
and keeps a record of it. FastAPI's own pages, which list the routes, are switched off: Airflow would
show them to people who are not logged in.

Where Kafka is not read, a page shows what Airflow keeps of the runs, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import GetUserDep  # noqa: TC002 - FastAPI evaluates it
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from airflow_kstreams.hooks.operator_links import PAGES_PATH, server_path
from airflow_kstreams.launch.installation import PROVEN, version_of
from airflow_kstreams.pages import views
from airflow_kstreams.pages.access import PageNotFoundError
from airflow_kstreams.pages.live_readings import LiveReading, LiveReadings
from airflow_kstreams.pages.page_connections import PageSource
from airflow_kstreams.pages.page_directory import FoundApplication, PageDirectory
from airflow_kstreams.pages.page_readings import (
    ListReading,
    read_application,
    read_comparison,
    read_list,
    read_plan,
    read_run,
)
from airflow_kstreams.pages.views import ApplicationReadings, ApplicationRow, Frame

_STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_INSTEAD = "Shown is what the tasks have left in Airflow."
_MESSAGES = {
    401: ("Not logged in", "Log in to Airflow, then load this page again."),
    403: ("Not logged in", "Airflow does not take this login. Log in to Airflow, then load this page again."),
    404: ("Not found", "There is no such page, or you may not see it."),
}


def make_application(readings: LiveReadings | None = None) -> FastAPI:
    """Make the application.

    :param readings: looks at Kafka; by Airflow's connections unless given.
    :raises UnprovenAirflowError: this release of Airflow is none that the pages were proven with.
    """
    refuse_unproven_airflow()
    app = FastAPI(
        title="airflow-kstreams",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    pages = Pages(readings or LiveReadings())
    for path, endpoint in pages.routes().items():
        app.add_api_route(path, endpoint, methods=["GET"], response_class=HTMLResponse)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_found)
    app.add_exception_handler(PageNotFoundError, _not_found)
    return app


class UnprovenAirflowError(Exception):
    """The pages were not tried with this release of Airflow."""


def refuse_unproven_airflow(found: str | None = None) -> None:
    """Refuse a release of Airflow whose checks of users and permissions were not tried.

    :param found: the release; the one that is installed unless given.
    :raises UnprovenAirflowError: it is none of the proven ones.
    """
    release = found or version_of("apache-airflow-core") or "unknown"
    proven = PROVEN["apache-airflow"]
    if release == "unknown" or not proven.contains(release, prereleases=True):
        raise UnprovenAirflowError(
            f"pages were proven with Airflow {proven}, and Airflow {release} is installed here: none is shown"
        )


class Pages:
    """The endpoints.

    :param readings: looks at Kafka.
    """

    def __init__(self, readings: LiveReadings) -> None:
        self._readings = readings
        self._directory = PageDirectory()
        self._files = {
            file.name: (file.read_bytes(), _TYPES[file.suffix])
            for file in _STATIC.iterdir()
            if file.suffix in _TYPES
        }

    def routes(self) -> dict[str, Any]:
        """Return the endpoints by their paths, those first that a later one would take, too."""
        one = "/applications/{dag_id}/{application_id}"
        return {
            "/": self.applications,
            f"{one}/runs/{{run_id:path}}": self.run,
            f"{one}/compare": self.comparison,
            f"{one}/plan": self.plan,
            one: self.application,
            "/dags/{dag_id}/runs/{run_id:path}": self.dag_run,
            "/dags/{dag_id}": self.dag,
            "/static/{name}": self.static,
        }

    async def applications(self, user: GetUserDep) -> HTMLResponse:
        """Answer with the applications of all DAGs that the user may see."""
        found = await run_in_threadpool(self._directory.everything, user)
        return await self._listed(found, "Kafka applications")

    async def application(
        self, user: GetUserDep, dag_id: str, application_id: str, before: str | None = None
    ) -> HTMLResponse:
        """Answer with one application."""
        found = await run_in_threadpool(self._directory.application, user, dag_id, application_id)
        reading = await self._look(
            found,
            "application",
            lambda cluster, settings: read_application(cluster, application_id, settings, before),
            before,
        )
        return _application(found, reading, reading.value or ApplicationReadings())

    async def run(self, user: GetUserDep, dag_id: str, application_id: str, run_id: str) -> HTMLResponse:
        """Answer with one run."""
        found = await run_in_threadpool(
            self._directory.application, user, dag_id, application_id, run_id=run_id
        )
        reading = await self._look(
            found,
            "run",
            lambda cluster, settings: read_run(cluster, application_id, settings, run_id),
            run_id,
        )
        if reading.value is None:
            return _application(found, reading, ApplicationReadings())
        if reading.value.run is None:
            raise PageNotFoundError
        page = views.run_page(_frame(reading), found.named.shown, reading.value.run, reading.value.letters)
        return HTMLResponse(page)

    async def comparison(
        self, user: GetUserDep, dag_id: str, application_id: str, first: str = "", second: str = ""
    ) -> HTMLResponse:
        """Answer with two runs beside each other."""
        found = await run_in_threadpool(self._directory.application, user, dag_id, application_id)
        reading = await self._look(
            found,
            "comparison",
            lambda cluster, settings: read_comparison(cluster, application_id, settings, first, second),
            first,
            second,
        )
        if reading.value is None:
            return _application(found, reading, ApplicationReadings())
        if reading.value[0] is None:
            raise PageNotFoundError
        return HTMLResponse(views.comparison_page(_frame(reading), found.named.shown, reading.value[0]))

    async def plan(self, user: GetUserDep, dag_id: str, application_id: str) -> HTMLResponse:
        """Answer with the run that would begin now."""
        found = await run_in_threadpool(self._directory.application, user, dag_id, application_id)
        reading = await self._look(
            found, "plan", lambda cluster, settings: read_plan(cluster, application_id, settings)
        )
        if reading.value is None:
            return _application(found, reading, ApplicationReadings())
        if reading.value.plan is None:
            return _message(200, "No plan", f"No plan can be made here: {reading.value.why_not}.")
        return HTMLResponse(views.plan_page(_frame(reading), found.named.shown, reading.value.plan))

    async def dag(self, user: GetUserDep, dag_id: str) -> Response:
        """Answer with the application of a DAG, or the list of them."""
        found = await run_in_threadpool(self._directory.of_dag, user, dag_id)
        return await self._one_or_all(found, "")

    async def dag_run(self, user: GetUserDep, dag_id: str, run_id: str) -> Response:
        """Answer with the run of a DAG run, or the list of the DAG's applications."""
        found = await run_in_threadpool(self._directory.of_dag, user, dag_id, run_id=run_id)
        return await self._one_or_all(found, f"/runs/{quote(run_id, safe='')}")

    def static(self, user: GetUserDep, name: str) -> Response:
        """Answer with a file that pages load."""
        if name not in self._files:
            raise PageNotFoundError
        content, media_type = self._files[name]
        return Response(content, media_type=media_type)

    async def _one_or_all(self, found: Sequence[FoundApplication], below: str) -> Response:
        if not found:
            return _message(
                200,
                "No Kafka application",
                "No task of this DAG works on an application of airflow-kstreams.",
            )
        if len(found) > 1:
            dag_id = found[0].named.shown.dag_id
            return await self._listed(found, f"Kafka applications of {dag_id}")
        shown = found[0].named.shown
        path = f"/applications/{quote(shown.dag_id, safe='')}/{quote(shown.application_id, safe='')}"
        return RedirectResponse(f"{_base()}{path}{below}", status_code=303)

    async def _listed(self, found: Sequence[FoundApplication], title: str) -> HTMLResponse:
        by_source: dict[PageSource, list[str]] = {}
        for each in found:
            shown = each.named.shown
            by_source.setdefault(_source(each), []).append(shown.application_id)
        looks = [self._look_at_list(source, ids) for source, ids in by_source.items()]
        readings = dict(zip(by_source, await asyncio.gather(*looks), strict=True))
        rows = []
        for each in found:
            value, shown = readings[_source(each)].value or ListReading(), each.named.shown
            rows.append(
                ApplicationRow(
                    app=shown,
                    seen=value.seen.get(shown.application_id),
                    lag=value.lags.get(shown.application_id),
                    kept=each.kept[0] if each.kept else None,
                )
            )
        page = views.applications_page(_list_frame(readings), rows, _notes(readings), title=title)
        return HTMLResponse(page)

    async def _look_at_list(self, source: PageSource, ids: Sequence[str]) -> LiveReading[ListReading]:
        wanted = tuple(sorted(set(ids)))
        return await self._readings.read(source, ("list", wanted), lambda cluster: read_list(cluster, wanted))

    async def _look(
        self, found: FoundApplication, name: str, look: Any, *asked: str | None
    ) -> LiveReading[Any]:
        """Look at an application in Kafka.

        :param name: names the look, together with what is asked.
        :param look: reads the value, given a cluster and the application's settings.
        """
        settings = found.named.settings
        what = (name, found.named.shown.application_id, asked, tuple(sorted(settings.items())))
        return await self._readings.read(_source(found), what, lambda cluster: look(cluster, settings))


def _base() -> str:
    """Return the path of the pages as browsers see it."""
    return f"{server_path()}{PAGES_PATH}"


def _source(found: FoundApplication) -> PageSource:
    return PageSource(found.named.shown.kafka_conn_id, found.named.shown.team)


def _frame(reading: LiveReading[Any]) -> Frame:
    return Frame(base=_base(), airflow=server_path(), at=reading.at, kept=_sentence(reading.why_not))


def _list_frame(readings: Mapping[PageSource, LiveReading[ListReading]]) -> Frame:
    """Return the frame of a list, which was read from Kafka if any of its clusters was."""
    for reading in sorted(readings.values(), key=lambda each: each.why_not is not None):
        return _frame(reading)
    return Frame(base=_base(), airflow=server_path(), at=datetime.now(UTC))


def _notes(readings: Mapping[PageSource, LiveReading[ListReading]]) -> list[str]:
    notes = [note for each in readings.values() if each.value is not None for note in each.value.notes]
    if any(each.why_not is None for each in readings.values()):
        notes += [sentence for each in readings.values() if (sentence := _sentence(each.why_not))]
    return notes


def _sentence(why_not: str | None) -> str | None:
    return None if why_not is None else f"Kafka was not read: {why_not}. {_INSTEAD}"


def _application(
    found: FoundApplication, reading: LiveReading[Any], value: ApplicationReadings
) -> HTMLResponse:
    page = views.application_page(_frame(reading), found.named.shown, replace(value, kept=found.kept))
    return HTMLResponse(page)


def _message(status: int, title: str, text: str) -> HTMLResponse:
    frame = Frame(base=_base(), airflow=server_path(), at=datetime.now(UTC))
    return HTMLResponse(views.message_page(frame, title, text, status), status_code=status)


async def _not_found(request: Request, error: Exception) -> Response:
    return _message(404, *_MESSAGES[404])


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, StarletteHTTPException) else 500
    title, text = _MESSAGES.get(status, ("Not shown", "This page cannot be shown."))
    return _message(status, title, text)
