"""A connection of Airflow as a command reads it: in a real process of Airflow."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from airflow_kstreams.cli import airflow_connection
from airflow_kstreams.cli.airflow_connection import read_airflow_connection
from airflow_kstreams.streams.errors import ConfigError


def test_settings_are_those_of_the_connection_or_the_error_says_how_to_add_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    extra = '{"bootstrap.servers": "k:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}'
    monkeypatch.setenv(
        "AIRFLOW_CONN_ORDERS",
        f'{{"conn_type": "kafka", "login": "me", "password": "of me", "extra": {extra}}}',
    )
    settings = read_airflow_connection("orders")
    assert settings["bootstrap.servers"] == "k:1"
    assert (settings["sasl.username"], settings["sasl.password"]) == ("me", "of me")
    assert "of me" not in repr(settings)

    with pytest.raises(ConfigError, match="connection 'order' is not defined in Airflow") as caught:
        read_airflow_connection("order")
    assert caught.value.fix.startswith("add it: airflow connections add order --conn-type kafka")


@pytest.mark.remedy("airflow_connection._unanswered")
@pytest.mark.parametrize(
    ("fails", "cause"),
    [
        ("echo no database >&2; exit 1", "no database"),
        ("exit 3", "its process ended with code 3 and printed nothing"),
        ("sleep 60", "within 0.5 s"),
    ],
)
def test_settings_come_when_airflow_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, cause: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{fails}\n")
    python.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(airflow_connection, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(ConfigError, match=cause):
        airflow_connection.read_airflow_connection("conn")
    python.write_text('#!/bin/sh\necho a line of a plugin\necho \'{"sasl.password": "secret"}\'\n')
    settings = airflow_connection.read_airflow_connection("conn")
    assert settings["sasl.password"] == "secret"
    assert "secret" not in repr(settings)
