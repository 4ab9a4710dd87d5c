from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from airflow.models.connection import Connection

from airflow_kstreams.hooks import kafka as kafka_hook
from airflow_kstreams.kafka.configuration.code_settings import RUNS_CODE, SENDS
from airflow_kstreams.pages import page_connections
from airflow_kstreams.pages.page_connections import NotReadError, PageSource, opened, reads_kafka

_LOOK_MS = 1_000


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``define("NAME", **client_settings)`` defines a connection in the environment."""

    def made(name: str = "PAGES", **extra: str) -> None:
        content = {"conn_type": "kafka", "extra": {"bootstrap.servers": "secret-host:9092", **extra}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(content))

    return made


def test_cluster_is_that_of_the_connection(define: Callable[..., None]) -> None:
    define()

    assert "secret-host:9092" in repr(opened(PageSource("pages", None), _LOOK_MS))


@pytest.mark.parametrize("setting", [*RUNS_CODE, *SENDS])
def test_setting_that_runs_code_is_not_honoured_whatever_the_deployment_allows(
    define: Callable[..., None], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    value = "secret-value"
    monkeypatch.setenv("AIRFLOW__KSTREAMS__ALLOWED_CLIENT_SETTINGS", setting)
    monkeypatch.setenv("KSTREAMS_ALLOWED_CLIENT_SETTINGS", setting)
    define(**{setting: value})

    assert setting in kafka_hook.allowed_settings().values
    with pytest.raises(NotReadError, match="does not honour") as refused:
        opened(PageSource("pages", None), _LOOK_MS)
    assert setting in refused.value.why
    assert value not in refused.value.why


def test_reason_has_no_value_when_a_connection_cannot_be_used(define: Callable[..., None]) -> None:
    define(**{"security.protocol": "secret-value"})

    with pytest.raises(NotReadError, match="the API server's log says why") as refused:
        opened(PageSource("pages", None), _LOOK_MS)
    assert "secret" not in refused.value.why


@pytest.mark.parametrize("conn_id", ["", "kafka://host:9092", "a b", "{{ conn }}", "x" * 300, "a\n"])
def test_connection_is_not_looked_up_when_its_name_is_none(
    conn_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "get_connection_from_secrets", None)

    with pytest.raises(NotReadError, match="names no connection"):
        opened(PageSource(conn_id, None), _LOOK_MS)


def test_connection_is_named_when_it_is_not_defined() -> None:
    with pytest.raises(NotReadError, match="'not_there' is not defined"):
        opened(PageSource("not_there", None), _LOOK_MS)


@pytest.mark.promise("pages-refuse-strangers")
def test_connection_of_another_team_is_not_taken(
    define: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    define("_NORTH___PAGES")

    assert "secret-host" in repr(opened(PageSource("pages", "north"), _LOOK_MS))
    for source in (
        PageSource("pages", "south"),
        PageSource("pages", None),
        PageSource("_north___pages", "south"),
    ):
        with pytest.raises(NotReadError, match="not defined"):
            opened(source, _LOOK_MS)


def test_nothing_is_read_for_a_team_when_airflow_cannot_look_connections_up_by_team(
    define: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setattr(page_connections, "has_teams", lambda: False)
    define()

    with pytest.raises(NotReadError, match=r"from release 3\.2 on"):
        opened(PageSource("pages", None), _LOOK_MS)


def test_deployment_switches_reading_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads_kafka()
    monkeypatch.setenv("AIRFLOW__KSTREAMS__PAGES_READ_KAFKA", "False")
    assert not reads_kafka()
