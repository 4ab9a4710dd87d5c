"""Where a command finds the cluster: options first, then files and connections, then the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_kstreams.cli import airflow_connection, shared_options
from airflow_kstreams.cli.shared_options import Connection
from airflow_kstreams.streams.errors import ConfigError, MissingExtraError
from tests.support.command_line import json_error_of
from tests.unit.cli.test_app import FLIGHTS, invoke

APP = ("--application-id", "app")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file that names a server, and one that names none."""
    for name in ("KSTREAMS_BOOTSTRAP_SERVERS", "KSTREAMS_KAFKA_CONFIG_FILE", "KSTREAMS_APPLICATION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        airflow_connection, "read_airflow_connection", lambda name: {"bootstrap.servers": f"{name}:1"}
    )
    (tmp_path / "with").write_text("bootstrap.servers=file:1\nclient.id=f\n")
    (tmp_path / "without").write_text("client.id=f\n")
    return tmp_path


@pytest.mark.parametrize(
    ("option", "file", "conn", "named", "address", "server"),
    [
        ("option:1", "with", "", "", "env:1", "option:1"),
        ("option:1", "", "conn", "", "env:1", "option:1"),
        ("", "with", "", "", "env:1", "file:1"),
        ("", "without", "", "with", "env:1", "env:1"),
        ("", "", "conn", "with", "env:1", "conn:1"),
        ("", "", "", "with", "env:1", "env:1"),
        ("", "", "", "with", "", "file:1"),
        ("", "", "", "", "env:1", "env:1"),
        ("", "without", "", "", "", None),
        ("", "", "", "", "", None),
    ],
)
def test_server_is_what_stands_nearest_to_the_command(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    file: str,
    conn: str,
    named: str,
    address: str,
    server: str | None,
) -> None:
    if named:
        monkeypatch.setenv("KSTREAMS_KAFKA_CONFIG_FILE", str(folder / named))
    if address:
        monkeypatch.setenv("KSTREAMS_BOOTSTRAP_SERVERS", address)
    connection = Connection(
        bootstrap_server=option or None,
        config_file=folder / file if file else None,
        airflow_conn=conn or None,
    )
    config = connection.client_config()
    assert config.get("bootstrap.servers") == server
    assert ("client.id" in config) == bool(file or (named and not conn))


@pytest.mark.remedy("shared_options.Connection.cluster")
@pytest.mark.parametrize("way", ["--bootstrap-server", "--bootstrap-servers", "--airflow-conn", "variable"])
def test_cluster_is_named_in_each_way_that_the_error_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(shared_options, "CONNECT_MS", 1)
    error = json_error_of(invoke("doctor", FLIGHTS, *APP, "--json"))
    assert error["cause"].startswith("no Kafka cluster is named")
    assert way.removesuffix("s") in error["fix"] or way == "variable"
    if way == "variable":
        monkeypatch.setenv("KSTREAMS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
        monkeypatch.setenv("KSTREAMS_APPLICATION_ID", "app")
        result = invoke("doctor", FLIGHTS)
    else:
        server = "127.0.0.1" if way == "--airflow-conn" else "127.0.0.1:1"
        result = invoke("doctor", FLIGHTS, *APP, way, server)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: broker unreachable at 127.0.0.1:1")


@pytest.mark.remedy("shared_options.Connection.client_config")
def test_one_source_of_settings_is_enough(folder: Path) -> None:
    with pytest.raises(ConfigError, match="two sources"):
        Connection(config_file=folder / "with", airflow_conn="conn").client_config()
    assert Connection(config_file=folder / "with").client_config()["bootstrap.servers"] == "file:1"
    assert Connection(airflow_conn="conn").client_config()["bootstrap.servers"] == "conn:1"


def test_extra_is_named_when_airflow_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow", None)
    with pytest.raises(MissingExtraError, match=r"--airflow-conn needs airflow, which is not installed"):
        airflow_connection.read_airflow_connection("conn")


@pytest.mark.promise("no-broker-is-said")
def test_commands_wait_for_the_first_answer_no_longer_than_eight_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda _, **named: given.update(named))
    Connection(bootstrap_server="k:1").cluster()
    assert given["connect_ms"] == shared_options.CONNECT_MS == 8_000
