from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from airflow_kstreams.streams.errors import ConfigError, TopologyError
from tests.support.kafka.registries import FLIGHT, FLIGHT_JSON, framed, new_registry, register

NAIVE = datetime.datetime.fromisoformat("2024-01-01")


def test_value_is_framed_json_when_written() -> None:
    registry = new_registry()
    serde = registry.json_schema(FLIGHT_JSON).bound("flights", "value")

    assert serde.serialize({"carrier": "UA", "delay": 3}) == framed(1, b'{"carrier":"UA","delay":3}')
    assert registry.client().get_latest_version("flights-value").schema.schema_type == "JSON"


def test_dict_is_read_when_another_program_wrote_the_bytes() -> None:
    registry = new_registry()
    schema_id = register(registry, "flights-value", FLIGHT_JSON, "JSON")
    data = framed(schema_id, b'{ "carrier": "Z\xc3\xbc" }')

    assert registry.json_schema(FLIGHT_JSON).bound("flights", "value").deserialize(data) == {"carrier": "Zü"}
    assert registry.json_schema().bound("flights", "value").deserialize(data) == {"carrier": "Zü"}


def test_readers_schema_decides_when_another_one_wrote_the_bytes() -> None:
    registry = new_registry()
    lax = register(registry, "flights-value", json.dumps({"title": "Flight", "type": "object"}), "JSON")
    serde = registry.json_schema(FLIGHT_JSON).bound("flights", "value")

    assert serde.deserialize(framed(lax, b'{"carrier":"UA","gate":1}')) == {"carrier": "UA", "gate": 1}
    with pytest.raises(ValueError, match=r"\$ breaks the rule required"):
        serde.deserialize(framed(lax, b'{"gate":1}'))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"carrier": "UA", "delay": "canary"}, '$.delay breaks the rule type: "integer"'),
        ({"delay": 3}, '$ breaks the rule required: ["carrier"]'),
        ("canary", '$ breaks the rule type: "object"'),
        ({"carrier": "UA", "extra": object()}, "does not fit the schema (TypeError)"),
    ],
)
def test_place_is_named_and_the_value_hidden_when_it_does_not_fit(value: Any, reason: str) -> None:
    serde = new_registry().json_schema(FLIGHT_JSON).bound("flights", "value")
    with pytest.raises(ValueError, match="is no value of json_schema") as caught:
        serde.serialize(value)
    assert reason in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"carrier": "UA"}', "expected 00 and a schema's id"),
        (framed(9, b"{}"), "no schema 9"),
        (framed(1, b"{,}"), "DecodeError"),
        (framed(1, b'{"carrier": 7}'), r"\$\.carrier breaks the rule type"),
        (framed(2, b"\x04UA\x00"), "schema 2 is of type AVRO, expected JSON"),
    ],
)
def test_cause_is_told_when_bytes_cannot_be_read(data: bytes, reason: str) -> None:
    registry = new_registry()
    register(registry, "flights-value", FLIGHT_JSON, "JSON")
    register(registry, "avro-value", FLIGHT, "AVRO")
    with pytest.raises(ValueError, match=reason):
        registry.json_schema(FLIGHT_JSON).bound("flights", "value").deserialize(data)


def test_subjects_by_record_need_a_title_when_asked_for() -> None:
    registry = new_registry()
    registry.json_schema(FLIGHT_JSON, subject_names="record").bound("f", "value").serialize({"carrier": "UA"})
    assert registry.client().get_subjects() == ["Flight"]
    with pytest.raises(TopologyError, match="has no name"):
        registry.json_schema('{"type": "object"}', subject_names="record")


@pytest.mark.promise("json-schema-writes-what-it-reads")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"x": float("nan")}, r"\$\.x is a number that is not finite"),
        ({"x": [1, float("-inf")]}, r"\$\.x\[1\] is a number that is not finite"),
        ({"x": b"canary"}, r"\$\.x is a bytes"),
        ({"x": ("canary",)}, r"\$\.x is a tuple"),
        ({"x": {"canary"}}, r"\$\.x is a set"),
        ({"x": NAIVE}, r"\$\.x is a datetime"),
        ({"x": Decimal("1.5")}, r"\$\.x is a Decimal"),
        ({"x": {1: 2}}, r"\$\.x is a dict"),
    ],
)
def test_value_is_refused_when_json_would_hold_another(value: Any, reason: str) -> None:
    serde = new_registry().json_schema('{"type": "object"}').bound("flights", "value")
    with pytest.raises(ValueError, match=reason) as caught:
        serde.serialize(value)
    assert "canary" not in str(caught.value)
    good: dict[str, Any] = {"x": [2**63 - 1, -(2**63), 2**70 + 1, 1.5, 1e300, None, True, "Zü", {}]}
    assert serde.deserialize(serde.serialize(good)) == good


@pytest.mark.promise("json-schema-reference-is-the-schemas-fault")
@pytest.mark.parametrize("reference", ["#/$defs/nowhere", "nowhere.json"])
def test_reference_that_leads_nowhere_is_the_schemas_fault_when_a_record_meets_it(reference: str) -> None:
    registry = new_registry()
    broken = json.dumps({"title": "Flight", "type": "object", "properties": {"to": {"$ref": reference}}})
    schema_id = register(registry, "flights-value", broken, "JSON")
    for serde in (registry.json_schema(broken), registry.json_schema()):
        with pytest.raises(ConfigError, match="refers to") as caught:
            serde.bound("flights", "value").deserialize(framed(schema_id, b'{"to": "canary"}'))
        assert "canary" not in str(caught.value)
    with pytest.raises(ConfigError, match="refers to"):
        registry.json_schema(broken).bound("flights", "value").serialize({"to": "LAX"})
