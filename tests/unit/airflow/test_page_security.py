"""Each address of the pages, asked by each kind of stranger, in Airflow's own API server with two teams; what
the pages find in Airflow's database; and what of Airflow they stand on, so that a change is noticed.

``ROWS`` has a row for every route: one without a row fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airflow
import pytest
from airflow import settings
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import auth_manager_from_app, requires_access_dag
from airflow.models.dag import DagModel
from airflow.sdk import DAG
from fastapi import FastAPI, HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from airflow_kstreams.get_provider_info import get_provider_info
from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.pages import page_readings
from airflow_kstreams.pages.plugin import PATH, KStreamsPlugin
from tests.support.airflow.page_scene import (
    RUN,
    PageScene,
    keep_rendered,
    keep_result,
    page_scene,
    store_dag,
)
from tests.support.kafka.dead_letter_scene import Scene

if TYPE_CHECKING:
    from httpx2 import Response

#: Route -> address of the north's, and one that does not exist; None where the route names no DAG.
ROWS: dict[str, tuple[str, str | None]] = {
    "/": ("/", None),
    "/applications/{dag_id}/{application_id}": ("/applications/orders/orders", "/applications/orders/none"),
    "/applications/{dag_id}/{application_id}/runs/{run_id:path}": (
        f"/applications/orders/orders/runs/{RUN}",
        "/applications/orders/orders/runs/none",
    ),
    "/applications/{dag_id}/{application_id}/compare": (
        f"/applications/orders/orders/compare?first={RUN}&second={RUN}",
        f"/applications/orders/orders/compare?first={RUN}&second=none",
    ),
    "/applications/{dag_id}/{application_id}/plan": (
        "/applications/orders/orders/plan",
        "/applications/orders/none/plan",
    ),
    "/dags/{dag_id}": ("/dags/orders", "/dags/none"),
    "/dags/{dag_id}/runs/{run_id:path}": (f"/dags/orders/runs/{RUN}", f"/dags/none/runs/{RUN}"),
    "/static/{name}": ("/static/icon.svg", None),
}
_OF_DAGS = [row for row in ROWS.values() if row[1] is not None]
_FINE = (200, 303)
_METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")


@pytest.fixture(scope="module")
def scene() -> Iterator[PageScene]:
    with page_scene() as made:
        yield made


def as_north(scene: PageScene, path: str) -> Response:
    return scene.get(path, team="north")


def without_times(found: Response) -> str:
    return re.sub(r"<time .*?</time>", "", found.text)


def as_south(scene: PageScene, path: str) -> Response:
    return scene.get(path, team="south")


@pytest.mark.promise("pages-refuse-strangers")
def test_every_route_has_a_row_here(scene: PageScene) -> None:
    as_north(scene, "/")
    mounted = KStreamsPlugin.fastapi_apps[0]["app"]

    assert {route.path for route in mounted._app.routes} == set(ROWS)
    assert {type(route).__mro__[1] for route in mounted._app.routes} == {Route}
    assert {method for route in mounted._app.routes for method in route.methods} == {"GET"}


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_page_is_shown_to_a_viewer_of_its_team(scene: PageScene, path: str) -> None:
    found = as_north(scene, path)

    assert found.status_code in _FINE
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert "frame-ancestors 'self'" in found.headers["content-security-policy"]
    assert "unsafe" not in found.headers["content-security-policy"]
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_page_is_refused_when_nobody_is_logged_in(scene: PageScene, path: str) -> None:
    assert scene.client().get(PATH + path).status_code == 401


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_page_is_refused_when_the_login_has_expired(scene: PageScene, path: str) -> None:
    expired = scene.token("nina", team="north", seconds=-3_600)

    assert scene.client(expired).get(PATH + path).status_code == 401
    bearer = scene.client(Authorization=f"Bearer {expired}")
    assert bearer.get(PATH + path).status_code == 401


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_page_is_refused_when_the_login_is_forged(scene: PageScene, path: str) -> None:
    head, claims, _ = scene.token("nina", team="north").split(".")
    forged = f"{head}.{claims}.{'A' * 43}"

    assert scene.client(forged).get(PATH + path).status_code == 403
    assert scene.client(Authorization=f"Bearer {forged}").get(PATH + path).status_code == 403


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize(("path", "unknown"), _OF_DAGS)
def test_other_team_cannot_tell_a_page_from_one_that_does_not_exist(
    scene: PageScene, path: str, unknown: str
) -> None:
    forbidden, absent = as_south(scene, path), as_north(scene, unknown)

    assert (forbidden.status_code, absent.status_code) == (404, 404)
    assert without_times(forbidden) == without_times(absent)
    assert sorted(forbidden.headers) == sorted(absent.headers)


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize(("path", "unknown"), _OF_DAGS)
def test_parameter_names_no_dag_when_the_path_names_another(
    scene: PageScene, path: str, unknown: str
) -> None:
    sign = "&" if "?" in path else "?"

    assert as_south(scene, f"{path}{sign}dag_id=shipping").status_code == 404
    assert as_south(scene, path.replace("orders", "~", 1)).status_code == 404
    assert as_south(scene, f"{path.replace('orders', '~', 1)}{sign}dag_id=shipping").status_code == 404
    assert as_south(scene, path.replace("orders", "shipping", 1)).status_code in (404, *_FINE)
    assert as_south(scene, path.replace("orders", "shipping", 1)).text.find("orders") == -1


@pytest.mark.promise("pages-refuse-strangers")
def test_list_has_the_applications_of_ones_own_team_alone(scene: PageScene) -> None:
    north, south = as_north(scene, "/"), as_south(scene, "/?dag_id=orders")

    assert "orders" in north.text
    assert "shipping" not in north.text
    assert "shipping" in south.text
    assert "orders" not in south.text


@pytest.mark.promise("pages-refuse-strangers")
def test_kafka_is_read_by_the_connection_of_the_dags_team(scene: PageScene) -> None:
    scene.opened.clear()
    as_south(scene, "/applications/shipping/shipping/plan")

    assert [(source.conn_id, source.team) for source in scene.opened] == [("kafka", "south")]


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_nothing_but_get_reaches_a_page(scene: PageScene, path: str) -> None:
    viewer = scene.client(scene.token("nina", team="north"), Origin="https://elsewhere.example")
    answers = {method: viewer.request(method, PATH + path) for method in _METHODS}

    assert {method: found.status_code for method, found in answers.items()} == dict.fromkeys(_METHODS, 405)
    assert {found.headers["allow"] for found in answers.values()} == {"GET"}


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_other_origin_gets_no_right_to_read_an_answer(scene: PageScene, path: str) -> None:
    viewer = scene.client(scene.token("nina", team="north"), Origin="https://elsewhere.example")

    assert not [name for name in viewer.get(PATH + path).headers if name.startswith("access-control-")]


@pytest.mark.promise("pages-refuse-strangers")
@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/static/..%2fplugin.py", "/dags/"])
def test_application_describes_itself_to_nobody(scene: PageScene, path: str) -> None:
    assert scene.client().get(PATH + path).status_code in (401, 404)
    assert as_north(scene, path).status_code == 404


@pytest.mark.promise("pages-refuse-strangers")
def test_dag_without_an_application_says_so(scene: PageScene) -> None:
    found = as_north(scene, "/dags/plain")

    assert found.status_code == 200
    assert "No Kafka application" in found.text


@pytest.mark.promise("pages-refuse-strangers")
def test_pages_are_mounted_where_the_plugin_says(scene: PageScene) -> None:
    mounts = [route for route in scene.app.routes if isinstance(route, Mount)]  # type: ignore[attr-defined]

    assert [route.app for route in mounts if route.path == PATH] == [KStreamsPlugin.fastapi_apps[0]["app"]]


@pytest.mark.promise("pages-refuse-strangers")
def test_dag_is_hidden_from_another_team_from_its_first_moment_on(scene: PageScene) -> None:
    """Airflow keeps the team of a DAG for a while, also that a DAG has none, as it does not exist."""
    assert as_south(scene, "/applications/later/later").status_code == 404
    assert DagModel.get_team_name("later") is None
    with DAG("later", schedule=None) as dag:
        incremental_batch(application_id="later", application="/apps/one.py")
    store_dag(dag, "north")

    assert DagModel.get_team_name("later") is None, "Airflow keeps nothing any more: this test shows nothing"
    assert as_south(scene, "/applications/later/later").status_code == 404
    assert as_south(scene, "/dags/later").status_code == 404
    assert as_north(scene, "/dags/later").status_code == 303


# == what the pages find


def test_application_is_listed_when_its_id_was_rendered(scene: PageScene) -> None:
    with DAG("rendered", schedule=None) as dag:
        incremental_batch(
            application_id="{{ params.app }}", application="/apps/one.py", kafka_conn_id="kafka"
        )
    store_dag(dag, "north")
    before = as_north(scene, "/dags/rendered")
    assert "No Kafka application" in before.text
    keep_rendered("rendered", "first", {"application_id": "orders"})
    keep_rendered("rendered", "second", {"application_id": "shop/../x"})

    assert as_north(scene, "/dags/rendered").headers["location"] == f"{PATH}/applications/rendered/orders"


def test_backfill_is_found_by_the_results_of_its_tasks(scene: PageScene) -> None:
    own = "orders-backfill-0123456789ab"
    assert as_north(scene, f"/applications/orders/{own}").status_code == 404
    keep_result("orders", "again", {"run_id": "again", "application_id": own, "finished": True})

    found = as_north(scene, "/dags/orders/runs/again")
    assert found.headers["location"] == f"{PATH}/applications/orders/{own}/runs/again"
    assert ">again</a>" in as_north(scene, f"/applications/orders/{own}").text
    assert as_north(scene, f"/applications/orders/{own}x").status_code == 404


@pytest.mark.parametrize("path", [path for path, unknown in ROWS.values() if unknown])
def test_page_says_why_and_shows_what_is_kept_when_kafka_is_not_read(
    scene: PageScene, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.readings, "_allowed", lambda: False)
    found = as_north(scene, path)

    assert found.status_code in _FINE
    if found.status_code == 200:
        assert "Kafka was not read: this deployment does not let" in found.text
        assert f">{RUN}</a>" in found.text or "Kafka applications of orders" in found.text


@pytest.mark.promise("pages-show-no-values")
@pytest.mark.parametrize("path", [path for path, _ in ROWS.values()])
def test_page_holds_no_key_and_no_value(scene: PageScene, path: str) -> None:
    assert "that no page shows" not in as_north(scene, path).text


@pytest.mark.promise("pages-show-no-values")
def test_letters_come_without_their_records() -> None:
    scene = Scene()
    scene.letter("a value that no page shows")
    found = page_readings._letters(scene.kafka, "app", {})

    assert found is not None
    assert (found.letters, found.newest) == (1, ())


# == what Airflow does


def test_airflow_asks_no_login_of_an_application_that_is_mounted(
    scene: PageScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KStreamsPlugin.fastapi_apps[0]["app"], "_app", PlainTextResponse("open"))

    assert scene.client().get(f"{PATH}/").text == "open"


def test_airflow_loads_no_plugin_that_only_a_provider_names() -> None:
    assert settings.LAZY_LOAD_PROVIDERS
    assert "plugins" not in get_provider_info()


@pytest.mark.parametrize(
    "request_of", [{}, {"path_params": {"dag_id": "~"}}, {"query_string": b"dag_id=shipping"}]
)
def test_airflows_own_check_passes_where_the_path_names_no_dag(
    scene: PageScene, request_of: dict[str, Any]
) -> None:
    """So the pages do not use it."""
    check = requires_access_dag("GET", DagAccessEntity.RUN)
    south = SimpleAuthManagerUser(username="sven", role="viewer", teams=["south"])
    request = Request({"type": "http", "path_params": {}, "query_string": b"", "headers": [], **request_of})

    check(request, south)
    with pytest.raises(HTTPException) as refused:
        check(Request({**request.scope, "path_params": {"dag_id": "orders"}}), south)
    assert refused.value.status_code == 403


def test_airflows_dependency_on_the_auth_manager_fails_in_a_mounted_application() -> None:
    with pytest.raises(AttributeError):
        auth_manager_from_app(Request({"type": "http", "app": FastAPI()}))


def test_airflow_takes_a_post_from_another_origin_with_the_cookie(scene: PageScene) -> None:
    """So no page of ours takes one."""
    user = scene.client(scene.token("nina", team="north", role="user"), Origin="https://elsewhere.example")
    found = user.post("/api/v2/dags/plain/dagRuns", json={"logical_date": None})

    assert found.status_code == 200, found.text


def test_airflow_tells_its_interface_of_the_pages(scene: PageScene) -> None:
    found = scene.client(scene.token("nina", team="north")).get("/api/v2/plugins").json()
    (ours,) = (each for each in found["plugins"] if each["name"] == "kstreams")

    assert [view["destination"] for view in ours["external_views"]] == ["nav", "dag", "dag_run"]
    assert ours["fastapi_apps"][0]["url_prefix"] == PATH
    assert scene.client().get("/api/v2/plugins").status_code == 401


def test_airflows_interface_frames_pages_as_they_expect_it() -> None:
    """The frame's rights, and the placeholders of addresses, which are encoded."""
    bundles = (Path(airflow.__file__).parent / "ui" / "dist" / "assets").glob("index-*.js")
    (interface,) = (text for file in bundles if "sandbox" in (text := file.read_text(encoding="utf-8")))

    assert "sandbox:`allow-scripts allow-same-origin allow-forms allow-downloads`" in interface
    for placeholder in ("DAG_ID", "RUN_ID"):
        assert f"replaceAll(`{{{placeholder}}}`,encodeURIComponent(" in interface


def test_airflow_keeps_the_links_of_tasks_by_their_names(scene: PageScene) -> None:
    where = "/api/v2/dags/orders/dagRuns/one/taskInstances/incremental_batch.run_topology/links"
    found = scene.client(scene.token("nina", team="north")).get(where).json()

    assert set(found["extra_links"]) == {"Kafka run", "Spark"}
