from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams.errors import ConfigError
from tests.support.kafka.registries import FLIGHT, new_registry

_ROOT = Path(__file__).parents[4]


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


#: Blocks a library, then binds a serde as a task does.
_WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
if sys.argv[1] == "httpx2":  # whose predecessor would do
    sys.modules["httpx"] = None
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.testing import TopologyTestDriver
builder = KStreamBuilder()
value_serde = SchemaRegistry("mock://demo").avro('"string"')
builder.stream("in", key_serde=serdes.string(), value_serde=value_serde).send_to("out")
topology = builder.build()
topology.plan("demo")
try:
    TopologyTestDriver(topology, application_id="demo")
except ConfigError as error:
    print(error)
    print(error.__suppress_context__, error.__cause__)
"""


@pytest.mark.parametrize("library", ["httpx2", "attrs", "fastavro", "cachetools"])
def test_extra_is_named_when_a_library_is_missing(library: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, library], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    first, fix, quiet = done.stdout.splitlines()
    assert first.startswith("serdes of a schema registry need a library that is not installed here")
    assert library.removesuffix("2") in first
    assert "pip install 'airflow-kstreams[schema-registry]'" in fix
    assert quiet == "True None"


_BUILD = """
import socket, sys, threading
def refuse(self, *args):
    raise OSError("no network while a topology is built")
socket.socket.connect = socket.socket.connect_ex = refuse
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.streams import KStreamBuilder, serdes
registry = schema_registry.SchemaRegistry("https://registry.invalid")
builder = KStreamBuilder(default_key_serde=serdes.string())
flights = builder.stream("flights", value_serde=registry.avro('"long"'))
flights.map_values(str).send_to("out", value_serde=registry.json_schema('{"type": "string"}'))
flights.group_by_key().count(store="counts")
builder.build().plan("demo")
heavy = ("confluent_kafka", "fastavro", "httpx", "httpx2", "jsonschema", "google.protobuf", "authlib")
print([name for name in heavy if name in sys.modules], threading.active_count())
"""


def test_topology_is_built_without_client_and_network_when_its_serdes_have_a_registry() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] 1\n"
