from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams.errors import ConfigError
from tests.support.kafka.registries import FLIGHT, new_registry


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    schema_registry.configure({})


def test_client_is_shared_when_the_configuration_is_the_same() -> None:
    registry = new_registry()
    assert registry.client() is SchemaRegistry(registry.url).client()
    assert registry.client() is not new_registry().client()


def test_registry_of_the_settings_is_used_when_the_topology_names_none() -> None:
    told = new_registry()
    serde = SchemaRegistry().avro(FLIGHT)
    with pytest.raises(ConfigError, match="no schema registry is named"):
        serde.bound("flights", "value")

    schema_registry.configure({"bootstrap.servers": "b:1", "schema.registry.url": told.url})
    serde.bound("flights", "value").serialize({"carrier": "UA"})

    assert told.client().get_subjects() == ["flights-value"]


def test_settings_are_replaced_when_told_again() -> None:
    schema_registry.configure({"schema.registry.url": "mock://first"})
    schema_registry.configure({})
    with pytest.raises(ConfigError, match="no schema registry is named"):
        SchemaRegistry().client()


def test_value_is_refused_and_secrets_hidden_when_the_client_does_not_take_it() -> None:
    schema_registry.configure(
        {
            "schema.registry.url": "https://registry",
            "schema.registry.ssl.certificate.location": "/nowhere/canary.pem",
            "schema.registry.ssl.key.password": "canary",
        }
    )
    with pytest.raises(ConfigError, match="refuses its settings: FileNotFoundError") as caught:
        SchemaRegistry().client()
    assert "canary" not in str(caught.value)
