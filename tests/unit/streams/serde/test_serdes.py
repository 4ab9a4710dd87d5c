from __future__ import annotations

import dataclasses
import math
import re
import struct
from datetime import datetime
from typing import Any

import msgspec
import pydantic
import pytest

from airflow_kstreams.streams import KStreamBuilder, TopologyError, serdes
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serdes import gives_back
from airflow_kstreams.testing import TopologyTestDriver


class Flight(msgspec.Struct):
    carrier: str
    delay: float | None = None


class Airport(msgspec.Struct):
    code: str


class Model(pydantic.BaseModel):
    code: str


class Plain:
    def __init__(self, code: str) -> None:
        self.code = code


class Own(dict[str, str]):
    pass


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serdes.bytes(), b"a\x00b", b"a\x00b"),
        (serdes.string(), "Zürich", b"Z\xc3\xbcrich"),
        (serdes.string(), "", b""),
        (serdes.int32(), 258, b"\x00\x00\x01\x02"),
        (serdes.int32(), -1, b"\xff" * 4),
        (serdes.int32(), -(2**31), b"\x80\x00\x00\x00"),
        (serdes.double(), 1.5, bytes.fromhex("3ff8000000000000")),
        (serdes.double(), -0.1, bytes.fromhex("bfb999999999999a")),
        (serdes.double(), float("-inf"), bytes.fromhex("fff0000000000000")),
        (serdes.msgpack(), {"a": [1, None, "x"]}, b"\x81\xa1a\x93\x01\xc0\xa1x"),
        (serdes.msgpack(Airport), Airport(code="JFK"), b"\x81\xa4code\xa3JFK"),
        (serdes.int64(), 258, b"\x00\x00\x00\x00\x00\x00\x01\x02"),
        (serdes.int64(), -1, b"\xff" * 8),
        (serdes.int64(), -(2**63), b"\x80" + b"\x00" * 7),
        (serdes.json(), {"a": [1, None, "x"]}, b'{"a":[1,null,"x"]}'),
        (serdes.json(Flight), Flight(carrier="UA"), b'{"carrier":"UA","delay":null}'),
        (serdes.json(list[Flight]), [Flight(carrier="B6", delay=1.5)], b'[{"carrier":"B6","delay":1.5}]'),
    ],
)
def test_both_ways_agree_when_value_fits(serde: Serde, value: Any, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize(
    ("serde", "value", "error"),
    [
        (serdes.bytes(), 5, TypeError),
        (serdes.bytes(), "text", TypeError),
        (serdes.string(), b"bytes", TypeError),
        (serdes.int64(), 2**63, struct.error),
        (serdes.int64(), "1", struct.error),
        (serdes.json(), object(), TypeError),
        (serdes.int32(), 2**31, struct.error),
        (serdes.int32(), 1.5, struct.error),
        (serdes.double(), "1.5", struct.error),
        (serdes.double(), 10**400, struct.error),
        (serdes.msgpack(), object(), TypeError),
    ],
)
def test_serialize_raises_when_value_does_not_fit(serde: Serde, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "data", "error"),
    [
        (serdes.string(), b"\xff", UnicodeDecodeError),
        (serdes.int64(), b"\x00" * 7, struct.error),
        (serdes.int64(), b"\x00" * 9, struct.error),
        (serdes.int32(), b"\x00" * 8, struct.error),
        (serdes.double(), b"\x00" * 4, struct.error),
        (serdes.msgpack(), b"\x81", msgspec.DecodeError),
        (serdes.msgpack(Airport), b"\x81\xa4code\x01", msgspec.ValidationError),
        (serdes.json(), b"{", msgspec.DecodeError),
        (serdes.json(Flight), b'{"carrier":1}', msgspec.ValidationError),
    ],
)
def test_deserialize_raises_when_bytes_are_of_another_format(
    serde: Serde, data: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        serde.deserialize(data)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_json_writes_null_when_json_has_no_such_number(number: float) -> None:
    assert serdes.json().serialize([number]) == b"[null]"


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff8000000000123"])
def test_double_writes_javas_nan_when_the_number_is_any_nan(bits: str) -> None:
    (nan,) = struct.unpack(">d", bytes.fromhex(bits))
    assert serdes.double().serialize(nan).hex() == "7ff8000000000000"
    assert math.isnan(serdes.double().deserialize(bytes.fromhex(bits)))


def test_serdes_are_equal_when_ids_are() -> None:
    assert serdes.json(Flight) == serdes.json(Flight)
    assert hash(serdes.json(Flight)) == hash(serdes.json(Flight))
    assert serdes.string() == serdes.string()


def test_serdes_differ_when_types_do() -> None:
    different = [
        serdes.json(),
        serdes.json(Flight),
        serdes.json(Airport),
        serdes.json(list[Flight]),
        serdes.json(list[Airport]),
        serdes.json(dict[str, Flight]),
        serdes.json(Flight | None),
        serdes.string(),
        serdes.bytes(),
        serdes.int64(),
        serdes.int32(),
        serdes.double(),
        serdes.msgpack(),
        serdes.msgpack(Flight),
        serdes.msgpack(Airport),
    ]
    assert len({serde.id for serde in different}) == len(different)


def test_json_id_is_the_same_when_the_module_has_another_name() -> None:
    # The application file is __main__ in the driver and a module elsewhere; the topology hash must not see
    # that.
    elsewhere = type(
        "Flight", (msgspec.Struct,), {"__module__": "__main__", "__annotations__": {"carrier": str}}
    )
    elsewhere.__qualname__ = Flight.__qualname__
    assert serdes.json(elsewhere) == serdes.json(Flight)
    assert serdes.json(list[elsewhere]) == serdes.json(list[Flight])  # type: ignore[valid-type]


@pytest.mark.parametrize("serde", [serdes.bytes(), serdes.string(), serdes.int32(), serdes.int64()])
def test_bytes_may_be_passed_on_only_between_the_serdes_own_functions(serde: Serde) -> None:
    assert gives_back(serde, serde)
    assert not gives_back(serde, serdes.json())
    assert not gives_back(serdes.json(), serdes.json())
    assert not gives_back(dataclasses.replace(serde, deserialize=lambda data: data), serde)
    assert not gives_back(serde, dataclasses.replace(serde, serialize=lambda value: b""))


class Marked(bytes):
    pass


def written(given: Any) -> list[tuple[object, object]]:
    """Return key and value of the record that a sink of bytes writes for an object."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    made = builder.stream("in").map(lambda key, value: (given, given))
    made.send_to("out", key_serde=serdes.bytes(), value_serde=serdes.bytes())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value="v", timestamp_ms=5)
        return [(record.key, record.value) for record in driver.read_output("out")]


@pytest.mark.parametrize("data", [b"a", b"", Marked(b"a"), None])
def test_bytes_are_written_as_they_are_when_a_sink_takes_bytes(data: bytes | None) -> None:
    assert written(data) == [(data, data)]


@pytest.mark.parametrize("given", ["a", 5, bytearray(b"a"), memoryview(b"a")])
def test_object_is_refused_when_a_sink_takes_bytes(given: Any) -> None:
    with pytest.raises(RecordError, match=rf"serdes.bytes\(\) takes bytes, got {type(given).__name__}"):
        written(given)


@pytest.mark.parametrize(
    ("java", "ours"),
    [("String", "string"), ("Integer", "int32"), ("Long", "int64"), ("Double", "double"), ("Bytes", "bytes")],
)
def test_serde_is_named_when_java_s_is_asked_for(java: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{java}': write serdes\.{ours}\(\)"):
        getattr(serdes, java)
    assert not hasattr(serdes, "Nonsense")


@pytest.mark.parametrize("call", [serdes.json, serdes.msgpack])
@pytest.mark.parametrize(
    ("given", "found", "fix"),
    [
        (Model, "is given Model, and msgspec reads no Model", "write serdes.of(Model)"),
        (list[Model], "and msgspec reads no Model", "make Model a msgspec.Struct or a dataclass"),
        (Plain, "and msgspec reads no Plain", "make Plain a msgspec.Struct or a dataclass"),
        (Airport("JFK"), "is given an instance of Airport, expected a type", "(Airport)"),
        (Model(code="JFK"), "is given an instance of Model, expected a type", "(Model)"),
        ("Airport", "is given 'Airport', and cannot read one", "pass a type that msgspec knows"),
    ],
)
def test_type_is_refused_at_its_line_when_msgspec_reads_none(
    call: Any, given: Any, found: str, fix: str
) -> None:
    with pytest.raises(TopologyError, match=rf"{call.__name__} at .*test_serdes\.py:\d+ .*{found}") as no:
        call(given)
    assert fix in no.value.fix


@pytest.mark.parametrize("given", [object, dict, Own, Any, list[Airport], Airport | None, datetime])
def test_type_is_taken_when_something_is_read_or_written_as_one(given: Any) -> None:
    serdes.json(given)
    serdes.msgpack(given)


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        ({"serialize": 3}, "is given int as serialize, expected a function"),
        ({"deserialize": "text"}, "is given str as deserialize, expected a function"),
        ({"serialize": lambda topic, value: b""}, r"as serialize, and calls it with \(value\)"),
        ({"deserialize": lambda: ""}, r"as deserialize, and calls it with \(data\)"),
        ({"for_topic": lambda topic: serdes.string()}, r"as for_topic, and calls it with \(topic, side\)"),
        ({"partition_bytes": b"a"}, "is given bytes as partition_bytes, expected a function"),
    ],
)
def test_serde_is_refused_at_its_line_when_its_functions_cannot_be_called(
    functions: dict[str, Any], found: str
) -> None:
    with pytest.raises(TopologyError, match=rf"Serde 'own' at .*test_serdes\.py:\d+ .*{found}"):
        Serde(**{"id": "own", "serialize": str.encode, "deserialize": bytes.decode, **functions})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("long", "serdes.int64()"),
        ("int", "serdes.int64(), or serdes.int32()"),
        ("float64", "serdes.double()"),
        ("Float", "serdes.double(), or a Serde(id=..., "),
        ("Short", "serdes.int32(), or a Serde(id=..., "),
        ("Boolean", "serdes.json(bool), or a Serde(id=..., "),
        ("UUID", "serdes.string(), with str(value)"),
        ("uuid", "serdes.string(), with str(value)"),
        ("Void", "serdes.bytes(): None is written"),
        ("ListSerde", "serdes.json(list[int]), or"),
    ],
)
def test_what_stands_for_a_serde_is_told_when_there_is_none_of_the_name(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"has no attribute {name!r}: write {ours}")):
        getattr(serdes, name)
