"""Makes confluent-kafka parse schemas of Protocol Buffers within bounds, and looks into them.

Messages may refer to each other, and files may import each other's imports: what is looked at is remembered
by its full name, since the ways to it can be exponentially many.
"""

from __future__ import annotations

import base64
from typing import Any

from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

from airflow_kstreams.kafka.schema_registry.schema_bounds import (
    BrokenSchemaError,
    ParsesWithinBounds,
    within_bounds,
)
from airflow_kstreams.streams.hints.hidden_values import UnfitValueError


class _Parsing(ParsesWithinBounds):
    def _checked(self, parsed: Any) -> Any:
        file, pool = parsed
        # The library links a file to its imports when it is first looked up.
        pool.FindFileByName(file.name)
        return parsed


class ParsingSerializer(_Parsing, ProtobufSerializer):
    """confluent-kafka's serializer, which registers a file once however many import it."""

    def _resolve_dependencies(self, ctx: Any, file_desc: Any) -> Any:
        known = self.__dict__.setdefault("_registered", {})
        if file_desc.name not in known:
            known[file_desc.name] = super()._resolve_dependencies(ctx, file_desc)
        return known[file_desc.name]


class ParsingDeserializer(_Parsing, ProtobufDeserializer):
    """confluent-kafka's deserializer, which parses within bounds."""


def holds_map(message: Any) -> bool:
    """Return True if a message or one inside it has a map field."""
    seen = {message.full_name}
    open_ = [message]
    while open_:
        for field in open_.pop().fields:
            inner = field.message_type
            if inner is None or inner.full_name in seen:
                continue
            if inner.GetOptions().map_entry:
                return True
            seen.add(inner.full_name)
            open_.append(inner)
    return False


def message_name(client: Any, schema_id: Any) -> str:
    """Return the full name of the message that a framed record says it holds.

    :param client: the registry, as an ``AskedRegistry``.
    :param schema_id: its schema's id, or GUID, and the path of the message within the schema's file.
    :raises UnfitValueError: the schema is of another format, or has no such message.
    :raises BrokenSchemaError: it cannot be parsed.
    """
    if schema_id.id is not None:
        schema = client.get_schema(schema_id.id, fmt="serialized")
    else:
        schema = client.get_schema_by_guid(str(schema_id.guid), fmt="serialized")
    if schema.schema_type != "PROTOBUF":
        raise UnfitValueError(f"found a schema of type {schema.schema_type}, expected PROTOBUF")
    file = within_bounds(lambda: _file(schema.schema_str))
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in schema_id.message_indexes:
        if index not in range(len(messages)):
            raise UnfitValueError(
                f"schema {schema_id.id} has no message at index {schema_id.message_indexes}"
            )
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _file(text: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    if not file.message_type:
        raise BrokenSchemaError("it holds no message")
    return file
