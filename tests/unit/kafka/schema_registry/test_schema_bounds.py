"""Schemas and bytes that would take a task without end, much memory, or its process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from airflow_kstreams.kafka.schema_registry import SchemaRegistry, json_checking
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.kafka.registries import FLIGHT, framed, new_registry, register, zigzag

pytestmark = pytest.mark.promise("schemas-are-bounded")

#: Backtracks exponentially in Python's ``re``.
AMBIGUOUS = "^(a+)+$"
HOSTILE = "a" * 60 + "!"


def _json(schema: Any, value: Any, *, reader: Any = None) -> Any:
    """Read a value that was written with a schema."""
    registry = new_registry()
    schema_id = register(registry, "in-value", json.dumps(schema), "JSON")
    serde = registry.json_schema(None if reader is None else json.dumps(reader))
    return serde.bound("in", "value").deserialize(framed(schema_id, json.dumps(value).encode()))


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": AMBIGUOUS},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": {"pattern": AMBIGUOUS}},
        {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": AMBIGUOUS}},
        {"patternProperties": {AMBIGUOUS: {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {AMBIGUOUS: False}, "additionalProperties": {"type": "integer"}},
        {"propertyNames": {"pattern": AMBIGUOUS}},
    ],
    ids=json.dumps,
)
def test_text_is_judged_when_a_pattern_is_ambiguous(schema: Any) -> None:
    value: Any = [HOSTILE] if "items" in schema else {HOSTILE: ""} if "pattern" not in schema else HOSTILE
    with pytest.raises(ValueError, match="breaks the rule"):
        _json(schema, value)
    with pytest.raises(ValueError, match="breaks the rule"):
        new_registry().json_schema(json.dumps(schema)).bound("in", "value").serialize(value)


@pytest.mark.parametrize(
    ("pattern", "fits", "misfit"),
    [
        ("^[A-Z]{2}$", "UA", "UA\n"),
        ("A", "UAL", "UL"),
        (r"^\d+$", "12", "१२"),
        (r"^\u00e9$", "é", "e"),
        ("^$", "", "x"),
    ],
)
def test_pattern_means_what_json_schema_says(pattern: str, fits: str, misfit: str) -> None:
    assert _json({"pattern": pattern}, fits) == fits
    with pytest.raises(ValueError, match="breaks the rule pattern"):
        _json({"pattern": pattern}, misfit)


def test_names_are_told_apart_when_patterns_allow_some() -> None:
    schema = {
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
    }
    assert _json(schema, {"id": 1, "x-a": "b"}) == {"id": 1, "x-a": "b"}
    for wrong in ({"id": 1, "y": 1}, {"x-a": 1}, {"id": "1"}):
        with pytest.raises(ValueError, match="breaks the rule"):
            _json(schema, wrong)


@pytest.mark.parametrize(
    "pattern", ["^(?!a)", r"(a)\1", "(?<=a)b", "[[:alpha:]]", r"\Qa\E", "(a{0,900}){0,900}", "a" * 3_000]
)
def test_pattern_is_the_schemas_fault_when_it_cannot_be_bounded(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used: its pattern|it has a pattern|not a 'regex'"):
        _json({"properties": {"a": {"pattern": pattern}}}, {})


def _doubling(levels: int) -> dict[str, Any]:
    """Return a schema whose parts each refer to the next one twice."""
    parts: dict[str, Any] = {
        f"a{level}": {"allOf": [{"$ref": f"#/definitions/a{level + 1}"}] * 2} for level in range(levels)
    }
    parts[f"a{levels}"] = {"type": "integer"}
    return {"$ref": "#/definitions/a0", "definitions": parts}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/definitions/a"}], "definitions": {"a": {"anyOf": [{"$ref": "#"}]}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"not": {"if": {"$ref": "#"}}},
    ],
    ids=json.dumps,
)
def test_loop_of_references_is_the_schemas_fault(schema: Any) -> None:
    with pytest.raises(ConfigError, match="lead back to where they come from"):
        _json(schema, {"x": {"x": 1}})


def test_steps_are_bounded_when_references_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_checking, "MAX_STEPS", 20_000)
    assert _json(_doubling(5), 1) == 1
    with pytest.raises(ConfigError, match="takes more than 20,000 steps"):
        _json(_doubling(16), 1)


def test_document_is_read_when_its_schema_holds_itself() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": False}
    value: Any = {}
    for _ in range(20):
        value = {"left": value}
    assert _json(tree, value) == value
    with pytest.raises(ValueError, match="breaks the rule additionalProperties"):
        _json(tree, {"left": {"middle": {}}})


def test_items_are_compared_once_when_they_must_be_unique() -> None:
    many = [{"n": number} for number in range(20_000)]
    assert _json({"uniqueItems": True}, many) == many
    for same in ([1, 1.0], [{"a": [1]}, {"a": [1.0]}], [None, None]):
        with pytest.raises(ValueError, match="breaks the rule uniqueItems"):
            _json({"uniqueItems": True}, same)
    assert _json({"uniqueItems": True}, [1, True, "1", [1], {"1": 1}, None, 0, False])


def test_no_record_is_passed_when_the_schema_is_at_fault() -> None:
    registry = new_registry()
    schema_id = register(registry, "raw-value", json.dumps({"pattern": "(?=a)"}), "JSON")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.bytes())
    builder.stream("in").send_to("raw")
    builder.stream("raw", value_serde=registry.json_schema()).send_to("out", value_serde=serdes.json())
    policy = {"deserialization.exception.handler": "skip"}
    driver = TopologyTestDriver(builder.build(), application_id="app", settings=policy)
    with pytest.raises(ConfigError, match="without look-around"):
        driver.pipe_input("in", key="1", value=framed(schema_id, b'"a"'), timestamp_ms=1)


def _record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{index}", "type": kind, **more} for index, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def _avro(schema: Any, data: bytes) -> Any:
    registry = new_registry()
    schema_id = register(registry, "in-value", json.dumps(schema), "AVRO")
    return registry.avro().bound("in", "value").deserialize(framed(schema_id, data))


@pytest.mark.parametrize(
    "items",
    [
        "null",
        _record("Nothing"),
        _record("Nested", _record("Inner", "null")),
        {"type": "fixed", "name": "F", "size": 0},
    ],
    ids=json.dumps,
)
def test_record_is_at_fault_when_its_bytes_hold_billions_of_items(items: Any) -> None:
    schema = {"type": "array", "items": items}
    assert len(_avro(schema, zigzag(1_000) + zigzag(0))) == 1_000
    for count in (zigzag(2**40), zigzag(-(2**40)) + zigzag(0)):
        with pytest.raises(ValueError, match="more than 1,000,000 items without bytes"):
            _avro(schema, count + zigzag(0))
    with pytest.raises(ValueError, match="more than 1,000,000 items without bytes"):
        _avro({"type": "array", "items": schema}, zigzag(5) + (zigzag(900_000) + zigzag(0)) * 5 + zigzag(0))


LIST = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "text", "type": "string"}],
}


def test_record_is_at_fault_when_its_values_end_the_reader() -> None:
    def nested(levels: int) -> bytes:
        return zigzag(1) * levels + zigzag(0) + (zigzag(1) + b"x") * (levels + 1)

    value = _avro(LIST, nested(200))
    for _ in range(200):
        value = value["next"]
    assert value == {"next": None, "text": "x"}
    # At the first the library's own reader raises an error of its own, at the second it ends the process.
    for levels in (1_000, 50_000):
        with pytest.raises(ValueError, match="nested too deep"):
            _avro(LIST, nested(levels))


def test_schema_is_at_fault_when_its_names_stand_for_too_many() -> None:
    def chain(levels: int) -> Any:
        inner: Any = _record("R0", "int")
        for level in range(1, levels):
            inner = _record(f"R{level}", inner, f"R{level - 1}")
        return inner

    assert _avro(chain(4), zigzag(1) * 8)["f0"]["f0"]["f0"] == {"f0": 1}
    with pytest.raises(ConfigError, match="its named types stand for more than"):
        _avro(chain(17), zigzag(1))
    with pytest.raises(ConfigError, match="its named types stand for more than"):
        new_registry().avro(json.dumps(chain(17))).bound("in", "value").serialize({})


def test_schema_is_at_fault_when_its_defaults_multiply() -> None:
    def defaults(levels: int) -> Any:
        inner: Any = _record("R0", "int", default=0)
        for level in range(1, levels):
            inner = {
                "type": "record",
                "name": f"R{level}",
                "fields": [
                    {"name": f"f{index}", "type": kind, "default": {}}
                    for index, kind in enumerate([inner, *[f"R{level - 1}"] * 9])
                ],
            }
        return inner

    def write(schema: Any) -> bytes:
        return new_registry().avro(json.dumps(schema)).bound("in", "value").serialize({})

    with pytest.raises(ConfigError, match=r"stands? for more than"):
        write(defaults(9))


def _diamonds(registry: SchemaRegistry, kind: str, levels: int) -> Schema:
    """Register schemas that each refer to the next one twice, and return the first."""
    text = '{"type": "string"}' if kind == "JSON" else FLIGHT
    register(registry, "s0", text, kind)
    for level in range(1, levels):
        twice = [SchemaReference(f"{name}{level}", f"s{level - 1}", 1) for name in ("a", "b")]
        registry.client().register_schema(f"s{level}", Schema(text, kind, twice))
    return Schema(text, kind, [SchemaReference("first", f"s{levels - 1}", 1)])


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
def test_schema_is_at_fault_when_its_references_multiply(kind: str) -> None:
    registry = new_registry()
    schema = _diamonds(registry, kind, 17)
    schema_id = registry.client().register_schema("in-value", schema)
    serde = registry.json_schema() if kind == "JSON" else registry.avro()
    with pytest.raises(ConfigError, match="refers to others along more than"):
        serde.bound("in", "value").deserialize(framed(schema_id, b'"UA"'))


STRING, MESSAGE = 9, 11


def _all_refer_to_all(count: int) -> Any:
    """Return a message class; each of its file's messages has a field of each of them."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="demo", syntax="proto3")
    for own in range(count):
        message = file.message_type.add(name=f"M{own}")
        for other in range(count):
            message.field.add(
                name=f"f{other}", number=other + 1, type=MESSAGE, label=1, type_name=f".demo.M{other}"
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.M0"))


def test_message_is_written_when_messages_refer_to_each_other() -> None:
    message = _all_refer_to_all(40)
    serde = new_registry().protobuf(message).bound("in", "value")
    assert serde.deserialize(serde.serialize(message(f1=message().f1))) == message(f1=message().f1)


def test_message_is_written_when_files_import_each_others_imports() -> None:
    pool = descriptor_pool.DescriptorPool()
    for level in range(40):
        file = descriptor_pb2.FileDescriptorProto(name=f"f{level}.proto", package="demo", syntax="proto3")
        file.message_type.add(name=f"M{level}").field.add(name="text", number=1, type=STRING, label=1)
        file.dependency.extend(f"f{before}.proto" for before in range(max(0, level - 2), level))
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.M39"))
    serde = new_registry().protobuf(message).bound("in", "value")
    assert serde.deserialize(serde.serialize(message(text="UA"))) == message(text="UA")


@pytest.mark.remedy("binding.BoundSerde._registry_fault: mend the schema and register it")
@pytest.mark.parametrize("told", ["mended", "bytes"])
def test_record_is_read_when_its_schema_is_mended_or_left_alone(told: str) -> None:
    registry = new_registry()
    schema_id = register(registry, "in-value", '{"pattern": "^(?!a)"}', "JSON")
    data = framed(schema_id, b'"b"')
    with pytest.raises(ConfigError) as caught:
        registry.json_schema().bound("in", "value").deserialize(data)
    assert "mend the schema and register it" in caught.value.fix
    assert "serdes.bytes()" in caught.value.fix
    if told == "bytes":
        assert serdes.bytes().deserialize(data) == data
        return
    mended = register(registry, "in-value", '{"not": {"pattern": "^a"}}', "JSON")
    serde = registry.json_schema().bound("in", "value")
    assert serde.deserialize(framed(mended, b'"b"')) == "b"
    with pytest.raises(ValueError, match="breaks the rule not"):
        serde.deserialize(framed(mended, b'"a"'))
