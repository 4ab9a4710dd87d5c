"""Reads Avro as the reader's schema says, where fastavro goes by the writer's.

fastavro converts a logical type that the writer's schema has, whatever the reader's says. It gives the
default of a field as it stands in the schema's JSON, the same list or dict for each record, and drops the
name of the record that a union held. Here each pair of schemas, the writer's and the reader's, is compared
once. It gives

- a writer's schema without the logical types that the reader's does not have;
- a reader's schema in which the records of a union have one field more, ``-type``. No writer has that field,
  so that each record gets its default: the name;
- a function that finishes what fastavro read. Where both schemas agree there is nothing to finish.

Two logical types that are the same in Python, e.g. timestamps in milliseconds and in microseconds, agree:
the value is read in the unit it was written in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import fastavro.read
from confluent_kafka.schema_registry.avro import AvroDeserializer

from airflow_kstreams.kafka.schema_registry.avro_bounds import BoundsOfBytes, check_avro
from airflow_kstreams.kafka.schema_registry.avro_writing import (
    TYPE_KEY,
    Schema,
    default_of,
    logical_type,
    named_types,
    rebuilt,
    type_name,
    unknown_client,
    without_logical_types,
)
from airflow_kstreams.kafka.schema_registry.schema_bounds import (
    BrokenSchemaError,
    ParsesWithinBounds,
    within_bounds,
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
#: Avro types by what fastavro reads them as; of those whose values are the same, the first.
_PYTHON_KINDS = {
    int: "int",
    float: "float",
    str: "string",
    bytes: "bytes",
    dict: "map",
    list: "array",
    bool: "boolean",
}
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class ResolvingDeserializer(ParsesWithinBounds, AvroDeserializer):
    """confluent-kafka's deserializer, which compares a record's schema with the reader's.

    :param client: client of the registry.
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
        self._empty = self._adapted = False
        self._unread: Any = None
        conf = {**conf, "schema.id.deserializer": self._payload}
        super().__init__(client, schema, from_dict=self._finished, conf=conf)
        if not hasattr(self, "_reader_schema"):
            raise unknown_client("keeps the reader's schema under another name")
        self._given = self._schema

    def __call__(self, data: bytes | None, ctx: Any = None) -> Any:
        """Read a value; confluent-kafka takes an id without a byte after it for another format.

        An empty text of bytes, or a record without fields, has no bytes of its own.
        """
        self._adapted = False
        self._empty = data is not None and len(data) == _ID_BYTES
        return super().__call__(data + b"\0" if data is not None and self._empty else data, ctx)

    def _payload(self, data: bytes, context: Any, schema_id: Any) -> Any:
        self._unread = self._read_id(data[:_ID_BYTES] if self._empty else data, context, schema_id)
        return self._unread

    def _checked(self, parsed: Any) -> Any:
        check_avro(parsed)
        return parsed

    def _get_reader_schema(self, subject: str, fmt: str | None = None) -> Any:
        self._latest = super()._get_reader_schema(subject, fmt)
        return self._latest

    def _get_writer_schema(self, schema_id: Any, subject: str | None = None, fmt: str | None = None) -> Any:
        written_as = super()._get_writer_schema(schema_id, subject, fmt)
        read_as = (self._given if self._latest is None else self._latest.schema) or written_as
        if written_as is not self._written_as or read_as is not self._read_as:
            key = written_as, read_as
            if key not in self._resolutions:
                self._resolution = None
                writer, reader = (self._get_parsed_schema(schema) for schema in key)
                self._resolutions[key] = within_bounds(
                    lambda: Resolution(writer, reader, logical_types=self._logical_types)
                )
            self._written_as, self._read_as, self._resolution = written_as, read_as, self._resolutions[key]
            self._schema, self._reader_schema = read_as, self._resolution.reader
        bounds = self._resolutions[written_as, read_as].bounds
        # Rules of the schema may have encrypted the bytes.
        if bounds.needed and not getattr(written_as.rule_set, "encoding_rules", None):
            bounds.check(self._unread.getvalue()[self._unread.tell() :])
        return written_as

    def _get_parsed_schema(self, schema: Any) -> Schema:
        if self._resolution is not None:
            # The writer's is asked for first; both may be one.
            if schema is self._written_as and not self._adapted:
                self._adapted = True
                return self._resolution.writer
            if schema is self._read_as:
                return self._resolution.reader
        return super()._get_parsed_schema(schema)

    def _finished(self, value: Any, _: Any) -> Any:
        if self._resolution is None or not self._adapted:
            raise unknown_client("reads Avro without asking for the writer's schema and its parsed form")
        finish = self._resolution.finish
        return value if finish is None else finish(value)


class Resolution:
    """Reads records of one schema as another's.

    :param writer: schema of the records, parsed.
    :param reader: schema to read them as, parsed.
    :param logical_types: whether those of the reader are converted.
    :raises BrokenSchemaError: a union holds two types for one number, and only one of them is converted.

    >>> Resolution("long", "long", logical_types=True).finish is None
    True
    """

    def __init__(self, writer: Schema, reader: Schema, *, logical_types: bool) -> None:
        self._logical_types = logical_types
        self._writers, self._readers = named_types(writer), named_types(reader)
        self._records: dict[tuple[str, str], Finish | None] = {}
        self._kept: set[int] = set()
        self._typed = _told_apart(reader, self._readers)
        #: Finishes a record; None if there is nothing to do.
        self.finish = self._pair(writer, reader, top=True)
        #: The writer's schema, to read by.
        self.writer = without_logical_types(writer, frozenset(self._kept))
        #: Looks over bytes before they are read.
        self.bounds = BoundsOfBytes(writer)
        #: The reader's schema, to read as.
        self.reader = rebuilt(reader, self._with_type) if self._typed else reader

    def _with_type(self, node: Schema) -> Schema:
        if node.get("name") not in self._typed:
            return node
        field = {"name": TYPE_KEY, "type": "string", "default": node["name"]}
        return {**node, "fields": [*node["fields"], field]}

    def _pair(
        self, writer: Schema, reader: Schema, *, top: bool = False, named: bool = False
    ) -> Finish | None:
        """Return what finishes a value of one place.

        :param named: whether a record of that place keeps its name.
        """
        writer, reader = self._writers.get(_text(writer), writer), self._readers.get(_text(reader), reader)
        if isinstance(writer, list):
            return self._written_union(writer, reader)
        if isinstance(reader, list):
            branch = self._branch(writer, reader)
            return None if branch is None else self._pair(writer, branch, named=self._several(reader))
        kind, read_kind = _kind(writer), _kind(reader)
        inner: Finish | None = None
        if kind == read_kind == "record":
            inner = self._record(writer, reader)
            if reader["name"] in self._typed and not named:
                inner = _untyped(inner)
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
            value = self._default(branch, value)
            named = _kind(branch) == "record" and self._several(schema)
            return {TYPE_KEY: type_name(branch), **value} if named else value
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
        """Return what finishes a value of a union: a record by its name, another by its type in Python."""
        finishes: dict[str, Finish | None] = {}
        alone = "map"
        several = isinstance(reader, list) and self._several(reader)
        for branch in writer:
            actual = self._writers.get(_text(branch), branch)
            read_as = self._branch(actual, reader if isinstance(reader, list) else [reader])
            if read_as is None:
                continue
            finish = self._pair(actual, read_as, named=several)
            kind = _SAME_VALUES.get(_kind(read_as), _kind(read_as))
            if kind == "record":
                kind = type_name(read_as)
                alone = alone if kind in self._typed else kind
            if finishes.setdefault(kind, finish) is not finish:
                raise BrokenSchemaError(
                    f"the union of {' and '.join(map(type_name, writer))} does not tell which of them "
                    "the reader converts: give both schemas the same logical types and defaults"
                )
        if not any(finishes.values()):
            return None

        def finished(value: Any) -> Any:
            kind = _PYTHON_KINDS.get(type(value), "null")
            if kind == "map":
                name = value.get(TYPE_KEY)
                kind = name if name in self._typed else alone
            finish = finishes.get(kind)
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
        return sum(_kind(self._readers.get(_text(branch), branch)) == "record" for branch in union) > 1


def _told_apart(schema: Schema, named: dict[str, Schema]) -> set[str]:
    """Return the records that stand in a union anywhere beside another one, or beside a map."""
    unions: list[list[Schema]] = []

    def change(node: Schema) -> Schema:
        fields = [field["type"] for field in node.get("fields", ())]
        unions.extend(part for part in (node.get("items"), node.get("values"), *fields) if type(part) is list)
        return node

    rebuilt(schema, change)
    unions += [schema] if isinstance(schema, list) else []
    found: set[str] = set()
    for union in unions:
        dicts: list[Schema] = [named.get(_text(branch), branch) for branch in union]
        dicts = [branch for branch in dicts if _kind(branch) in ("record", "map")]
        if len(dicts) > 1:
            found.update(branch["name"] for branch in dicts if _kind(branch) == "record")
    return found


def _text(schema: Schema) -> str:
    return schema if isinstance(schema, str) else ""


def _kind(schema: Schema) -> str:
    """Return the name of an Avro type that is no union; an error is a record."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    return _kind(kind) if isinstance(kind, dict) else "record" if kind == "error" else str(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _untyped(finish: Finish | None) -> Finish:
    """Return what finishes a record, and takes the key away that names it."""
    return _without_type if finish is None else lambda value: _without_type(finish(value))


def _without_type(value: Any) -> Any:
    value.pop(TYPE_KEY, None)
    return value


def _each_item(finish: Finish | None) -> Finish | None:
    return None if finish is None else lambda items: [finish(item) for item in items]


def _each_value(finish: Finish | None) -> Finish | None:
    return None if finish is None else lambda items: {key: finish(item) for key, item in items.items()}


def _given(value: Any) -> Finish:
    """Return what gives a default; a record's own, since a function may edit it in place."""
    return (lambda _: copy.deepcopy(value)) if isinstance(value, dict | list) else lambda _: value
