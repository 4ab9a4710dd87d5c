from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kstreams.streams.errors import ConfigError, TopologyError
from tests.support.kafka.registries import (
    FLIGHT,
    FLIGHT_2,
    FLIGHT_JSON,
    avro_string,
    framed,
    new_registry,
    register,
    zigzag,
)

UA_12 = avro_string("UA") + zigzag(12)


def test_value_is_framed_with_the_id_of_its_schema_when_written() -> None:
    registry = new_registry()
    register(registry, "another-value", FLIGHT_JSON, "JSON")

    data = registry.avro(FLIGHT).bound("flights", "value").serialize({"carrier": "UA", "delay": 12})

    registered = registry.client().get_latest_version("flights-value")
    assert registered.schema_id == 2
    assert json.loads(registered.schema.schema_str or "") == json.loads(FLIGHT)
    assert data == framed(2, UA_12)


def test_dict_is_read_when_another_program_wrote_the_bytes() -> None:
    registry = new_registry()
    schema_id = register(registry, "flights-value", FLIGHT, "AVRO")

    serde = registry.avro(FLIGHT).bound("flights", "value")

    assert serde.deserialize(framed(schema_id, UA_12)) == {"carrier": "UA", "delay": 12}


def test_record_is_read_by_the_readers_schema_when_an_older_one_wrote_it() -> None:
    registry = new_registry()
    old = register(registry, "flights-value", FLIGHT, "AVRO")

    serde = registry.avro(FLIGHT_2).bound("flights", "value")

    assert serde.deserialize(framed(old, UA_12)) == {"carrier": "UA", "delay": 12.0, "origin": "?"}


def test_record_is_read_by_the_readers_schema_when_a_newer_one_wrote_it() -> None:
    registry = new_registry()
    wider = json.dumps(
        {**json.loads(FLIGHT), "fields": [*json.loads(FLIGHT)["fields"], {"name": "gate", "type": "string"}]}
    )
    new = register(registry, "flights-value", wider, "AVRO")

    serde = registry.avro(FLIGHT).bound("flights", "value")

    assert serde.deserialize(framed(new, UA_12 + avro_string("C3"))) == {"carrier": "UA", "delay": 12}


def test_each_record_is_read_as_it_was_written_when_no_schema_is_given() -> None:
    registry = new_registry()
    old = register(registry, "flights-value", FLIGHT, "AVRO")
    new = register(registry, "flights-value", FLIGHT_2, "AVRO")

    serde = registry.avro().bound("flights", "value")

    assert serde.deserialize(framed(old, UA_12)) == {"carrier": "UA", "delay": 12}
    assert serde.deserialize(framed(new, avro_string("UA") + zigzag(0) + avro_string("JFK"))) == {
        "carrier": "UA",
        "delay": None,
        "origin": "JFK",
    }
    with pytest.raises(ConfigError, match="no schema to write the values of topic 'flights'"):
        serde.serialize({"carrier": "UA"})


def test_key_and_value_have_subjects_of_their_own_when_subjects_are_named_by_topic() -> None:
    registry = new_registry()
    serde = registry.avro(FLIGHT)

    serde.bound("flights", "key").serialize({"carrier": "UA"})
    serde.bound("app-totals-changelog", "value").serialize({"carrier": "UA"})

    assert sorted(registry.client().get_subjects()) == ["app-totals-changelog-value", "flights-key"]


@pytest.mark.parametrize(
    ("subject_names", "subject"), [("record", "demo.Flight"), ("topic_record", "flights-demo.Flight")]
)
def test_subject_is_named_by_record_when_asked(subject_names: Any, subject: str) -> None:
    registry = new_registry()
    serde = registry.avro(FLIGHT, subject_names=subject_names).bound("flights", "value")

    data = serde.serialize({"carrier": "UA"})

    assert registry.client().get_subjects() == [subject]
    assert serde.deserialize(data) == {"carrier": "UA", "delay": 0}


def test_latest_registered_schema_writes_and_reads_when_asked_for() -> None:
    registry = new_registry()
    old = register(registry, "flights-value", FLIGHT, "AVRO")
    new = register(registry, "flights-value", FLIGHT_2, "AVRO")

    serde = registry.avro(use_latest_version=True).bound("flights", "value")

    assert serde.serialize({"carrier": "UA", "delay": None}) == framed(
        new, avro_string("UA") + zigzag(0) + avro_string("?")
    )
    assert serde.deserialize(framed(old, UA_12)) == {"carrier": "UA", "delay": 12.0, "origin": "?"}


def test_nothing_is_registered_when_registration_is_off() -> None:
    registry = new_registry()
    serde = registry.avro(FLIGHT, auto_register_schemas=False).bound("flights", "value")

    with pytest.raises(ConfigError, match="does not take avro") as caught:
        serde.serialize({"carrier": "UA"})

    assert "register the schema first" in caught.value.fix
    assert registry.client().get_subjects() == []
    schema_id = register(registry, "flights-value", FLIGHT, "AVRO")
    assert serde.serialize({"carrier": "UA", "delay": 12}) == framed(schema_id, UA_12)


def test_latest_version_is_refused_with_a_remedy_when_none_is_registered() -> None:
    registry = new_registry()
    serde = registry.avro(use_latest_version=True).bound("flights", "value")
    elsewhere = register(registry, "other-value", FLIGHT, "AVRO")

    with pytest.raises(ConfigError, match="for the values of topic 'flights'"):
        serde.serialize({"carrier": "UA"})
    with pytest.raises(ConfigError, match="for the values of topic 'flights'"):
        serde.deserialize(framed(elsewhere, UA_12))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"delay": 3}, "demo.Flight.carrier must be string"),
        ({"carrier": "UA", "delay": "canary"}, "demo.Flight.delay must be long"),
        ({"carrier": "UA", "delay": 2**70}, "demo.Flight.delay must be long"),
        ({"carrier": "UA", "dely": "canary"}, "more fields than the schema specifies: dely"),
        ("canary", "the value must be demo.Flight"),
    ],
)
def test_field_is_named_and_the_value_hidden_when_it_does_not_fit(value: Any, reason: str) -> None:
    serde = new_registry().avro(FLIGHT).bound("flights", "value")
    with pytest.raises(ValueError, match="is no value of avro") as caught:
        serde.serialize(value)
    assert reason in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_types_of_a_union_are_named_when_none_fits() -> None:
    serde = new_registry().avro(FLIGHT_2).bound("flights", "value")
    with pytest.raises(ValueError, match=r"demo\.Flight\.delay must be null or double$"):
        serde.serialize({"carrier": "UA", "delay": "canary"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"carrier": "UA"}', r"begin with 7b 22 63 61 72, expected 00 and a schema's id"),
        (b"", "there are none, expected 00"),
        (b"\x00\x00", "begin with 00 00, expected 00 and a schema's id"),
        (b"{}", "begin with 7b 7d"),
        (framed(77, b"x"), "the registry has no schema 77, found in the bytes"),
        (framed(1, b"\x08U"), "EOFError"),
        (framed(2, b'{"carrier": "UA"}'), "schema 2 is of type JSON, expected AVRO"),
        (framed(3, avro_string("JFK")), "SchemaResolutionError"),
    ],
)
def test_cause_is_told_when_bytes_cannot_be_read(data: bytes, reason: str) -> None:
    registry = new_registry()
    register(registry, "flights-value", FLIGHT, "AVRO")
    register(registry, "json-value", FLIGHT_JSON, "JSON")
    airport = '{"type": "record", "name": "Airport", "fields": [{"name": "code", "type": "string"}]}'
    register(registry, "airports-value", airport, "AVRO")
    serde = registry.avro(FLIGHT).bound("flights", "value")

    with pytest.raises(ValueError, match=reason) as caught:
        serde.deserialize(data)
    assert "\n" not in str(caught.value)


def test_guid_is_understood_when_it_stands_in_place_of_the_id() -> None:
    registry = new_registry()
    register(registry, "flights-value", FLIGHT, "AVRO")
    guid = registry.client().get_latest_version("flights-value").guid or ""

    serde = registry.avro(FLIGHT).bound("flights", "value")

    data = b"\x01" + bytes.fromhex(guid.replace("-", "")) + UA_12
    assert serde.deserialize(data) == {"carrier": "UA", "delay": 12}


def test_primitive_types_need_no_record_when_a_key_is_one() -> None:
    serde = new_registry().avro('"string"').bound("flights", "key")
    assert serde.serialize("UA") == framed(1, avro_string("UA"))
    assert serde.deserialize(framed(1, avro_string("UA"))) == "UA"


def test_schema_is_refused_with_the_users_line_when_it_is_no_json() -> None:
    with pytest.raises(TopologyError, match=r"avro at .*test_avro\.py:\d+ is given a text that is no JSON"):
        new_registry().avro("record Flight {}")
    with pytest.raises(TopologyError, match=r"avro at .*test_avro\.py:\d+ is given dict"):
        new_registry().avro({"type": "record"})  # type: ignore[arg-type]


def test_schema_is_refused_by_the_task_when_it_is_no_avro() -> None:
    serde = new_registry().avro('{"type": "enum", "name": "Flight"}').bound("flights", "value")
    with pytest.raises(ConfigError, match=r"the schema of the serde avro\(Flight, .*\) is not valid: "):
        serde.serialize({})


def test_subjects_by_record_are_refused_when_the_schema_has_no_name() -> None:
    with pytest.raises(TopologyError, match="names subjects by record, but its schema has no name"):
        new_registry().avro('["null", "string"]', subject_names="record")
    with pytest.raises(TopologyError, match="subject_names='recrod'"):
        new_registry().avro(FLIGHT, subject_names="recrod")  # type: ignore[arg-type]
