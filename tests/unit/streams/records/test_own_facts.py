"""Facts of the program stay readable in errors and dead letters, and data of records is masked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pydantic
import pytest

from airflow_kstreams.batch.inspect.dead_letters import Fate, SeenLetter
from airflow_kstreams.batch.replay.selection import Letter
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.dead_letter_format import facts_of
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.kafka.registries import FLIGHT, FLIGHT_JSON, framed, message_class, new_registry, register

pytestmark = pytest.mark.promise("errors-hold-no-values")

LIMITED = json.dumps({"title": "Fare", "properties": {"cents": {"maximum": 1234}}})


class Order2024(msgspec.Struct):
    code: str


class Fare2024(pydantic.BaseModel):
    code: int


def _failed(builder: KStreamBuilder, topic: str, value: bytes | None) -> str:
    """Return the error of the task that reads a value."""
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError) as caught,
    ):
        driver.pipe_bytes(topic, key=b"canary", value=value, timestamp_ms=0)
    return caught.value.cause


def _reading(serde: Serde[Any], data: bytes) -> str:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=serde).send_to("out", value_serde=serde)
    return _failed(builder, "in", data)


def _writing(serde: Serde[Any], value: Any) -> str:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.bytes())
    builder.stream("in").map_values(lambda _: value).send_to("out", value_serde=serde)
    return _failed(builder, "in", b"")


def _unknown_id() -> tuple[str, str]:
    return _reading(new_registry().avro(FLIGHT), framed(4711, b"canary")), (
        "the registry has no schema 4711, found in the bytes"
    )


def _hash() -> tuple[str, str]:
    serde = new_registry().avro(FLIGHT)
    return _writing(serde, {"carrier": 987654}), f"{serde.id}: demo.Flight.carrier must be string"


def _surplus() -> tuple[str, str]:
    serde = new_registry().avro(FLIGHT)
    said = _writing(serde, {"carrier": "UA", "card 987654": 1, "'canary'": 2})
    return said, "has more fields than the schema specifies: '***', card ***"


def _rule() -> tuple[str, str]:
    return _writing(new_registry().json_schema(LIMITED), {"cents": 987654}), (
        "$.cents breaks the rule maximum: 1234"
    )


def _rule_read() -> tuple[str, str]:
    registry = new_registry()
    at = register(registry, "in-value", LIMITED, "JSON")
    return _reading(registry.json_schema(LIMITED), framed(at, b'{"cents": 987654}')), (
        "$.cents breaks the rule maximum: 1234"
    )


def _message() -> tuple[str, str]:
    registry = new_registry()
    airport = message_class("Airport")
    data = registry.protobuf(airport).bound("in", "value").serialize(airport(code="canary"))
    return _reading(registry.protobuf(message_class("Flight")), data), "expected demo.Flight"


def _type() -> tuple[str, str]:
    registry = new_registry()
    at = register(registry, "in-value", FLIGHT_JSON, "JSON")
    return _reading(
        registry.avro(FLIGHT), framed(at, b"canary")
    ), f"schema {at} is of type JSON, expected AVRO"


def _written_class() -> tuple[str, str]:
    return _writing(serdes.of(Order2024), "canary"), "serdes.of(Order2024) takes Order2024, got str"


def _read_model() -> tuple[str, str]:
    return _reading(serdes.of(Fare2024), b'{"code": "987654x canary"}'), "the bytes hold no Fare2024: code: "


def _global_table() -> tuple[str, str]:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.bytes())
    table = builder.global_table("rates-2024", value_serde=serdes.json())
    builder.stream("in").join(table, lambda one, _: one, key=lambda key, _: key).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_bytes("rates-2024", key=b"987654", value=b"{canary", timestamp_ms=0)
        with pytest.raises(RecordError) as caught:
            driver.pipe_bytes("in", key=b"987654", value=b"", timestamp_ms=0)
    return caught.value.cause, "in the global table of 'rates-2024' cannot be read"


KINDS = [
    _unknown_id,
    _hash,
    _surplus,
    _rule,
    _rule_read,
    _message,
    _type,
    _written_class,
    _read_model,
    _global_table,
]


@pytest.mark.parametrize("kind", KINDS)
def test_facts_of_the_program_are_shown_and_data_is_not(kind: Callable[[], tuple[str, str]]) -> None:
    said, fact = kind()
    assert fact in said
    assert "canary" not in said
    assert "987654" not in said


def test_message_of_a_dead_letter_is_shown_when_it_is_in_the_engines_own_words() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    serde = new_registry().json_schema(LIMITED)
    builder.stream("in", value_serde=serde).map_values(lambda value: int(value["cents"])).send_to(
        "out", value_serde=serdes.int64()
    )
    settings = {"deserialization.exception.handler": "dead-letter"}
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        driver.pipe_bytes("in", key=b"a", value=framed(4711, b"canary"), timestamp_ms=0)
        (sent,) = driver.read_output("app-dead-letter")
    facts = facts_of(sent.headers)[0]
    letter = SeenLetter(Letter(cast("Record", sent), facts, None), Fate.WAITING)
    told = letter.facts(values=False)
    assert told["message"] == facts["message"]
    assert "the registry has no schema 4711" in told["message"]
    of_user = {**facts, "exception": "builtins.KeyError", "message": "'canary 987654'"}
    hidden = SeenLetter(Letter(cast("Record", sent), of_user, None), Fate.WAITING).facts(values=False)
    assert hidden["message"] == "'***'"
