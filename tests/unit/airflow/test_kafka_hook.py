from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_kstreams.hooks.kafka import KafkaHook, checked_settings, secrets_of, settings_in
from airflow_kstreams.kafka.child_reader import ChildReader
from airflow_kstreams.streams.errors import ConfigError
from tests.support.airflow.airflow_environment import add_connection
from tests.support.remedies import walked


def _connection(extra: dict[str, Any] | str | None = None, **fields: Any) -> Connection:
    text = extra if isinstance(extra, str) or extra is None else json.dumps(extra)
    return Connection(conn_id="my_kafka", conn_type="kafka", extra=text, **fields)


def client_config_of(connection: Connection) -> dict[str, str]:
    return checked_settings(settings_in(connection), conn_id=connection.conn_id)


def test_client_settings_are_the_extra_when_it_is_complete() -> None:
    extra = {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "x",
        "socket.timeout.ms": 5000,
        "socket.keepalive.enable": True,
    }

    assert client_config_of(_connection(extra, host="ignored", port=9)) == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "x",
        "socket.timeout.ms": "5000",
        "socket.keepalive.enable": "true",
    }


@pytest.mark.parametrize(
    ("fields", "bootstrap"),
    [({"host": "h", "port": 9092}, "h:9092"), ({"host": "h:1,i:2"}, "h:1,i:2"), ({"host": "h"}, "h")],
)
def test_host_and_port_are_the_bootstrap_servers_when_the_extra_lacks_them(
    fields: dict[str, Any], bootstrap: str
) -> None:
    assert client_config_of(_connection(**fields)) == {"bootstrap.servers": bootstrap}


def test_login_and_password_are_the_sasl_credentials_when_the_extra_lacks_them() -> None:
    connection = _connection({"sasl.mechanism": "PLAIN"}, host="h", port=1, login="alice", password="hush")

    config = client_config_of(connection)

    assert config["sasl.username"] == "alice"
    assert config["sasl.password"] == "hush"
    masked = secrets_of(config)
    assert {"hush", "aHVzaA=="} <= set(masked)
    assert "alice" not in masked


def test_registrys_settings_reach_the_driver_and_are_masked_when_the_extra_holds_them() -> None:
    extra = {
        "bootstrap.servers": "b:1",
        "schema.registry.url": "https://registry",
        "schema.registry.basic.auth.user.info": "alice:hush-hush",
    }
    config = client_config_of(_connection(extra))
    assert config == extra
    assert {"alice:hush-hush", "hush-hush", "YWxpY2U6aHVzaC1odXNo"} <= set(secrets_of(config))


@pytest.mark.parametrize(
    ("extra", "found", "remedy"),
    [
        ({}, "'bootstrap.servers' is missing", "host:port"),
        ({"bootstrap.servers": "h:1", "group.id": "g"}, "'group.id' is owned by the engine", "application"),
        (
            {"bootstrap.servers": "h:1", "bootstrap.server": "h"},
            "unknown client setting 'bootstrap.server'",
            "bootstrap.servers",
        ),
        ("[1]", "not a JSON object", "bootstrap.servers"),
        ('{"sasl.password": "hush"', "not a JSON object", "bootstrap.servers"),
    ],
)
def test_connection_is_refused_by_name_when_a_setting_is_wrong(extra: Any, found: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as raised:
        client_config_of(_connection(extra))

    assert "connection 'my_kafka'" in raised.value.cause
    assert found in raised.value.cause
    assert remedy in raised.value.fix
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd", "oauth_cb", "error_cb"]
)
def test_connection_is_refused_when_its_editor_would_run_code(name: str) -> None:
    with pytest.raises(ConfigError, match=f"connection 'my_kafka': client setting '{name}'") as raised:
        client_config_of(_connection({"bootstrap.servers": "h:1", name: "os.system"}))

    assert "os.system" not in str(raised.value)


def test_setting_that_runs_code_is_accepted_when_the_deployments_option_allows_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"bootstrap.servers": "h:1", "sasl.kerberos.kinit.cmd": "kinit -k"}
    monkeypatch.setenv(
        "AIRFLOW__KSTREAMS__ALLOWED_CLIENT_SETTINGS", '{"sasl.kerberos.kinit.cmd": "kinit -k"}'
    )
    monkeypatch.setenv("AIRFLOW_CONN_MY_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))

    assert KafkaHook("my_kafka").cluster().bootstrap == "h:1"
    with pytest.raises(ConfigError, match="another value"):
        client_config_of(_connection({**extra, "sasl.kerberos.kinit.cmd": "kinit -k; id"}))


def test_word_of_the_processes_environment_does_not_count_when_airflow_reads_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KSTREAMS_ALLOWED_CLIENT_SETTINGS", "oauth_cb")

    with pytest.raises(ConfigError, match="runs code"):
        client_config_of(_connection({"bootstrap.servers": "h:1", "oauth_cb": "os.system"}))


@pytest.mark.remedy("kafka.undefined_connection")
def test_hook_finds_the_connection_that_was_added_by_the_command_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="connection 'nowhere' is not defined") as raised:
        KafkaHook("nowhere").client_config()

    add_connection(raised.value.fix, monkeypatch)
    assert KafkaHook("nowhere").client_config() == {"bootstrap.servers": "HOST:PORT"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked("kafka.settings_in", "[1]", '{"bootstrap.servers": "HOST:PORT"}'),
        walked(
            "kafka.checked_settings",
            '{"bootstrap.servers": "HOST:PORT", "group.id": "mine"}',
            '{"bootstrap.servers": "HOST:PORT"}',
        ),
    ],
)
def test_connection_is_taken_when_its_extra_is_as_the_error_says(fault: str, told: str) -> None:
    with pytest.raises(ConfigError):
        client_config_of(_connection(fault))
    assert client_config_of(_connection(told)) == {"bootstrap.servers": "HOST:PORT"}


@pytest.mark.promise("looks-are-bounded")
def test_a_users_own_task_fetches_in_a_process_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MY_KAFKA", '{"conn_type": "kafka", "host": "h", "port": 1}')
    for cluster in (KafkaHook("my_kafka").cluster(), KafkaHook("my_kafka").get_conn()):
        with closing(cluster.reader(group_id="any")) as reader:
            assert isinstance(reader, ChildReader)


def test_hook_gives_a_cluster_that_shows_no_secret_when_the_environment_defines_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"bootstrap.servers": "h:1", "sasl.username": "alice", "sasl.password": "hush-hush"}
    monkeypatch.setenv("AIRFLOW_CONN_MY_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))

    cluster = KafkaHook("my_kafka").cluster()

    assert cluster.bootstrap == "h:1"
    assert "hush-hush" not in repr(cluster)
