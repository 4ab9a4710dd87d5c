"""Reads Avro as the reader's schema says, where fastavro goes by the writer's.

fastavro converts a logical type that the writer's schema has, whatever the reader's says. It gives the
default of a field as it stands in the schema's JSON, the same list or dict for each record, and drops the
name of the record that a union held. Here each pair of schemas, the writer's and the reader's, is compared
once. It gives a writer's schema without the logical types that the reader's does not have, and a function
that finishes what fastavro read. Where both schemas agree, and no union has several records, there is
nothing to finish.

Two logical types that are the same in Python, e.g. timestamps in milliseconds and in microseconds, agree:
the value is read in the unit it was written in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import fastavro.read
from confluent_kafka.schema_registry.avro import AvroDeserializer

from airflow_kstreams.kafka.schema_registry.avro_writing import (
    TYPE_KEY,
    Schema,
    default_of,
    logical_type,
    named_types,
    type_name,
    without_logical_types,
)

#: Finishes a value that fastavro read.
Finish = Callable[[Any], Any]

#: Length of the 0 and the schema's id at the beginning of a value.
_ID_BYTES = 5
#: Logical types by the type they have in Python.
_ALIKE = {
    "long-timestamp-millis": "timestamp",
    "long-timestamp-micros": "timestamp",
    "long-local-timestamp-millis": "local timestamp",
    "long-local-timestamp-micros": "local timestamp",
    "int-time-millis": "time",
    "long-time-micros": "time",
    "bytes-decimal": "decimal",
    "fixed-decimal": "decimal",
}
#: Types whose values are the same in Python.
_SAME_VALUES = {"long": "int", "double": "float", "enum": "string", "fixed": "bytes"}
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class ResolvingDeserializer(AvroDeserializer):
    """confluent-kafka's deserializer, which compares a record's schema with the reader's.

    :param client: of the registry.
    :param schema: the reader's, as text; None reads each record by its own.
    :param logical_types: whether logical types become Python's own, e.g. datetimes.
    """

    def __init__(self, client: Any, schema: str | None, conf: dict[str, Any], *, logical_types: bool) -> None:
        self._logical_types = logical_types
        self._latest: Any = None
        self._written_as: Any = None
        self._read_as: Any = None
        self._resolution: Resolution | None = None
        self._resolutions: dict[tuple[Any, Any], Resolution] = {}
        self._read_id = conf["schema.id.deserializer"]
        self._empty = False
        conf = {**conf, "schema.id.deserializer": self._payload}
        super().__init__(client, schema, from_dict=self._finished, conf=conf)

    def __call__(self, data: bytes | None, ctx: Any = None) -> Any:
        """Read a value; confluent-kafka takes an id without a byte after it for another format.

        An empty text of bytes, or a record without fields, has no bytes of its own.
        """
        self._empty = data is not None and len(data) == _ID_BYTES
        return super().__call__(data + b"\0" if data is not None and self._empty else data, ctx)

    def _payload(self, data: bytes, context: Any, schema_id: Any) -> Any:
        return self._read_id(data[:_ID_BYTES] if self._empty else data, context, schema_id)

    def _get_reader_schema(self, subject: str, fmt: str | None = None) -> Any:
        self._latest = super()._get_reader_schema(subject, fmt)
        return self._latest

    def _get_writer_schema(self, schema_id: Any, subject: str | None = None, fmt: str | None = None) -> Any:
        written_as = super()._get_writer_schema(schema_id, subject, fmt)
        read_as = self._schema if self._latest is None else self._latest.schema
        if written_as is not self._written_as or read_as is not self._read_as:
            key = written_as, read_as or written_as
            if key not in self._resolutions:
                self._resolution = None
                writer, reader = (self._get_parsed_schema(schema) for schema in key)
                self._resolutions[key] = Resolution(writer, reader, logical_types=self._logical_types)
            self._written_as, self._read_as, self._resolution = written_as, read_as, self._resolutions[key]
            self._return_record_name = self._resolution.names_records
        return written_as

    def _get_parsed_schema(self, schema: Any) -> Schema:
        if self._resolution is not None and schema is self._written_as:
            return self._resolution.writer
        return super()._get_parsed_schema(schema)

    def _finished(self, value: Any, _: Any) -> Any:
        finish = self._resolution.finish if self._resolution is not None else None
        return value if finish is None else finish(value)


class Resolution:
    """Reads records of one schema as another's.

    :param writer: schema of the records, parsed.
    :param reader: schema to read them as, parsed.
    :param logical_types: whether those of the reader are converted.
    :raises ValueError: a union holds two types for one number, and only one of them is converted.

    >>> Resolution("long", "long", logical_types=True).finish is None
    True
    """

    def __init__(self, writer: Schema, reader: Schema, *, logical_types: bool) -> None:
        self._logical_types = logical_types
        self._writers, self._readers = named_types(writer), named_types(reader)
        self._records: dict[tuple[str, str], Finish | None] = {}
        self._kept: set[int] = set()
        #: Whether fastavro is to give the records of unions with their names.
        self.names_records = _has_union_of_records(reader, self._readers)
        #: Finishes a record; None if there is nothing to do.
        self.finish = self._pair(writer, reader, top=True)
        #: The writer's schema, to read by.
        self.writer = without_logical_types(writer, frozenset(self._kept))

    def _pair(self, writer: Schema, reader: Schema, *, top: bool = False) -> Finish | None:
        """Return what finishes a value of one place."""
        writer, reader = self._writers.get(_text(writer), writer), self._readers.get(_text(reader), reader)
        if isinstance(writer, list):
            return self._written_union(writer, reader)
        if isinstance(reader, list):
            branch = self._branch(writer, reader)
            if branch is None:
                return None
            return _named(branch, self._pair(writer, branch), named=self._several(reader))
        kind, read_kind = _kind(writer), _kind(reader)
        inner: Finish | None = None
        if kind == read_kind == "record":
            inner = self._record(writer, reader)
        elif kind == read_kind == "array":
            inner = _each_item(self._pair(writer["items"], reader["items"]))
        elif kind == read_kind == "map":
            inner = _each_value(self._pair(writer["values"], reader["values"]))
        return self._logical(writer, reader, inner, raw=top and kind == "bytes")

    def _logical(self, writer: Schema, reader: Schema, inner: Finish | None, *, raw: bool) -> Finish | None:
        """Return what converts a logical type of the reader's that fastavro does not convert.

        :param raw: whether confluent-kafka hands over the bytes without fastavro, as it does where bytes are
            all there is.
        """
        wanted = logical_type(reader) if self._logical_types else ""
        found = logical_type(writer)
        convert = fastavro.read.LOGICAL_READERS.get(wanted)
        if convert is None:
            return inner
        if found and _ALIKE.get(found, found) == _ALIKE.get(wanted, wanted):
            if not raw:
                self._kept.add(id(writer))
                return inner
            return lambda value: convert(value, writer, None)
        return lambda value: convert(value if inner is None else inner(value), reader, None)

    def _record(self, writer: Schema, reader: Schema) -> Finish | None:
        key = writer["name"], reader["name"]
        if key not in self._records:
            # A record that holds itself is looked up when it is read, if anything in it is to be finished.
            self._records[key] = lambda value: (self._records[key] or _as_it_is)(value)
            self._records[key] = self._record_fields(writer, reader)
        return self._records[key]

    def _record_fields(self, writer: Schema, reader: Schema) -> Finish | None:
        by_name = {name: field for field in reader["fields"] for name in field.get("aliases", ())}
        by_name.update({field["name"]: field for field in reader["fields"]})
        steps: list[tuple[str, Finish]] = []
        left = {field["name"]: field for field in reader["fields"]}
        for field in writer["fields"]:
            read_as = by_name.get(field["name"])
            if read_as is None:
                continue
            left.pop(read_as["name"], None)
            finish = self._pair(field["type"], read_as["type"])
            if finish is not None:
                steps.append((read_as["name"], finish))
        for name, field in left.items():
            if "default" in field:
                value = self._default(
                    field["type"], default_of(field["type"], field["default"], self._readers)
                )
                if value != field["default"] or isinstance(value, dict | list):
                    steps.append((name, _given(value)))

        def finished(record: Any) -> Any:
            for name, finish in steps:
                if name in record:
                    record[name] = finish(record[name])
            return record

        return finished if steps else None

    def _default(self, schema: Schema, value: Any) -> Any:
        """Return a default as a record would be read that held it; of a union it is the first branch's."""
        schema = self._readers.get(_text(schema), schema)
        if isinstance(schema, list):
            if value is None:
                return None
            branch = self._readers.get(_text(schema[0]), schema[0])
            finish = _named(branch, None, named=self._several(schema)) or _as_it_is
            return finish(self._default(branch, value))
        kind = _kind(schema)
        if kind == "record":
            return {f["name"]: self._default(f["type"], value[f["name"]]) for f in schema["fields"]}
        if kind == "array":
            return [self._default(schema["items"], item) for item in value]
        if kind == "map":
            return {key: self._default(schema["values"], item) for key, item in value.items()}
        convert = fastavro.read.LOGICAL_READERS.get(logical_type(schema) if self._logical_types else "")
        return value if convert is None else convert(value, schema, None)

    def _written_union(self, writer: list[Schema], reader: Schema) -> Finish | None:
        """Return what finishes a value of a union; fastavro tells records by name, others by their type."""
        records: dict[str, Finish | None] = {}
        others: dict[str, Finish | None] = {}
        several = isinstance(reader, list) and self._several(reader)
        for branch in writer:
            actual = self._writers.get(_text(branch), branch)
            read_as = self._branch(actual, reader if isinstance(reader, list) else [reader])
            if read_as is None:
                continue
            finish = self._pair(actual, read_as)
            if _kind(actual) == "record":
                records[type_name(read_as)] = _named(read_as, finish, named=several)
            else:
                kind = _SAME_VALUES.get(_kind(read_as), _kind(read_as))
                if kind in others and (others[kind] is not None or finish is not None):
                    raise ValueError(
                        f"the union of {' and '.join(map(type_name, writer))} does not tell which of them "
                        "the reader converts: give both schemas the same logical types"
                    )
                others[kind] = finish
        if not self.names_records and not any(records.values()) and not any(others.values()):
            return None
        alone = next(iter(records.values())) if len(records) == 1 else None

        def finished(value: Any) -> Any:
            if isinstance(value, tuple):
                name, value = value
                finish = records.get(name) if name in records else others.get(_python_kind(value))
            elif type(value) is dict and "map" not in others:
                finish = alone
            else:
                finish = others.get(_python_kind(value))
            return value if finish is None else finish(value)

        return finished

    def _branch(self, writer: Schema, reader: list[Schema]) -> Schema | None:
        """Return the first branch that a value is read as, by Avro's rules; None if there is none."""
        for branch in reader:
            read_as = self._readers.get(_text(branch), branch)
            if self._matches(writer, read_as):
                return read_as
        return None

    def _matches(self, writer: Schema, reader: Schema) -> bool:
        writer, reader = self._writers.get(_text(writer), writer), self._readers.get(_text(reader), reader)
        if isinstance(writer, list) or isinstance(reader, list):
            return True
        kind, read_kind = _kind(writer), _kind(reader)
        if kind != read_kind:
            return read_kind in _PROMOTIONS.get(kind, ())
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return self._matches(writer[inner], reader[inner])
        if kind in ("record", "enum", "fixed"):
            names = {reader["name"], *reader.get("aliases", ())}
            short = {name.rpartition(".")[2] for name in names}
            size = kind != "fixed" or writer["size"] == reader["size"]
            return size and (writer["name"] in names or writer["name"].rpartition(".")[2] in short)
        return True

    def _several(self, union: list[Schema]) -> bool:
        return _records_in(union, self._readers) > 1


def _has_union_of_records(schema: Schema, named: dict[str, Schema]) -> bool:
    """Whether a union anywhere in a schema has several records."""
    if isinstance(schema, list):
        return _records_in(schema, named) > 1 or any(_has_union_of_records(b, named) for b in schema)
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields", ())]
    inner += [schema[name] for name in ("items", "values", "type") if name in schema]
    return any(_has_union_of_records(part, named) for part in inner)


def _records_in(union: list[Schema], named: dict[str, Schema]) -> int:
    return sum(_kind(named.get(_text(branch), branch)) == "record" for branch in union)


def _text(schema: Schema) -> str:
    return schema if isinstance(schema, str) else ""


def _kind(schema: Schema) -> str:
    """Return the name of an Avro type that is no union; an error is a record."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    return _kind(kind) if isinstance(kind, dict) else "record" if kind == "error" else str(kind)


def _python_kind(value: Any) -> str:
    """Return the Avro type of a value that fastavro read, of those whose values are the same the first."""
    kinds = {
        int: "int",
        float: "float",
        str: "string",
        bytes: "bytes",
        dict: "map",
        list: "array",
        bool: "boolean",
    }
    return kinds.get(type(value), "null")


def _as_it_is(value: Any) -> Any:
    return value


def _named(schema: Schema, finish: Finish | None, *, named: bool) -> Finish | None:
    """Return what finishes a record and gives it the key that names it."""
    if not named or _kind(schema) != "record":
        return finish
    name = type_name(schema)
    return lambda value: {TYPE_KEY: name, **(value if finish is None else finish(value))}


def _each_item(finish: Finish | None) -> Finish | None:
    return None if finish is None else lambda items: [finish(item) for item in items]


def _each_value(finish: Finish | None) -> Finish | None:
    return None if finish is None else lambda items: {key: finish(item) for key, item in items.items()}


def _given(value: Any) -> Finish:
    """Return what gives a default; a record's own, since a function may edit it in place."""
    return (lambda _: copy.deepcopy(value)) if isinstance(value, dict | list) else lambda _: value
