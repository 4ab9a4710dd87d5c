"""Client settings that were refused are given as the error says, and are taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_kstreams.kafka.configuration.client_settings import ENGINE_OWNED, check_client_settings
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings, with_callback
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.kafka.configuration.known_settings import JAVA_SETTINGS
from airflow_kstreams.kafka.configuration.registry_settings import client_config
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import SETTINGS
from tests.support.remedies import walked

HERE = {"bootstrap.servers": "localhost:9092"}
Settings = Mapping[str, object]

TAKEN = [
    walked("client_settings.check_client_settings", {}, HERE),
    walked(
        "client_settings._check_name: move it",
        {**HERE, "commit.interval.ms": 1000},
        HERE,
    ),
    walked("client_settings._as_text", {**HERE, "client.id": len}, {**HERE, "client.id": "mine"}),
    walked(
        "client_settings._ask_client: {nearest}", {**HERE, "sasl.user": "a"}, {**HERE, "sasl.username": "a"}
    ),
    walked(
        "client_settings._ask_client: correct the value",
        {**HERE, "socket.timeout.ms": "soon"},
        {**HERE, "socket.timeout.ms": "1000"},
    ),
    walked("code_settings.AllowedSettings.check: remove it", {**HERE, "error_cb": "print"}, HERE),
    walked(
        "code_settings.AllowedSettings.check: use letters",
        {**HERE, "sasl.kerberos.principal": "kafka;id"},
        {**HERE, "sasl.kerberos.principal": "kafka/host.example@REALM"},
    ),
    walked("code_settings.AllowedSettings._check_allowed", {**HERE, "plugin.library.paths": "x"}, HERE),
    walked(
        "code_settings.AllowedSettings._check_allowed",
        {**HERE, "sasl.oauthbearer.assertion.file": "/etc/hostname"},
        HERE,
    ),
    walked(
        "registry_settings.registry_settings: {nearest}",
        {**HERE, "schema.registry.urls": "http://here:8081"},
        {**HERE, "schema.registry.url": "http://here:8081"},
    ),
    walked(
        "registry_settings.registry_settings: write it as in",
        {**HERE, "schema.registry.max.retries": "many"},
        {**HERE, "schema.registry.max.retries": "10"},
    ),
    walked(
        "registry_settings.registry_settings: write http(s)",
        {**HERE, "schema.registry.url": "here:8081"},
        {**HERE, "schema.registry.url": "http://here:8081"},
    ),
]


@pytest.mark.parametrize(("fault", "told"), TAKEN)
def test_settings_are_taken_as_the_error_says(fault: Settings, told: Settings) -> None:
    with pytest.raises(ConfigError):
        check_client_settings(fault)
    assert check_client_settings(told) == {name: str(value) for name, value in told.items()}


@pytest.mark.remedy("client_settings._check_name: {ENGINE_OWNED}")
@pytest.mark.parametrize("name", ENGINE_OWNED)
def test_setting_of_the_engine_is_left_out_or_set_by_the_application_setting_that_the_error_names(
    name: str,
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_client_settings({**HERE, name: "1"})
    for setting in re.findall(r"application setting ([a-z.]+)", refused.value.fix):
        assert setting in SETTINGS
    assert check_client_settings(HERE) == HERE


@pytest.mark.remedy("client_settings._refuse_java")
@pytest.mark.parametrize("name", JAVA_SETTINGS)
def test_setting_of_javas_clients_is_said_by_the_names_of_librdkafka(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_client_settings({**HERE, name: "x"})
    named = re.findall(r"\b(?:ssl|sasl|security|bootstrap|schema)\.[a-z.]+[a-z]", refused.value.fix)
    assert named or re.search("leave it out|remove it", refused.value.fix)
    for each in named:
        assert not unknown(each), each


def unknown(name: str) -> bool:
    """Return whether the client knows no such setting, whatever the value."""
    try:
        check_client_settings({**HERE, name: "x"})
    except ConfigError as error:
        return "unknown client setting" in error.cause
    return False


FILES = [
    walked(
        "config_file.read_client_config: write name=value",
        "bootstrap.servers\n",
        "bootstrap.servers=localhost:9092\n",
    ),
    walked("config_file._json", "{bootstrap", '{"bootstrap.servers": "localhost:9092"}'),
    walked(
        "config_file._translated: say it by",
        "bootstrap.servers=localhost:9092\nsasl.jaas.config=com.example.Module required;\n",
        "bootstrap.servers=localhost:9092\nsasl.username=a\nsasl.password=b\n",
    ),
    walked(
        "config_file._translated: {JAVA_SETTINGS}",
        "bootstrap.servers=localhost:9092\nssl.truststore.location=/x.jks\n",
        "bootstrap.servers=localhost:9092\nssl.ca.location=/x.pem\n",
    ),
]


@pytest.mark.parametrize(("fault", "told"), FILES)
def test_file_is_read_as_the_error_says(fault: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(fault)
    with pytest.raises(ConfigError):
        read_client_config(file)
    file.write_text(told)
    assert read_client_config(file)["bootstrap.servers"] == "localhost:9092"


@pytest.mark.remedy("config_file.read_client_config: name a readable")
def test_file_is_read_when_a_readable_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with pytest.raises(ConfigError):
        read_client_config(file)
    file.write_text("bootstrap.servers=localhost:9092\n")
    assert read_client_config(file) == HERE


ALLOWED = [
    walked(
        "code_settings.AllowedSettings.parse",
        lambda: AllowedSettings.parse("client.id"),
        lambda: AllowedSettings.parse("plugin.library.paths").values,
        {"plugin.library.paths": None},
    ),
    walked(
        "code_settings._json",
        lambda: AllowedSettings.parse("{plugin"),
        lambda: AllowedSettings.parse('{"plugin.library.paths": "x"}').values,
        {"plugin.library.paths": "x"},
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), ALLOWED)
def test_settings_are_allowed_as_the_error_says(
    fault: Callable[[], object], told: Callable[[], object], wanted: object
) -> None:
    with pytest.raises(ConfigError):
        fault()
    assert told() == wanted


def token(_: str) -> tuple[str, float]:
    return "token", 0.0


NOT_A_FUNCTION = "three"


@pytest.mark.parametrize(
    "named",
    [
        walked("code_settings._function: name a function as", "no_such_module.token"),
        walked("code_settings._function: name a function", f"{__name__}.NOT_A_FUNCTION"),
    ],
)
def test_function_of_tokens_is_taken_when_it_is_named_as_the_error_says(named: str) -> None:
    with pytest.raises(ConfigError):
        with_callback({**HERE, "oauth_cb": named})
    assert with_callback({**HERE, "oauth_cb": f"{__name__}.token"})["oauth_cb"] is token


@pytest.mark.remedy("registry_settings.client_config")
def test_registry_is_known_when_it_is_named_in_the_settings_or_in_the_file() -> None:
    with pytest.raises(ConfigError) as refused:
        client_config("", {})
    assert "put schema.registry.url into" in refused.value.fix
    assert client_config("", {"url": "http://HOST:8081"})["url"] == "http://HOST:8081"
    assert client_config(SchemaRegistry("http://HOST:8081").url, {})["url"] == "http://HOST:8081"
