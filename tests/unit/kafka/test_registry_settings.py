from __future__ import annotations

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.registry_settings import client_config, registry_settings
from airflow_kstreams.kafka.configuration.secrets import redact
from airflow_kstreams.streams.errors import ConfigError

BROKER = {"bootstrap.servers": "127.0.0.1:1"}
REGISTRY = {
    "schema.registry.url": "https://registry:8081",
    "schema.registry.basic.auth.user.info": "alice:canary-1",
    "schema.registry.timeout": "5",
}


def test_registrys_settings_travel_with_kafkas_when_they_are_checked() -> None:
    config = {**BROKER, **REGISTRY, "linger.ms": 5, "schema.registry.max.retries": 1}
    checked = check_client_settings(config)
    assert checked == {**BROKER, **REGISTRY, "linger.ms": "5", "schema.registry.max.retries": "1"}


def test_kafkas_client_gets_none_of_them_when_a_cluster_is_made() -> None:
    assert "schema.registry" not in repr(KafkaCluster({**BROKER, **REGISTRY}))


def test_setting_is_refused_with_the_nearest_name_when_it_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"unknown client setting 'schema\.registry\.urls'") as caught:
        check_client_settings({**BROKER, "schema.registry.urls": "http://registry"})
    assert caught.value.fix == "did you mean 'schema.registry.url'?"


@pytest.mark.parametrize("value", ["soon", "1.5", "-1", ""])
def test_setting_is_refused_when_it_is_no_whole_number(value: str) -> None:
    with pytest.raises(ConfigError, match=r"'schema\.registry\.timeout' is not a whole number"):
        registry_settings({"schema.registry.timeout": value})


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("registry:8081", "is no URL"),
        ("ftp://registry", "is no URL"),
        ("http://[::1", "is no URL"),
        ("http://a:8081,b:8081", "is no URL"),
        ("https://alice:canary@registry", "holds credentials"),
        ("https://a,https://alice:canary@b", "holds credentials"),
        ("https://a?key=canary", "holds more than an address"),
        ("https://a#canary", "holds more than an address"),
    ],
)
def test_url_is_refused_and_not_shown_when_it_is_none_or_holds_credentials(url: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        registry_settings({"schema.registry.url": url})
    assert "canary" not in str(caught.value)
    assert "schema.registry.basic.auth.user.info" in caught.value.fix


def test_secrets_are_hidden_when_settings_are_shown() -> None:
    secrets = {
        "schema.registry.basic.auth.user.info": "alice:canary",
        "schema.registry.bearer.auth.token": "canary",
        "schema.registry.bearer.auth.client.secret": "canary",
        "schema.registry.ssl.key.password": "canary",
        "schema.registry.proxy": "http://alice:canary@proxy",
    }
    shown = redact({**REGISTRY, **secrets})
    assert "canary" not in str(shown)
    assert shown["schema.registry.url"] == "https://registry:8081"


SETTINGS = {"url": "https://registry:8081", "basic.auth.user.info": "alice:secret", "max.retries": "1"}


@pytest.mark.parametrize("url", ["", "https://registry:8081", "https://registry:8081/"])
def test_client_gets_the_settings_when_they_are_for_its_registry(url: str) -> None:
    config = client_config(url, SETTINGS)
    assert config["basic.auth.user.info"] == "alice:secret"
    assert config["max.retries"] == 1
    assert config["timeout"] == 10


@pytest.mark.promise("registry-credentials-stay-out")
@pytest.mark.parametrize("url", ["https://elsewhere:8081", "http://registry:8081", "mock://registry"])
def test_client_gets_no_credentials_when_the_settings_are_for_another_registry(url: str) -> None:
    assert client_config(url, SETTINGS) == {"url": url, "timeout": 10}


def test_client_gets_the_settings_when_they_name_no_registry() -> None:
    config = client_config("https://registry", {"basic.auth.user.info": "alice:secret", "timeout": "3"})
    assert config == {"url": "https://registry", "basic.auth.user.info": "alice:secret", "timeout": 3}


def test_remedy_is_told_when_no_registry_is_named() -> None:
    with pytest.raises(ConfigError, match="no schema registry is named") as caught:
        client_config("", {})
    assert "schema.registry.url" in caught.value.fix
