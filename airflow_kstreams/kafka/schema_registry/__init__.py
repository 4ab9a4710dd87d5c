"""Makes serdes of a schema registry: Avro, JSON Schema and Protobuf in Confluent's wire format.

::

    from airflow_kstreams.kafka import schema_registry

    registry = schema_registry.SchemaRegistry()          # or SchemaRegistry("http://HOST:8081")
    flights = builder.stream("flights", key_serde=serdes.string(), value_serde=registry.avro(FLIGHT))

The extra ``schema-registry`` is needed wherever tasks run. Building a topology imports none of it and asks no
registry; a task makes the client when it starts.

**Address and login** of the registry are client settings that start with ``schema.registry.``, beside those
of Kafka: in the extra of the Airflow connection, or in the file of client settings, which the product already
carries to the driver and the executors and never shows::

    {"bootstrap.servers": "HOST:PORT",
     "schema.registry.url": "https://HOST",
     "schema.registry.basic.auth.user.info": "NAME:PASSWORD"}

The names are those of confluent-kafka's client behind ``schema.registry.``. The application file may name a
URL instead, but never credentials; settings that name another URL do not apply to it then. In tests,
``SchemaRegistry("mock://NAME")`` or :func:`configure` with such a URL gives a registry that lives in this
process.

**Keys.** The bytes of a key hold the id of its schema. A key whose schema changes gets other bytes: it may
move to another partition, and stores no longer find what they kept under it. Give keys ``serdes.string()`` or
another plain serde unless their schema is fixed for good; as in Kafka Streams.

Application files call :class:`SchemaRegistry`; the hosts of tasks call :func:`configure`. The package imports
``streams`` and ``kafka``, and leaves the work to confluent-kafka's serializers. It adds serdes that are plain
data until a task binds them, errors that distinguish a record's fault from the registry's, and texts that
show neither values nor secrets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args

from airflow_kstreams.kafka.configuration.registry_settings import url_fault
from airflow_kstreams.kafka.schema_registry.binding import (
    RegistryOptions,
    RegistrySerde,
    SubjectNames,
    client_of,
    configure,
)
from airflow_kstreams.kafka.schema_registry.formats import (
    AvroFormat,
    JsonSchemaFormat,
    ProtobufFormat,
    SchemaFormat,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site, check_choice
from airflow_kstreams.streams.serde.base import Serde

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from google.protobuf.message import Message

__all__ = ["RegistryOptions", "SchemaRegistry", "SubjectNames", "configure"]

M = TypeVar("M", bound="Message")


class SchemaRegistry:
    r"""A schema registry that a topology names; makes serdes without contacting the registry.

    All its serdes take the same options, see :class:`RegistryOptions`.

    Serdes of one schema and the same options are equal. Their id, a part of the topology hash, holds the
    schema's name and a hash of it, but no address.

    :param url: address of the registry, several of one cluster with commas between; unless given, the client
        setting ``schema.registry.url`` names it.
    :raises TopologyError: the text is no URL, or holds credentials.

    >>> from airflow_kstreams.kafka.schema_registry import SchemaRegistry
    >>> registry = SchemaRegistry("mock://example")
    >>> carrier = registry.avro('{"type": "record", "name": "Carrier", "fields": '
    ...                         '[{"name": "code", "type": "string"}]}')
    >>> carrier
    serdes.avro(Carrier, 2aa3c27de3bb252b)
    >>> in_topic = carrier.bound("carriers", "value")    # a task does this
    >>> in_topic.serialize({"code": "UA"})               # 00, the schema's id in 4 bytes, Avro
    b'\x00\x00\x00\x00\x01\x04UA'
    >>> in_topic.deserialize(b"\x00\x00\x00\x00\x01\x04B6")
    {'code': 'B6'}
    """

    def __init__(self, url: str = "") -> None:
        fault = url_fault(url) if url else None
        if fault:
            raise TopologyError(
                f"the URL given to SchemaRegistry at {call_site()} {fault}",
                fix="write SchemaRegistry('http://HOST:8081'); credentials go into the client setting "
                "schema.registry.basic.auth.user.info",
            )
        self.url = url

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"

    def client(self) -> SchemaRegistryClient:
        """Return confluent-kafka's client of this registry, which all tasks of this process share.

        It stays open when it is closed, since the others use it.

        Tests and tools use it to register schemas ahead, or to see what was registered.

        :raises ConfigError: no registry is named, its settings are refused, or the extra is not installed.

        >>> from airflow_kstreams.kafka.schema_registry import SchemaRegistry
        >>> registry = SchemaRegistry("mock://empty")
        >>> registry.client().get_subjects()
        []
        """
        return client_of(self.url)

    def avro(
        self,
        schema: str | None = None,
        *,
        logical_types: bool = True,
        **options: Unpack[RegistryOptions],
    ) -> Serde:
        """Return the serde of Avro: a record is a dict, other types are what they are in Python.

        A record written with another schema is read as this one, by Avro's rules: fields it lacks take their
        defaults, fields that only it has are left out. A dict to write may lack fields that have a default,
        and must hold no others. A value that does not fit its type, in a union or not, is an error of its
        record. Where a union has several records, a dict's key ``-type`` holds the full name of its own.

        :param schema: JSON text; None reads each record as it was written, and writes none.
        :param logical_types: whether logical types of this schema are Python's own: datetimes, dates, times,
            decimals and UUIDs. If not, they are numbers, bytes and texts.
        :raises TopologyError: the schema is no JSON.

        >>> from airflow_kstreams.kafka.schema_registry import SchemaRegistry
        >>> SchemaRegistry().avro('"string"', auto_register_schemas=False)
        serdes.avro(string, e9e5c1c9e4f62773, registered only)
        """
        _check_text(schema, "avro")
        return self._serde(AvroFormat(schema=schema, logical_types=logical_types), options)

    def json_schema(
        self,
        schema: str | None = None,
        **options: Unpack[RegistryOptions],
    ) -> Serde:
        r"""Return the serde of JSON that a JSON Schema describes: an object is a dict.

        Values are checked against the schema when they are written and when they are read. One that JSON
        would hold as another, e.g. NaN, which it has not, is an error of its record.

        :param schema: the schema's text, with a ``title`` if subjects are named by record; None checks each
            record by the schema it was written with, and writes none.
        :raises TopologyError: the schema is no JSON.

        >>> from airflow_kstreams.kafka.schema_registry import SchemaRegistry
        >>> serde = SchemaRegistry("mock://json").json_schema('{"type": "object"}').bound("orders", "value")
        >>> serde.serialize({"cents": 5})
        b'\x00\x00\x00\x00\x01{"cents":5}'
        """
        _check_text(schema, "json_schema")
        return self._serde(JsonSchemaFormat(schema=schema), options)

    def protobuf(
        self,
        message: type[M],
        **options: Unpack[RegistryOptions],
    ) -> Serde[M]:
        r"""Return the serde of a Protocol Buffers message: values are instances of its class.

        A message of another full name is refused. One written by another version of its file is read by
        Protobuf's rules: fields it lacks have their defaults.

        :param message: a class that ``protoc`` generated.
        :raises TopologyError: the argument is no such class.

        >>> from airflow_kstreams.kafka.schema_registry import SchemaRegistry
        >>> from google.protobuf.wrappers_pb2 import StringValue
        >>> serde = SchemaRegistry("mock://protobuf").protobuf(StringValue).bound("names", "value")
        >>> serde.serialize(StringValue(value="UA"))    # id, path of the message in its file, message
        b'\x00\x00\x00\x00\x01\x02\x0e\n\x02UA'
        """
        if not isinstance(message, type) or not hasattr(message, "DESCRIPTOR"):
            raise TopologyError(
                f"protobuf at {call_site()} is given {message!r:.80}, expected a message class",
                fix="pass the class that protoc generated, e.g. flights_pb2.Flight",
            )
        return self._serde(ProtobufFormat(message=message), options)

    def _serde(self, schema: SchemaFormat, options: RegistryOptions) -> Serde:
        subject_names = options.get("subject_names", "topic")
        check_choice(f"{schema.name} at {call_site()}", get_args(SubjectNames), subject_names=subject_names)
        if subject_names != "topic" and schema.record_name is None:
            raise TopologyError(
                f"{schema.name} at {call_site()} names subjects by record, but its schema has no name",
                fix="give the schema a name (JSON Schema: a title), or leave out subject_names",
            )
        return RegistrySerde(format=schema, url=self.url, **options).unbound()


def _check_text(schema: Any, call: str) -> None:
    """Refuse a schema that is no JSON text; an invalid schema is refused when a task starts to use it.

    :raises TopologyError: the schema is no JSON text.
    """
    if schema is None:
        return
    try:
        if isinstance(schema, str):
            json.loads(schema)
            return
        found = type(schema).__name__
    except ValueError as error:
        found = f"a text that is no JSON: {error}"
    raise TopologyError(
        f"{call} at {call_site()} is given {found}, expected a schema as JSON text",
        fix="pass the schema's text, e.g. what json.dumps(schema) gives",
    ) from None
