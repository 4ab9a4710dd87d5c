"""Registry serdes against the wire format written by hand, for any record."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kafka.registries import (
    FLIGHT,
    FLIGHT_JSON,
    avro_string,
    framed,
    message_class,
    new_registry,
    zigzag,
)

_REGISTRY = new_registry()
_AVRO = _REGISTRY.avro(FLIGHT).bound("avro", "value")
_JSON = _REGISTRY.json_schema(FLIGHT_JSON).bound("json", "value")
_FLIGHT = message_class("Flight")
_PROTOBUF = _REGISTRY.protobuf(_FLIGHT).bound("protobuf", "value")

texts = st.text(st.characters(exclude_categories=["Cs"]))
longs = st.integers(-(2**63), 2**63 - 1)


def schema_id(topic: str) -> int:
    return _REGISTRY.client().get_latest_version(f"{topic}-value").schema_id or 0


@given(carrier=texts, delay=longs)
def test_avro_agrees_with_the_format_by_hand_when_written_and_read(carrier: str, delay: int) -> None:
    value = {"carrier": carrier, "delay": delay}
    data = _AVRO.serialize(value)
    assert data == framed(schema_id("avro"), avro_string(carrier) + zigzag(delay))
    assert _AVRO.deserialize(data) == value


@given(carrier=texts, delay=longs)
def test_json_agrees_with_the_format_by_hand_when_written_and_read(carrier: str, delay: int) -> None:
    value = {"carrier": carrier, "delay": delay}
    data = _JSON.serialize(value)
    assert data[:5] == framed(schema_id("json"), b"")
    assert msgspec.json.decode(data[5:]) == value
    assert _JSON.deserialize(data) == value


@given(carrier=texts, delay=longs, seats=st.dictionaries(texts, longs, max_size=5))
def test_protobuf_is_written_in_one_way_when_a_message_holds_a_map(
    carrier: str, delay: int, seats: dict[str, int]
) -> None:
    data = _PROTOBUF.serialize(_FLIGHT(carrier=carrier, delay=delay, seats=seats))
    backwards = _FLIGHT(carrier=carrier, delay=delay, seats=dict(reversed(seats.items())))
    assert _PROTOBUF.serialize(backwards) == data
    read = _PROTOBUF.deserialize(data)
    assert (read.carrier, read.delay, dict(read.seats)) == (carrier, delay, seats)
