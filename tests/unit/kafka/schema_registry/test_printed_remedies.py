"""What a serde of a schema registry refuses is given as the error says, and is taken."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroSerializer

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.kafka.schema_registry.avro_writing import FittingSerializer
from airflow_kstreams.streams.errors import ConfigError, KStreamsError
from airflow_kstreams.streams.serde.base import Serde
from tests.support.kafka.registries import FLIGHT, FLIGHT_JSON, message_class, new_registry, register
from tests.support.remedies import walked

MakeSerde = Callable[[SchemaRegistry], Serde]
UA = {"carrier": "UA"}
AIRPORT = message_class("Airport")
CARRIER = json.dumps(
    {"type": "record", "name": "demo.Carrier", "fields": [{"name": "code", "type": "string"}]}
)


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    schema_registry.configure({})


def referring(definitions: dict[str, Any], to: str = "#/$defs/carrier") -> str:
    """Return a JSON Schema that refers to a carrier."""
    refers = {"carrier": {"$ref": to}}
    return json.dumps({"title": "Flight", "type": "object", "properties": refers, "$defs": definitions})


WHOLE_JSON = referring({"carrier": {"type": "string"}})


def flying(kind: str, carrier: Any = "string") -> str:
    """Return an Avro schema of flights with carriers of a type."""
    return json.dumps({"type": kind, "name": "Flight", "fields": [{"name": "carrier", "type": carrier}]})


def registered(registry: SchemaRegistry, text: str, kind: str) -> SchemaRegistry:
    """Return the registry in which a schema is the newest of flights."""
    register(registry, "flights-value", text, kind)
    return registry


def with_carrier(registry: SchemaRegistry, kind: str, name: str) -> SchemaRegistry:
    """Return the registry in which the schema of flights refers to a schema of carriers of its own."""
    avro = kind == "AVRO"
    register(registry, "carrier", CARRIER if avro else '{"type": "string"}', kind)
    text = flying("record", name) if avro else referring({}, name)
    flight = Schema(text, kind, [SchemaReference(name, "carrier", 1)])
    registry.client().register_schema("flights-value", flight)
    return registry


SERDES = [
    walked(
        "schema_registry.SchemaRegistry._serde",
        lambda registry: registry.json_schema('{"type": "object"}', subject_names="record"),
        lambda registry: registry.json_schema(FLIGHT_JSON, subject_names="record"),
        UA,
    ),
    walked(
        "schema_registry.SchemaRegistry.protobuf",
        lambda registry: registry.protobuf("Airport"),
        lambda registry: registry.protobuf(AIRPORT),
        AIRPORT(code="JFK"),
    ),
    walked(
        "schema_registry._check_text",
        lambda registry: registry.avro(json.loads(FLIGHT)),
        lambda registry: registry.avro(json.dumps(json.loads(FLIGHT))),
        UA,
    ),
    walked(
        "binding.BoundSerde._make_serializer",
        lambda registry: registry.avro(),
        lambda registry: registry.avro(FLIGHT),
        UA,
    ),
    walked(
        "binding.BoundSerde._refused_schema",
        lambda registry: registry.avro('{"type": "array"}'),
        lambda registry: registry.avro(FLIGHT),
        UA,
    ),
    walked(
        "binding.BoundSerde._registry_fault: put",
        lambda registry: registered(registry, referring({}), "JSON").json_schema(use_latest_version=True),
        lambda registry: registered(registry, WHOLE_JSON, "JSON").json_schema(use_latest_version=True),
        UA,
    ),
    *(
        walked("binding.BoundSerde._refuse_missing_reference", *way)
        for way in (
            (
                lambda registry: registry.avro(flying("recrod")),
                lambda registry: registry.avro(FLIGHT),
                UA,
            ),
            (
                lambda registry: registry.avro(flying("record", "demo.Carrier")),
                lambda registry: registry.avro(flying("record", json.loads(CARRIER))),
                {"carrier": {"code": "UA"}},
            ),
            (
                lambda registry: registry.avro(flying("record", "demo.Carrier"), use_latest_version=True),
                lambda registry: with_carrier(registry, "AVRO", "demo.Carrier").avro(use_latest_version=True),
                {"carrier": {"code": "UA"}},
            ),
            (
                lambda registry: registry.json_schema(referring({})),
                lambda registry: registry.json_schema(WHOLE_JSON),
                UA,
            ),
            (
                lambda registry: registry.json_schema(referring({}, "carrier.json")),
                lambda registry: with_carrier(registry, "JSON", "carrier.json").json_schema(
                    use_latest_version=True
                ),
                UA,
            ),
        )
    ),
]


@pytest.mark.parametrize(("fault", "told", "value"), SERDES)
def test_values_are_written_and_read_as_the_error_says(fault: MakeSerde, told: MakeSerde, value: Any) -> None:
    registry = new_registry()
    with pytest.raises(KStreamsError):
        fault(registry).bound("flights", "value").serialize(value)
    serde = told(registry).bound("flights", "value")
    read = serde.deserialize(serde.serialize(value))
    assert {**read, **value} == read if isinstance(value, dict) else read == value


@pytest.mark.remedy("binding.RegistrySerde.unbound.refuse")
def test_serde_is_of_use_when_it_is_bound_as_the_error_says() -> None:
    serde = new_registry().avro('"string"')
    with pytest.raises(ConfigError) as refused:
        serde.serialize("UA")
    assert refused.value.fix == 'bind it first: serde.bound("TOPIC", "value")'
    bound = serde.bound("TOPIC", "value")
    assert bound.deserialize(bound.serialize("UA")) == "UA"


@pytest.mark.remedy("schema_registry.SchemaRegistry.__init__")
def test_registry_is_taken_when_its_url_is_written_as_the_error_says() -> None:
    with pytest.raises(KStreamsError):
        SchemaRegistry("http://alice:canary@HOST:8081")
    assert SchemaRegistry("http://HOST:8081").url == "http://HOST:8081"
    schema_registry.configure(
        {
            "schema.registry.url": "http://HOST:8081",
            "schema.registry.basic.auth.user.info": "alice:canary",
        }
    )
    client: Any = SchemaRegistry("http://HOST:8081").client()
    assert client.config()["basic.auth.user.info"] == "alice:canary"


@pytest.mark.remedy("binding.make_client")
def test_client_is_made_when_its_setting_is_corrected() -> None:
    wrong = {"schema.registry.url": "https://HOST", "schema.registry.ssl.ca.location": "/nowhere.pem"}
    schema_registry.configure(wrong)
    with pytest.raises(ConfigError, match="refuses its settings"):
        SchemaRegistry().client()
    schema_registry.configure({"schema.registry.url": "https://HOST"})
    client: Any = SchemaRegistry().client()
    assert client.config()["url"] == "https://HOST"


@pytest.mark.remedy("binding.missing_library")
def test_client_is_made_when_the_library_is_installed() -> None:
    registry = new_registry()
    with pytest.MonkeyPatch.context() as uninstalled:
        uninstalled.setitem(sys.modules, "confluent_kafka.schema_registry", None)
        with pytest.raises(ConfigError, match="library that is not installed"):
            registry.client()
    assert registry.client().get_subjects() == []


@pytest.mark.remedy("avro_writing.unknown_client")
def test_values_are_written_by_the_version_of_the_client_that_the_error_names() -> None:
    serde = new_registry().avro(FLIGHT)
    with pytest.MonkeyPatch.context() as another:
        another.setattr(FittingSerializer, "_get_reader_schema", AvroSerializer._get_reader_schema)
        with pytest.raises(ConfigError) as refused:
            serde.bound("flights", "value").serialize(UA)
    assert f"confluent-kafka=={confluent_kafka.__version__}" in refused.value.fix, "the one installed here"
    assert serde.bound("flights", "value").serialize(UA)
