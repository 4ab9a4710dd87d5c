"""Registries in memory, schemas, and Confluent's wire format written by hand."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka.schema_registry import Schema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.serde.base import Serde

FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "demo",
        "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "long", "default": 0}],
    }
)
#: A later version: a number may be missing, and there is a new field.
FLIGHT_2 = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "demo",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "double"], "default": None},
            {"name": "origin", "type": "string", "default": "?"},
        ],
    }
)
FLIGHT_JSON = json.dumps(
    {
        "title": "Flight",
        "type": "object",
        "properties": {"carrier": {"type": "string"}, "delay": {"type": "integer"}},
        "required": ["carrier"],
    }
)

_STRING, _INT64, _MESSAGE = 9, 3, 11


def new_registry() -> SchemaRegistry:
    """Make a registry that nobody else in this process uses."""
    return SchemaRegistry(f"mock://{uuid.uuid4().hex}")


def register(registry: SchemaRegistry, subject: str, text: str, kind: str) -> int:
    """Register a schema, as another program would have, and return its id."""
    return registry.client().register_schema(subject, Schema(text, kind))


def framed(schema_id: int, payload: bytes) -> bytes:
    """Return a payload behind the magic byte and the schema's id."""
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def zigzag(number: int) -> bytes:
    """Return a whole number as Avro's ``long`` and as an index of Confluent's Protobuf framing."""
    left = number * 2 if number >= 0 else -number * 2 - 1
    data = bytearray()
    while left > 127:
        data.append(left % 128 + 128)
        left //= 128
    return bytes([*data, left])


def avro_string(text: str) -> bytes:
    """Return a text as Avro's ``string``."""
    return zigzag(len(text.encode())) + text.encode()


def flight_file(version: int = 1) -> descriptor_pb2.FileDescriptorProto:
    """Return what ``protoc`` would make of::

    syntax = "proto3"; package demo;
    message Airport { string code = 1; }
    message Flight {
      message Leg { string to = 1; }
      string carrier = 1; int64 delay = 2; map<string, int64> seats = 3;   // version 2: string origin = 4;
    }
    """
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", package="demo", syntax="proto3")
    file.message_type.add(name="Airport").field.add(name="code", number=1, type=_STRING, label=1)
    flight = file.message_type.add(name="Flight")
    flight.nested_type.add(name="Leg").field.add(name="to", number=1, type=_STRING, label=1)
    seats = flight.nested_type.add(name="SeatsEntry")
    seats.options.map_entry = True
    seats.field.add(name="key", number=1, type=_STRING, label=1)
    seats.field.add(name="value", number=2, type=_INT64, label=1)
    flight.field.add(name="carrier", number=1, type=_STRING, label=1)
    flight.field.add(name="delay", number=2, type=_INT64, label=1)
    flight.field.add(name="seats", number=3, type=_MESSAGE, label=3, type_name=".demo.Flight.SeatsEntry")
    if version == 2:
        flight.field.add(name="origin", number=4, type=_STRING, label=1)
    return file


def message_class(name: str, version: int = 1) -> Any:
    """Return the class of a message of :func:`flight_file`."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(flight_file(version))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"demo.{name}"))


def copy_topology(serde: Serde) -> Topology:
    """Copy values of a serde from ``in`` to ``out``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serde)
    builder.stream("in").send_to("out")
    return builder.build()


def all_different(registry: SchemaRegistry) -> list[Serde]:
    """Serdes of every format, schema and option; none of them is another."""
    options: list[dict[str, Any]] = [
        {},
        {"auto_register_schemas": False},
        {"use_latest_version": True},
        {"subject_names": "record"},
        {"subject_names": "topic_record"},
    ]
    return [
        *(registry.avro(FLIGHT, **given) for given in options),
        registry.avro(FLIGHT_2),
        registry.avro(),
        *(registry.json_schema(FLIGHT_JSON, **given) for given in options),
        registry.json_schema(),
        *(registry.protobuf(message_class("Flight"), **given) for given in options),
        registry.protobuf(message_class("Flight", version=2)),
        registry.protobuf(message_class("Airport")),
    ]
