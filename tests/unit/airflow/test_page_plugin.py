from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.hooks.operator_links import KafkaRunLink
from airflow_kstreams.pages.page_routes import UnprovenAirflowError, make_application, refuse_unproven_airflow
from airflow_kstreams.pages.plugin import PATH, KStreamsPlugin, PagesApp, pages_base, views


async def _asked(app: PagesApp, method: str = "GET", kind: str = "http") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": kind, "method": method, "path": f"{PATH}/"}, None, send)  # type: ignore[arg-type]
    return sent


@pytest.mark.parametrize(("url", "below"), [("", ""), ("https://host.example/airflow/", "/airflow")])
def test_addresses_begin_with_the_servers_path(monkeypatch: pytest.MonkeyPatch, url: str, below: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", url)
    shown = views(pages_base())
    key = SimpleNamespace(dag_id="orders", run_id="manual__2026-01-01T00:00:00+00:00")

    assert [view["href"] for view in shown] == [
        f"{below}/kstreams/",
        f"{below}/kstreams/dags/{{DAG_ID}}",
        f"{below}/kstreams/dags/{{DAG_ID}}/runs/{{RUN_ID}}",
    ]
    assert {view["icon"] for view in shown} == {f"{below}/kstreams/static/icon.svg"}
    assert KafkaRunLink().get_link(None, ti_key=key) == (  # type: ignore[arg-type]
        f"{below}/kstreams/dags/orders/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    )


def test_views_stand_in_the_menu_on_dags_and_on_dag_runs() -> None:
    views = KStreamsPlugin.external_views

    assert [view["destination"] for view in views] == ["nav", "dag", "dag_run"]
    assert len({view["url_route"] for view in views}) == 3
    static = Path(__file__).parents[3] / "airflow_kstreams" / "pages" / "static"
    for view in views:
        assert len(view["name"]) <= 8
        for icon in ("icon", "icon_dark_mode"):
            assert (static / view[icon].rpartition("/")[2]).exists()


def test_application_is_made_at_the_first_request_and_once() -> None:
    made: list[str] = []

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Cache-Control", b"public")]})

    def make() -> Any:
        made.append("made")
        return answering

    app = PagesApp(make)
    assert made == []
    ((start,), _) = asyncio.run(_asked(app)), asyncio.run(_asked(app))

    assert made == ["made"]
    assert [value for name, value in start["headers"] if name.lower() == b"cache-control"] == [b"no-store"]


def test_no_page_is_shown_when_airflow_is_not_as_it_is_expected() -> None:
    tries: list[str] = []

    def fail() -> Any:
        tries.append("tried")
        raise ImportError("Airflow has another name for it")

    app = PagesApp(fail)
    for _ in range(2):
        start, body = asyncio.run(_asked(app))
        assert start["status"] == 503
        assert b"content-security-policy" in dict(start["headers"])
        assert b"Airflow has" not in body["body"]
    assert tries == ["tried"]


@pytest.mark.parametrize(
    ("release", "shown"), [("3.1.8", True), ("3.3.2", True), ("3.4.0", False), ("unknown", False)]
)
def test_release_of_airflow_is_refused_when_its_checks_were_not_tried(release: str, shown: bool) -> None:
    if shown:
        refuse_unproven_airflow(release)
        return
    with pytest.raises(UnprovenAirflowError, match="none is shown"):
        refuse_unproven_airflow(release)


def test_websocket_is_closed() -> None:
    assert asyncio.run(_asked(PagesApp(), kind="websocket"))[0]["type"] == "websocket.close"


def test_routes_only_read() -> None:
    routes = make_application().routes

    assert {method for route in routes for method in route.methods} == {"GET"}  # type: ignore[attr-defined]
