from __future__ import annotations

import base64

import pytest

from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams.errors import TopologyError
from tests.support.kafka.registries import (
    FLIGHT,
    flight_file,
    framed,
    message_class,
    new_registry,
    register,
    zigzag,
)

#: Field 1 is the text UA, field 2 the number 12.
UA_12 = b"\x0a\x02UA\x10\x0c"
#: Path of the message in its file: length of the path, then its indexes.
SECOND_MESSAGE = zigzag(1) + zigzag(1)
NESTED_MESSAGE = zigzag(2) + zigzag(1) + zigzag(0)


def flight_schema(registry: SchemaRegistry, version: int = 1) -> int:
    text = base64.b64encode(flight_file(version).SerializeToString()).decode()
    return register(registry, f"flights-{version}", text, "PROTOBUF")


def test_value_is_framed_with_its_messages_index_when_written() -> None:
    registry = new_registry()
    flight = message_class("Flight")
    serde = registry.protobuf(flight).bound("flights", "value")

    assert serde.serialize(flight(carrier="UA", delay=12)) == framed(1, SECOND_MESSAGE + UA_12)
    assert registry.client().get_latest_version("flights-value").schema.schema_type == "PROTOBUF"


def test_one_zero_stands_for_the_index_when_the_message_is_the_first() -> None:
    airport = message_class("Airport")
    serde = new_registry().protobuf(airport).bound("airports", "value")
    data = framed(1, b"\x00" + b"\x0a\x03JFK")
    assert serde.serialize(airport(code="JFK")) == data
    assert serde.deserialize(data) == airport(code="JFK")


def test_index_is_a_path_when_the_message_is_inside_another() -> None:
    leg = message_class("Flight.Leg")
    serde = new_registry().protobuf(leg).bound("legs", "value")
    data = framed(1, NESTED_MESSAGE + b"\x0a\x03LAX")
    assert serde.serialize(leg(to="LAX")) == data
    assert serde.deserialize(data) == leg(to="LAX")


def test_message_is_read_when_another_program_wrote_the_bytes() -> None:
    registry = new_registry()
    schema_id = flight_schema(registry)
    flight = message_class("Flight")
    serde = registry.protobuf(flight).bound("flights", "value")

    message = serde.deserialize(framed(schema_id, SECOND_MESSAGE + UA_12))

    assert isinstance(message, flight)
    assert (message.carrier, message.delay) == ("UA", 12)


def test_new_field_has_its_default_when_an_older_version_wrote_the_message() -> None:
    registry = new_registry()
    old = flight_schema(registry)
    serde = registry.protobuf(message_class("Flight", version=2)).bound("flights", "value")
    message = serde.deserialize(framed(old, SECOND_MESSAGE + UA_12))
    assert (message.carrier, message.delay, message.origin) == ("UA", 12, "")


def test_unknown_field_is_kept_aside_when_a_newer_version_wrote_the_message() -> None:
    registry = new_registry()
    new = flight_schema(registry, version=2)
    serde = registry.protobuf(message_class("Flight")).bound("flights", "value")
    message = serde.deserialize(framed(new, SECOND_MESSAGE + UA_12 + b"\x22\x03JFK"))
    assert (message.carrier, message.delay) == ("UA", 12)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00" + b"\x0a\x02UA", "found a message demo.Airport, expected demo.Flight"),
        (NESTED_MESSAGE + b"\x0a\x02UA", "found a message demo.Flight.Leg, expected demo.Flight"),
        (zigzag(1) + zigzag(5) + UA_12, r"has no message at index \[5\]"),
        (SECOND_MESSAGE + b"\x0a\x09UA", "Error parsing message|DecodeError|SerializationError"),
    ],
)
def test_cause_is_told_when_bytes_are_of_another_message(payload: bytes, reason: str) -> None:
    registry = new_registry()
    schema_id = flight_schema(registry)
    serde = registry.protobuf(message_class("Flight")).bound("flights", "value")
    # A good one first: what is known of one message says nothing of another.
    serde.deserialize(framed(schema_id, SECOND_MESSAGE + UA_12))
    with pytest.raises(ValueError, match=reason):
        serde.deserialize(framed(schema_id, payload))


def test_cause_is_told_when_the_schema_is_of_another_format() -> None:
    registry = new_registry()
    schema_id = register(registry, "avro-value", FLIGHT, "AVRO")
    serde = registry.protobuf(message_class("Flight")).bound("flights", "value")
    with pytest.raises(ValueError, match=f"schema {schema_id} is of type AVRO, expected PROTOBUF"):
        serde.deserialize(framed(schema_id, SECOND_MESSAGE + UA_12))
    with pytest.raises(ValueError, match="no schema 99"):
        serde.deserialize(framed(99, SECOND_MESSAGE + UA_12))
    with pytest.raises(ValueError, match="expected 00 and a schema's id"):
        serde.deserialize(b"\x0a\x02UA\x10\x0c")


def test_class_is_named_when_the_value_is_of_another() -> None:
    serde = new_registry().protobuf(message_class("Flight")).bound("flights", "value")
    with pytest.raises(ValueError, match=r"a dict is no value of .*: expected a message demo\.Flight$"):
        serde.serialize({"carrier": "UA"})


def test_argument_is_refused_with_the_users_line_when_it_is_no_message_class() -> None:
    with pytest.raises(TopologyError, match=r"protobuf at .*test_protobuf\.py:\d+ is given"):
        new_registry().protobuf(dict)  # type: ignore[type-var]
    with pytest.raises(TopologyError, match=r"protobuf at .*test_protobuf\.py:\d+ is given"):
        new_registry().protobuf(message_class("Flight")())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delay", 2**63),
        ("delay", -(2**63) - 1),
        ("delay", 1.9),
        ("delay", "3"),
        ("carrier", 5),
        ("carrier", "\ud800"),
    ],
)
def test_value_is_refused_by_the_message_itself_when_it_does_not_fit(field: str, value: object) -> None:
    flight = message_class("Flight")
    with pytest.raises((TypeError, ValueError)):
        setattr(flight(), field, value)
    kind = new_registry().protobuf(flight).bound("flights", "value")
    border = flight(carrier="", delay=2**63 - 1)
    assert kind.deserialize(kind.serialize(border)) == border
