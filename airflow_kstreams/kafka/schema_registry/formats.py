"""Defines the three formats of a schema registry, and makes confluent-kafka's serializers and deserializers
of them.

Definitions hold text and classes only, since they are made while a topology is built; every library is
imported by the task that binds them.
"""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from airflow_kstreams.kafka.schema_registry.references import missing_in_avro, missing_in_json_schema
from airflow_kstreams.streams.hints.hidden_values import UnfitValueError, without_values
from airflow_kstreams.streams.plan import decode_json

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from google.protobuf.message import Message

#: ``(object, context) -> bytes`` of confluent-kafka.
Serializer = Callable[[Any, Any], bytes]
#: ``(bytes, context) -> object`` of confluent-kafka.
Deserializer = Callable[[bytes, Any], Any]
#: Settings of a serializer or deserializer, by confluent-kafka's names.
Conf = Mapping[str, Any]


class SchemaFormat(ABC):
    """A schema in one of the registry's formats."""

    __slots__ = ()

    #: The registry's name of the format.
    type: ClassVar[str]
    #: The word users write for the format.
    name: ClassVar[str]
    #: The module of confluent-kafka that fails to import where a library of the format is missing.
    library: ClassVar[str]

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The schema's name and a hash of it, for the id of a serde."""

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the format that belong to the id of a serde."""
        return ()

    @property
    def has_schema(self) -> bool:
        """True if values can be written; without a schema they can only be read."""
        return True

    def missing_reference(self, *, latest: bool) -> str | None:
        """Return what the given schema refers to and does not define, None if there is nothing of the kind.

        :param latest: whether values are read and written by the newest registered schema.
        :raises Exception: the schema is not valid.
        """
        return None

    @property
    @abstractmethod
    def record_name(self) -> str | None:
        """Name of the schema in subjects named by record; None if it has no name."""

    @abstractmethod
    def serializer(self, client: SchemaRegistryClient, conf: Conf) -> Serializer:
        """Make a serializer.

        :raises Exception: the schema is not valid, or a schema it refers to cannot be had.
        """

    @abstractmethod
    def deserializer(self, client: SchemaRegistryClient, conf: Conf) -> Deserializer:
        """Make a deserializer; raises as :meth:`serializer` does."""

    @abstractmethod
    def misfit(self, value: Any, error: Exception) -> str:
        """Return why a value does not fit the schema, without showing the value.

        :param error: raised by the serializer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _JsonFormat(SchemaFormat):
    """A format whose schemas are JSON.

    :param schema: the schema's text; None reads each record by its writer's schema.
    """

    schema: str | None

    @property
    def fingerprint(self) -> str:
        """Name and hash of the schema, independent of layout and of the order of names in an object."""
        if self.schema is None:
            return "any"
        parsed = json.loads(self.schema)
        canonical = json.dumps(parsed, sort_keys=True, separators=(",", ":"))
        return f"{self._name_in(parsed)}, {hashlib.sha256(canonical.encode()).hexdigest()[:16]}"

    @property
    def has_schema(self) -> bool:
        """True if a schema was given."""
        return self.schema is not None

    @staticmethod
    @abstractmethod
    def _name_in(schema: Any) -> str:
        """Return the name in a parsed schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat(_JsonFormat):
    """Avro; values are dicts, or what the schema's type is in Python.

    :param logical_types: whether logical types are Python's own, e.g. datetimes, or what Avro makes them of.
    """

    logical_types: bool = True

    type: ClassVar[str] = "AVRO"
    name: ClassVar[str] = "avro"
    library: ClassVar[str] = "confluent_kafka.schema_registry.avro"

    @property
    def options(self) -> tuple[str, ...]:
        """``no logical types`` if values keep what Avro makes logical types of; empty if not."""
        return () if self.logical_types else ("no logical types",)

    def missing_reference(self, *, latest: bool) -> str | None:
        """Return the first name that the text does not define; confluent-kafka parses it in any case."""
        return None if self.schema is None else missing_in_avro(self.schema)

    @property
    def record_name(self) -> str | None:
        """The full name of a record, enumeration or fixed type."""
        schema = json.loads(self.schema or "null")
        return _avro_name(schema) if isinstance(schema, dict) and "name" in schema else None

    def serializer(self, client: SchemaRegistryClient, conf: Conf) -> Serializer:
        """Make a serializer; a value that does not fit is refused, and never shortened."""
        from airflow_kstreams.kafka.schema_registry.avro_writing import FittingSerializer

        serializer = FittingSerializer(
            client,
            self.schema,
            {**conf, "validate.strict.allow.default": True},
            logical_types=self.logical_types,
        )
        return cast("Serializer", serializer)

    def deserializer(self, client: SchemaRegistryClient, conf: Conf) -> Deserializer:
        """Make a deserializer with the schema as the reader's."""
        from airflow_kstreams.kafka.schema_registry.avro_reading import ResolvingDeserializer

        deserializer: Deserializer = ResolvingDeserializer(
            client, self.schema, dict(conf), logical_types=self.logical_types
        )
        return deserializer

    @staticmethod
    def _name_in(schema: Any) -> str:
        return _avro_name(schema)

    def misfit(self, value: Any, error: Exception) -> str:
        """Name the field that does not fit and the type it must have."""
        from airflow_kstreams.kafka.schema_registry.avro_writing import MisfitError

        # Another error's own text may show the value.
        return (
            str(error)
            if isinstance(error, MisfitError)
            else f"it does not fit the schema ({type(error).__name__})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaFormat(_JsonFormat):
    """JSON that a JSON Schema describes; values are dicts, lists, texts and numbers."""

    type: ClassVar[str] = "JSON"
    name: ClassVar[str] = "json_schema"
    library: ClassVar[str] = "airflow_kstreams.kafka.schema_registry.json_checking"

    def missing_reference(self, *, latest: bool) -> str | None:
        """Return the first reference to what the text does not hold."""
        return None if self.schema is None or latest else missing_in_json_schema(self.schema)

    @property
    def record_name(self) -> str | None:
        """The title."""
        schema = json.loads(self.schema or "null")
        return schema.get("title") if isinstance(schema, dict) else None

    def serializer(self, client: SchemaRegistryClient, conf: Conf) -> Serializer:
        """Make a serializer; it validates.

        The encoder is that of ``serdes.json()``: confluent-kafka would choose one by the installed libraries.
        """
        from airflow_kstreams.kafka.schema_registry.json_checking import CheckedJsonSerializer

        serializer: Serializer = CheckedJsonSerializer(
            self.schema, client, conf=dict(conf), json_encode=_encode_as_is
        )
        return serializer

    def deserializer(self, client: SchemaRegistryClient, conf: Conf) -> Deserializer:
        """Make a deserializer; it validates against this schema, else the writer's."""
        from airflow_kstreams.kafka.schema_registry.json_checking import CheckedJsonDeserializer

        deserializer: Deserializer = CheckedJsonDeserializer(
            self.schema, schema_registry_client=client, conf=dict(conf), json_decode=decode_json
        )
        return deserializer

    @staticmethod
    def _name_in(schema: Any) -> str:
        return str(schema.get("title", "untitled")) if isinstance(schema, dict) else "untitled"

    def misfit(self, value: Any, error: Exception) -> str:
        """Name the place that does not fit and the rule it breaks."""
        if isinstance(error, _NotJsonError):
            return str(error)
        return json_schema_fault(error) or f"it does not fit the schema ({type(error).__name__})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufFormat(SchemaFormat):
    """Protocol Buffers; values are instances of a generated message class.

    :param message: the class.
    """

    message: type[Message]

    type: ClassVar[str] = "PROTOBUF"
    name: ClassVar[str] = "protobuf"
    library: ClassVar[str] = "confluent_kafka.schema_registry.protobuf"

    @property
    def fingerprint(self) -> str:
        """The message's name and a hash of the files that define it."""
        descriptor = self.message.DESCRIPTOR
        digest = hashlib.sha256()
        for file in sorted(_files(descriptor.file), key=lambda file: file.name):
            digest.update(file.serialized_pb)
        return f"{descriptor.full_name}, {digest.hexdigest()[:16]}"

    @property
    def record_name(self) -> str | None:
        """The message's full name."""
        name: str = self.message.DESCRIPTOR.full_name
        return name

    def serializer(self, client: SchemaRegistryClient, conf: Conf) -> Serializer:
        """Make a serializer.

        A map field has no order of its own, and each process of the library writes it in another order. A
        message that holds one is written again in sorted order: the same input must give the same bytes.
        """
        from confluent_kafka.schema_registry import prefix_schema_id_serializer

        from airflow_kstreams.kafka.schema_registry.protobuf_parsing import ParsingSerializer, holds_map

        parse = self.message.FromString

        def framed_in_order(payload: bytes, context: Any, schema_id: Any) -> bytes:
            ordered = parse(payload).SerializeToString(deterministic=True)
            framed: bytes = prefix_schema_id_serializer(ordered, context, schema_id)
            return framed

        # Rules of a registered schema, which only the latest version brings, may have encrypted the payload.
        if holds_map(self.message.DESCRIPTOR) and not conf.get("use.latest.version"):
            conf = {**conf, "schema.id.serializer": framed_in_order}
        serializer: Serializer = ParsingSerializer(self.message, client, conf=dict(conf))
        return serializer

    def deserializer(self, client: SchemaRegistryClient, conf: Conf) -> Deserializer:
        """Make a deserializer that refuses messages of another name.

        Bytes of one message often parse as another, so only the name can distinguish them.
        """
        from airflow_kstreams.kafka.schema_registry.protobuf_parsing import ParsingDeserializer, message_name

        name = self.message.DESCRIPTOR.full_name
        read_id = conf["schema.id.deserializer"]
        known: set[tuple[object, ...]] = set()

        def checked_id(payload: bytes, context: Any, schema_id: Any) -> io.BytesIO:
            rest: io.BytesIO = read_id(payload, context, schema_id)
            written_as = (schema_id.id, schema_id.guid, *schema_id.message_indexes)
            if written_as not in known:
                found = message_name(client, schema_id)
                if found != name:
                    raise UnfitValueError(f"found a message {found}, expected {name}")
                known.add(written_as)
            return rest

        deserializer: Deserializer = ParsingDeserializer(
            self.message,
            conf={**conf, "schema.id.deserializer": checked_id},
            schema_registry_client=client,
        )
        return deserializer

    def misfit(self, value: Any, error: Exception) -> str:
        """Name the class that was expected."""
        if not isinstance(value, self.message):
            return f"expected a message {self.message.DESCRIPTOR.full_name}"
        return f"it cannot be written ({type(error).__name__})"


class _NotJsonError(ValueError):
    """A value that JSON holds as another one, or not at all; its text shows the place and the type."""


def _encode_as_is(value: Any) -> bytes:
    """Write JSON that reads back as the value; NaN, for one, would be written as null, bytes as a text.

    :raises _NotJsonError: it would read as another value.
    """
    data = msgspec.json.encode(value)
    read = decode_json(data)
    if read != value:
        raise _NotJsonError(_difference(value, read, "$"))
    return data


def _difference(value: Any, read: Any, path: str) -> str:
    """Name the first place at which two values differ."""
    if isinstance(value, dict) and isinstance(read, dict) and value.keys() == read.keys():
        inner = [(value[name], read[name], f"{path}.{name}") for name in value]
    elif isinstance(value, list) and isinstance(read, list) and len(value) == len(read):
        inner = [(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(value, read, strict=True))]
    else:
        inner = []
    for part in inner:
        if part[0] != part[1]:
            return _difference(*part)
    kind = "a number that is not finite" if isinstance(value, float) else f"a {type(value).__name__}"
    return f"{path} is {kind}, which JSON does not have"


def unresolved_reference(error: BaseException | None) -> str | None:
    """Return the reference that a JSON Schema makes to another which cannot be had.

    :param error: the validator's error, or one raised while that was handled.
    :return: None if it is another error.
    """
    while error is not None:
        if any(base.__name__ == "Unresolvable" for base in type(error).__mro__):
            return str(getattr(error, "ref", error))
        error = error.__cause__ or error.__context__
    return None


def json_schema_fault(error: BaseException | None) -> str | None:
    """Return which place of a document breaks which rule of its schema, without showing the document.

    :param error: the validator's error, or one raised while that was handled.
    :return: None if it is neither.
    """
    path = getattr(error, "json_path", None)
    if error is None or path is None:
        return json_schema_fault(error.__context__) if error is not None and error.__context__ else None
    rule = getattr(error, "validator", "")
    names = map(str, getattr(error, "absolute_schema_path", ()))
    path = without_values(path, own="\n".join(names))
    return f"{path} breaks the rule {rule}: {json.dumps(getattr(error, 'validator_value', None))[:200]}"


def _avro_name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "union" if isinstance(schema, list) else str(schema)
    name = str(schema.get("name", schema.get("type")))
    namespace = schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _files(file: Any) -> list[Any]:
    """Return a file and all that it imports, each once however many import it."""
    found = {file.name: file}
    open_ = [file]
    while open_:
        for imported in open_.pop().dependencies:
            if imported.name not in found:
                found[imported.name] = imported
                open_.append(imported)
    return list(found.values())
