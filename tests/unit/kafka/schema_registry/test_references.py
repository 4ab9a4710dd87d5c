"""A schema given as text that refers to what it does not hold is refused before it is registered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kstreams.kafka.schema_registry.references import missing_in_avro, missing_in_json_schema
from airflow_kstreams.streams.errors import ConfigError
from tests.support.kafka.registries import framed, new_registry

pytestmark = pytest.mark.promise("references-of-texts-are-refused")


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        ("string", None),
        (["null", "demo.Carrier"], "demo.Carrier"),
        ({"type": "array", "items": "Carrier"}, "Carrier"),
        ({"type": "map", "values": {"type": "enum", "name": "Carrier", "symbols": ["UA"]}}, None),
        (
            {
                "type": "record",
                "name": "Flight",
                "namespace": "demo",
                "fields": [
                    {"name": "next", "type": ["null", "Flight"]},
                    {"name": "carrier", "type": "Carrier"},
                ],
            },
            "demo.Carrier",
        ),
    ],
)
def test_names_that_avro_text_does_not_define_are_found(schema: Any, missing: str | None) -> None:
    assert missing_in_avro(json.dumps(schema)) == missing


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        (True, None),
        ({"$ref": "#"}, None),
        ({"items": {"$ref": "carrier.json"}}, "carrier.json"),
        ({"items": {"$ref": "#/definitions/carrier"}}, "#/definitions/carrier"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"items": {"$ref": "b.json"}}}}, "b.json"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, None),
        ({"items": {"$ref": "https://shop.example/carrier.json"}}, None),
        ({"items": {"$ref": "https://shop.example/carrier.json#/definitions/code"}}, None),
        ({"$id": "https://shop.example/flight.json", "items": {"$ref": "carrier.json"}}, None),
        ({"properties": {"$ref": {"type": "string"}}}, None),
        ({"const": {"$ref": "carrier.json"}}, None),
        (
            {"items": {"$ref": "carrier.json"}, "definitions": {"c": {"$id": "carrier.json"}}},
            None,
        ),
    ],
)
def test_references_that_json_schema_text_does_not_hold_are_found(schema: Any, missing: str | None) -> None:
    assert missing_in_json_schema(json.dumps(schema)) == missing


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_text_with_a_reference_has_an_error_of_its_own_and_is_not_registered(kind: str) -> None:
    registry = new_registry()
    if kind == "avro":
        serde = registry.avro('{"type": "array", "items": "demo.Carrier"}')
    else:
        serde = registry.json_schema('{"type": "array", "items": {"$ref": "demo.Carrier"}}')
    bound = serde.bound("flights", "value")
    for use in (lambda: bound.serialize([]), lambda: bound.deserialize(framed(1, b"\0"))):
        with pytest.raises(ConfigError, match=r"refers to 'demo\.Carrier', which its text does not define"):
            use()
    assert registry.client().get_subjects() == []
