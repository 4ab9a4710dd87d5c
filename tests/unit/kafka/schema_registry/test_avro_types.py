"""Every type of Avro at its borders, alone, in a record, in a union, an array and a map."""

from __future__ import annotations

import datetime
import json
import math
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest

from airflow_kstreams.kafka.schema_registry.avro_reading import ResolvingDeserializer
from airflow_kstreams.kafka.schema_registry.avro_writing import TESTED_CLIENT, FittingSerializer
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.serde.base import Serde
from tests.support.kafka.registries import new_registry

UTC = datetime.UTC
#: Two in the night, which the clocks of Berlin leave out.
NAIVE = datetime.datetime.fromisoformat("2024-03-31T02:30")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)


def logical(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


MILLIS = logical("long", "timestamp-millis")
MICROS = logical("long", "timestamp-micros")
LOCAL = logical("long", "local-timestamp-millis")
DATE = logical("int", "date")
UUID = logical("string", "uuid")
DECIMAL = logical("bytes", "decimal", precision=4, scale=2)
FIXED_DECIMAL = logical("fixed", "decimal", precision=2, scale=0, name="Cents", size=1)
FIXED = {"type": "fixed", "name": "Code", "size": 2}
ENUM = {"type": "enum", "name": "Side", "symbols": ["A", "B"]}
LEG = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}

FITS: list[tuple[Any, list[Any]]] = [
    ("boolean", [True, False]),
    ("int", [-(2**31), 2**31 - 1]),
    ("long", [-(2**63), 2**63 - 1]),
    ("float", [0.0, 2.0**-149, 2.0**128 - 2.0**104, math.inf, -math.inf, 2**24]),
    ("double", [0.0, 5e-324, 1.7976931348623157e308, math.inf, 2**53]),
    ("string", ["", "Zü", "\U0001f600"]),
    ("bytes", [b"", b"\xff\x00"]),
    (FIXED, [b"\x00\xff"]),
    (ENUM, ["A", "B"]),
    ({"type": "array", "items": "int"}, [[], [2**31 - 1]]),
    ({"type": "map", "values": "int"}, [{}, {"Zü": -(2**31)}]),
    (LEG, [{"to": ""}]),
    (MILLIS, [NOON, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)]),
    (MICROS, [datetime.datetime(1, 1, 1, tzinfo=UTC), datetime.datetime.max.replace(tzinfo=UTC)]),
    (LOCAL, [NAIVE]),
    (DATE, [datetime.date.min, datetime.date.max]),
    (logical("int", "time-millis"), [datetime.time(0), datetime.time(23, 59, 59, 999000)]),
    (logical("long", "time-micros"), [datetime.time.max]),
    (UUID, [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]),
    (DECIMAL, [Decimal("99.99"), Decimal("-99.99"), Decimal(0)]),
    (FIXED_DECIMAL, [Decimal(99), Decimal(-99)]),
]

#: Schema, value, words of the reason.
MISFITS: list[tuple[Any, Any, str]] = [
    ("null", 0, "null"),
    ("boolean", "false", "boolean"),
    ("boolean", 1, "boolean"),
    ("boolean", None, "boolean"),
    ("int", 2**31, "int, of 32 bits"),
    ("int", -(2**31) - 1, "int, of 32 bits"),
    ("int", True, "int"),
    ("int", 1.0, "int"),
    ("long", 1.9, "long"),
    ("long", 2**63, "long, of 64 bits"),
    ("long", -(2**63) - 1, "long, of 64 bits"),
    ("long", False, "long"),
    ("long", Decimal("1.5"), "long"),
    ("float", 1e300, "float, which has no number of that size"),
    ("float", 2.0**128 - 2.0**103, "float, which has no number of that size"),
    ("float", 1e-300, "float, which has no number of that size"),
    ("float", 2**24 + 1, "float, which does not hold a whole number"),
    ("float", 10**400, "float, which has no number"),
    ("float", True, "float"),
    ("double", 2**53 + 1, "double, which does not hold a whole number"),
    ("double", 10**400, "double, which has no number"),
    ("double", "1.5", "double"),
    ("double", Decimal("1.1"), "double"),
    ("string", b"canary", "string"),
    ("string", "canary\ud800", "half of a surrogate pair"),
    ("bytes", "canary", "bytes"),
    ("bytes", memoryview(b"canary"), "bytes"),
    (FIXED, b"x", "Code, of 2 bytes"),
    (FIXED, "ab", "Code"),
    (ENUM, "canary", "Side, one of its symbols"),
    (ENUM, 0, "Side"),
    ({"type": "array", "items": "string"}, "canary", "array"),
    ({"type": "array", "items": "int"}, b"canary", "array"),
    ({"type": "array", "items": "int"}, {1}, "array"),
    ({"type": "array", "items": "int"}, [1, 2**31], "int, of 32 bits"),
    ({"type": "map", "values": "int"}, {1: 1}, "a key of .* must be string"),
    ({"type": "map", "values": "int"}, {"a": 1.5}, "int"),
    ({"type": "map", "values": "int"}, [("a", 1)], "map"),
    (LEG, [], "Leg"),
    (MILLIS, NAIVE, "timestamp-millis, a datetime with a zone"),
    (MICROS, NAIVE, "timestamp-micros, a datetime with a zone"),
    (MILLIS, 1.5, "long"),
    (MILLIS, datetime.date(2024, 1, 1), "long"),
    (LOCAL, NOON, "local-timestamp-millis, a datetime without a zone"),
    (DATE, NOON, "date, a date"),
    (DATE, "canary", "date, as in"),
    (logical("int", "time-millis"), 86_400_000, "time-millis, a time of one day"),
    (logical("int", "time-millis"), -1, "time-millis, a time of one day"),
    (logical("long", "time-micros"), datetime.time(1, tzinfo=UTC), "time-micros, a time without a zone"),
    (UUID, "canary", "uuid, as in"),
    (UUID, 5, "uuid"),
    (DECIMAL, Decimal(100), "decimal.4, 2., which has fewer digits"),
    (DECIMAL, Decimal("1E+3"), "decimal.4, 2., which has fewer digits"),
    (DECIMAL, Decimal("1.001"), "fewer digits after the point"),
    (DECIMAL, Decimal("NaN"), "a finite number"),
    (DECIMAL, Decimal("-Infinity"), "a finite number"),
    (DECIMAL, 1.5, "decimal"),
    (DECIMAL, (12345).to_bytes(3, "big"), "fewer digits"),
    (FIXED_DECIMAL, Decimal(-100), "fewer digits"),
]


@pytest.fixture(params=["UTC", "America/New_York"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def serde_of(schema: Any, **options: Any) -> Serde:
    return new_registry().avro(json.dumps(schema), **options).bound("flights", "value")


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "demo.R", "fields": [{"name": "f", "type": kind, **more}]}


def again(serde: Serde, value: Any) -> Any:
    return serde.deserialize(serde.serialize(value))


def read_as(written: Any, reader: Any, value: Any, **options: Any) -> Any:
    registry = new_registry()
    data = registry.avro(json.dumps(written)).bound("flights", "value").serialize(value)
    return registry.avro(json.dumps(reader), **options).bound("flights", "value").deserialize(data)


@pytest.mark.parametrize(("kind", "values"), FITS, ids=lambda part: json.dumps(part, default=str)[:40])
def test_value_at_the_border_of_its_type_is_the_same_when_written_and_read(
    kind: Any, values: list[Any]
) -> None:
    shapes = [record(kind), record({"type": "array", "items": kind}), record({"type": "map", "values": kind})]
    in_field, in_array, in_map = map(serde_of, shapes)
    in_union = serde_of(record(["null", kind]))
    for value in values:
        assert again(in_field, {"f": value}) == {"f": value}
        assert again(in_array, {"f": [value]}) == {"f": [value]}
        assert again(in_map, {"f": {"k": value}}) == {"f": {"k": value}}
        assert again(in_union, {"f": value}) == {"f": value}
    assert again(in_union, {"f": None}) == {"f": None}


@pytest.mark.promise("avro-writes-what-fits")
@pytest.mark.parametrize(
    ("kind", "value", "reason"), MISFITS, ids=lambda part: repr(part)[:40].partition(" at 0x")[0]
)
def test_value_is_refused_by_its_field_and_type_when_it_does_not_fit(
    kind: Any, value: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match="must be ") as alone:
        serde_of(record(kind)).serialize({"f": value})
    assert alone.match(reason)
    assert alone.match(r"demo\.R\.f|Leg")
    assert "canary" not in str(alone.value)
    for shape, given in (
        (["null", kind] if kind != "null" else ["null", "int"], value if kind != "null" else "canary"),
        ({"type": "array", "items": kind}, [value]),
        ({"type": "map", "values": kind}, {"k": value}),
    ):
        if given is None:
            continue
        with pytest.raises(ValueError, match=r"demo\.R\.f.* must be ") as inside:
            serde_of(record(shape)).serialize({"f": given})
        assert "canary" not in str(inside.value)


@pytest.mark.parametrize("value", ["canary", 5, bytearray(b"ok")])
def test_bytes_alone_take_bytes_when_a_topic_holds_nothing_else(value: Any) -> None:
    serde = serde_of("bytes")
    if isinstance(value, bytearray):
        assert again(serde, value) == b"ok"
    else:
        with pytest.raises(ValueError, match="the value must be bytes"):
            serde.serialize(value)
    assert again(serde, b"") == b""
    assert again(serde_of(DECIMAL), Decimal("1.50")) == Decimal("1.50")


@pytest.mark.usefixtures("_zone")
def test_time_of_the_executors_zone_is_never_taken_when_a_datetime_has_none() -> None:
    serde = serde_of(record(MILLIS))
    with pytest.raises(ValueError, match=r"demo\.R\.f must be timestamp-millis, a datetime with a zone"):
        serde.serialize({"f": NAIVE})
    east = NOON.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    assert serde.serialize({"f": east}) == serde.serialize({"f": NOON})
    assert again(serde_of(record(LOCAL)), {"f": NOON.replace(tzinfo=None)}) == {
        "f": NOON.replace(tzinfo=None)
    }


@pytest.mark.parametrize(
    ("kind", "default", "meant"),
    [
        ("bytes", "\u00ff", b"\xff"),
        (FIXED, "ab", b"ab"),
        ("double", 1, 1.0),
        (["bytes", "null"], "\u0001", b"\x01"),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        (LEG, {"to": "LAX"}, {"to": "LAX"}),
        (MILLIS, 0, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (DECIMAL, "\u0001", Decimal("0.01")),
    ],
    ids=str,
)
def test_default_is_the_same_when_the_writer_left_it_out_or_did_not_know_it(
    kind: Any, default: Any, meant: Any
) -> None:
    schema = record(kind, default=default)
    assert again(serde_of(schema), {}) == {"f": meant}
    older = {"type": "record", "name": "demo.R", "fields": []}
    assert read_as(older, schema, {}) == {"f": meant}


def test_default_of_one_record_is_not_another_records_when_a_function_edits_it() -> None:
    registry = new_registry()
    older = {"type": "record", "name": "demo.R", "fields": []}
    data = registry.avro(json.dumps(older)).bound("flights", "value").serialize({})
    newer = record({"type": "array", "items": "int"}, default=[])
    serde = registry.avro(json.dumps(newer)).bound("flights", "value")
    serde.deserialize(data)["f"].append(1)
    assert serde.deserialize(data) == {"f": []}


def test_record_that_holds_itself_is_checked_to_its_end() -> None:
    tree = {
        "type": "record",
        "name": "demo.Tree",
        "fields": [
            {"name": "at", "type": MILLIS},
            {"name": "below", "type": {"type": "array", "items": "demo.Tree"}, "default": []},
        ],
    }
    serde = serde_of(tree)
    value = {"at": NOON, "below": [{"at": NOON, "below": [{"at": NOON, "below": []}]}]}
    assert again(serde, value) == value
    value["below"][0]["below"][0]["at"] = NOON.replace(tzinfo=None)  # type: ignore[index]
    with pytest.raises(ValueError, match=r"demo\.Tree\.at must be timestamp-millis"):
        serde.serialize(value)


def test_type_named_in_another_field_is_checked_there_too() -> None:
    schema = record(ENUM)
    schema["fields"].append({"name": "g", "type": ["null", "demo.Side"]})
    schema["fields"][0]["type"] = {**ENUM, "name": "demo.Side"}
    serde = serde_of(schema)
    assert again(serde, {"f": "A", "g": "B"}) == {"f": "A", "g": "B"}
    with pytest.raises(ValueError, match=r"demo\.R\.g must be .*demo\.Side"):
        serde.serialize({"f": "A", "g": "canary"})


def test_schema_of_another_subject_is_checked_when_the_latest_version_refers_to_it() -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    registry = new_registry()
    client = registry.client()
    client.register_schema("legs", Schema(json.dumps({**LEG, "name": "demo.Leg"}), "AVRO"))
    reference = SchemaReference("demo.Leg", "legs", 1)
    client.register_schema("flights-value", Schema(json.dumps(record("demo.Leg")), "AVRO", [reference]))
    serde = registry.avro(use_latest_version=True).bound("flights", "value")
    assert again(serde, {"f": {"to": "LAX"}}) == {"f": {"to": "LAX"}}
    with pytest.raises(ValueError, match=r"demo\.Leg\.to must be string"):
        serde.serialize({"f": {"to": 5}})


CLICK, VIEW = ({**LEG, "name": f"demo.{name}"} for name in ("Click", "View"))


@pytest.mark.promise("avro-names-its-events")
@pytest.mark.parametrize("events", [[CLICK, VIEW], ["null", CLICK, VIEW]], ids=["two", "two or null"])
def test_event_keeps_its_type_when_a_union_has_two_of_one_shape(events: Any) -> None:
    alone, inside = serde_of(events), serde_of(record(events))
    for name in ("demo.Click", "demo.View"):
        event = {"-type": name, "to": "LAX"}
        assert again(alone, event) == event
        assert again(alone, (name, {"to": "LAX"})) == event
        assert again(inside, {"f": event}) == {"f": event}
        assert again(alone, {**again(alone, event), "to": "JFK"}) == {"-type": name, "to": "JFK"}
    assert alone.serialize({"-type": "demo.Click", "to": ""}) != alone.serialize(
        {"-type": "demo.View", "to": ""}
    )
    with pytest.raises(ValueError, match=r"demo\.Click or demo\.View"):
        alone.serialize({"-type": "demo.Canary", "to": "LAX"})


def test_event_goes_to_a_topic_of_its_own_when_its_type_is_that_topics() -> None:
    assert again(serde_of(CLICK), {"-type": "demo.Click", "to": "LAX"}) == {"to": "LAX"}
    with pytest.raises(ValueError, match="its -type names another record"):
        serde_of(CLICK).serialize({"-type": "demo.View", "to": "LAX"})


def test_event_has_its_type_when_a_topic_was_written_before_it_had_two() -> None:
    assert read_as(CLICK, [CLICK, VIEW], {"to": "LAX"}) == {"-type": "demo.Click", "to": "LAX"}
    assert read_as([CLICK, VIEW], CLICK, ("demo.Click", {"to": "LAX"})) == {"to": "LAX"}


def test_record_stays_as_it_is_when_its_union_has_no_other() -> None:
    serde = serde_of({**record(["null", CLICK]), "name": "demo.One"})
    assert again(serde, {"f": {"to": "LAX"}}) == {"f": {"to": "LAX"}}
    both = {
        "type": "record",
        "name": "demo.Both",
        "fields": [
            {"name": "one", "type": ["null", CLICK]},
            {"name": "any", "type": ["null", "demo.Click", VIEW]},
        ],
    }
    value = {"one": {"to": "LAX"}, "any": {"-type": "demo.View", "to": "JFK"}}
    assert again(serde_of(both), value) == value


def test_event_keeps_its_type_when_the_reader_defines_it_elsewhere() -> None:
    events = {"type": "record", "name": "demo.Events", "fields": [{"name": "any", "type": [CLICK, VIEW]}]}
    newer = {
        **events,
        "fields": [
            {"name": "last", "type": ["null", VIEW], "default": None},
            {"name": "any", "type": [CLICK, "demo.View"]},
        ],
    }
    event = {"-type": "demo.View", "to": "LAX"}
    assert read_as(events, newer, {"any": event}) == {"last": None, "any": event}
    value = {"last": {"to": "JFK"}, "any": event}
    assert read_as(newer, events, value) == {"any": event}


def test_record_and_map_are_told_apart_when_a_union_has_both() -> None:
    timed = {"type": "record", "name": "demo.Timed", "fields": [{"name": "at", "type": MILLIS}]}
    written = {**timed, "fields": [{"name": "at", "type": "long"}]}
    shape = ["null", {"type": "map", "values": "long"}]
    for value, read in (({"at": 0, "to": 1}, {"at": 0, "to": 1}), (("demo.Timed", {"at": 0}), {"at": EPOCH})):
        assert read_as(record([*shape, written]), record([*shape, timed]), {"f": value}) == {"f": read}


@pytest.mark.parametrize("value", [numpy.float64(0.1), numpy.float32(0.1), Fraction(1, 3)], ids=repr)
def test_number_of_another_library_is_rounded_as_a_float_is(value: Any) -> None:
    assert again(serde_of(record("float")), {"f": value})["f"] == pytest.approx(float(value), rel=1e-7)
    assert again(serde_of(record("double")), {"f": value}) == {"f": float(value)}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (FittingSerializer, "_get_reader_schema"),
        (ResolvingDeserializer, "_get_writer_schema"),
        (ResolvingDeserializer, "_get_parsed_schema"),
    ],
)
def test_nothing_is_written_or_read_when_another_client_does_not_call_what_is_overridden(
    kind: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert again(serde_of("string"), "x") == "x"
    monkeypatch.delattr(kind, method)
    with pytest.raises(
        ConfigError, match=rf"confluent-kafka \d.* builds on \[KS-APP-001\]\n.*=={TESTED_CLIENT}"
    ):
        again(serde_of("string"), "x")


@pytest.mark.promise("avro-readers-logical-type-decides")
@pytest.mark.parametrize(
    ("written", "reader", "value", "read"),
    [
        ("long", MILLIS, 0, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        ("int", MILLIS, 0, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (MILLIS, "long", NOON, 1_704_110_400_000),
        (MILLIS, MICROS, NOON, NOON),
        (MICROS, MILLIS, NOON, NOON),
        (MILLIS, LOCAL, NOON, NOON.replace(tzinfo=None)),
        ("string", UUID, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        (UUID, "string", uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (["null", "long"], ["null", MILLIS], 0, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (["null", MILLIS], ["null", "long"], NOON, 1_704_110_400_000),
        (DECIMAL, logical("bytes", "decimal", precision=9, scale=4), Decimal("1.25"), Decimal("1.25")),
    ],
    ids=str,
)
def test_readers_logical_type_decides_when_the_writers_is_another(
    written: Any, reader: Any, value: Any, read: Any
) -> None:
    found = read_as(record(written), record(reader), {"f": value})["f"]
    assert (found, type(found)) == (read, type(read))


def test_conversion_is_refused_when_a_union_does_not_tell_its_numbers_apart() -> None:
    with pytest.raises(ConfigError, match="give both schemas the same logical types"):
        read_as(record(["int", "long"]), record(["int", MILLIS]), {"f": 2**40})
    assert read_as(record(["int", MILLIS]), record(["int", MILLIS]), {"f": 5}) == {"f": 5}
    assert read_as(record(["int", MILLIS]), record(["int", MILLIS]), {"f": NOON}) == {"f": NOON}


def test_numbers_and_texts_are_read_and_written_when_conversion_is_switched_off() -> None:
    schema = record(MILLIS)
    schema["fields"].append({"name": "id", "type": UUID})
    schema["fields"].append({"name": "cents", "type": DECIMAL})
    raw = {"f": 1_704_110_400_000, "id": "no UUID", "cents": b"\x01"}
    off = serde_of(schema, logical_types=False)
    assert again(off, raw) == raw
    assert "no logical types" in off.id
    with pytest.raises(ValueError, match=r"demo\.R\.f must be long"):
        off.serialize({**raw, "f": NOON})
    value = {"f": NOON, "id": uuid.UUID(int=1), "cents": Decimal("0.01")}
    assert read_as(schema, schema, value, logical_types=False) == {**raw, "id": str(uuid.UUID(int=1))}


def test_value_is_not_changed_when_it_is_written() -> None:
    event = {"-type": "demo.View", "to": "LAX"}
    value = {"f": event}
    serde_of(record([CLICK, VIEW])).serialize(value)
    assert value == {"f": {"-type": "demo.View", "to": "LAX"}}
    assert value["f"] is event
