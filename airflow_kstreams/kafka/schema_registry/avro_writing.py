"""Writes Avro, and refuses a value that does not fit its schema before a byte of it is written.

fastavro writes what it can make bytes of: 1 for the long 1.9, true for the boolean ``"false"``, infinity
for the float 1e300, any text for a UUID, and the time of the executor's zone for a datetime without one.
Inside a union it checks some of these. Here a schema becomes a function, once, that returns the value to
write or raises :class:`MisfitError`; it checks every value in the same way, in a union or not, and calls
neither fastavro's validation nor its parser for a record.

A value is returned as it came in unless fastavro would write it in another way than it was judged: a value
for one of several branches of a union becomes fastavro's pair of branch and value, the ``-type`` of a dict
becomes that branch, and a field that is left out takes a default that holds bytes. Nothing given is changed
in place.
"""

from __future__ import annotations

import array
import datetime
import decimal
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import confluent_kafka
import fastavro.write
from confluent_kafka.schema_registry.avro import AvroSerializer
from fastavro.schema import parse_schema

from airflow_kstreams.kafka.schema_registry.avro_bounds import check_avro
from airflow_kstreams.kafka.schema_registry.schema_bounds import (
    MAX_STEPS,
    BrokenSchemaError,
    ParsesWithinBounds,
    within_bounds,
)
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.hints.hidden_values import without_values

#: A parsed schema of Avro: text, dict, or list of a union's branches.
Schema = Any
#: Returns the value for fastavro to write.
Fit = Callable[[Any], Any]
#: Version of confluent-kafka whose methods are overridden here and in :mod:`avro_reading`.
TESTED_CLIENT = "2.16.1"
#: Key of a dict that names its record type, where a union has several.
TYPE_KEY = "-type"

_MISSING = object()
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: A float of 32 bits is infinite from the first on, and 0 up to the second.
_FLOAT_LIMIT, _FLOAT_ZERO = 2.0**128 - 2.0**103, 2.0**-150
_INTEGERS = {"int": 32, "long": 64}
_NAMED = ("record", "error", "enum", "fixed")
_ARRAYS = (Sequence, array.array)
_NO_ARRAYS = (str, bytes, bytearray)
_DAY_SECONDS = 24 * 60 * 60
_TIMES_OF_DAY = {"int-time-millis": 10**3, "long-time-micros": 10**6}


class MisfitError(ValueError):
    """A value that does not fit; its text names place and type, and never shows the value.

    :param where: the field, ``record.field``, or ``the value``.
    :param wanted: type that it must have.
    :param why: fault of a value that has the type; empty if it has another.
    """

    def __init__(self, where: str, wanted: str, why: str = "") -> None:
        super().__init__(f"{where} must be {wanted}{', ' if why else ''}{why}")
        self.wanted = wanted
        self.why = why


class FittingSerializer(ParsesWithinBounds, AvroSerializer):
    """confluent-kafka's serializer, with a check of every value.

    :param client: client of the registry.
    :param schema: its text; None writes by the latest version.
    :param logical_types: whether logical types take Python's own, e.g. datetimes.
    """

    def __init__(self, client: Any, schema: str | None, conf: dict[str, Any], *, logical_types: bool) -> None:
        self._logical_types = logical_types
        self._fits: dict[Any, Fit] = {}
        self._subject_asked = False
        self._latest: Any = None
        super().__init__(client, schema, to_dict=self._fitted, conf=conf)

    def _checked(self, parsed: Any) -> Any:
        check_avro(parsed)
        return parsed

    def _get_reader_schema(self, subject: str, fmt: str | None = None) -> Any:
        self._subject_asked = True
        self._latest = super()._get_reader_schema(subject, fmt)
        return self._latest

    def _fitted(self, value: Any, _: Any) -> Any:
        if not self._subject_asked:
            raise unknown_client("writes Avro without asking for a subject's latest version")
        schema: Any = self._schema if self._latest is None else self._latest.schema
        if schema not in self._fits:
            parsed = self._get_parsed_schema(schema)
            self._fits[schema] = within_bounds(
                lambda: fit_of(parsed if self._logical_types else without_logical_types(parsed))
            )
        return self._fits[schema](value)


def unknown_client(does: str) -> ConfigError:
    """Build the error for a version of confluent-kafka that does not call what is overridden here.

    :param does: the thing that the client does instead, a verb first.
    """
    return ConfigError(
        f"confluent-kafka {confluent_kafka.__version__} {does}, which the serde of Avro builds on",
        fix=f"install a version that it is tested with: pip install 'confluent-kafka=={TESTED_CLIENT}'",
    )


def fit_of(schema: Schema) -> Fit:
    """Return the function that judges the values of a schema.

    >>> fit_of({"type": "array", "items": "int"})([1, 2**31 - 1])
    [1, 2147483647]
    >>> fit_of({"type": "array", "items": "int"})([2**31])
    Traceback (most recent call last):
    airflow_kstreams.kafka.schema_registry.avro_writing.MisfitError: the value must be int, of 32 bits
    """
    return _Fits(schema).of(schema, "the value")


def named_types(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return the definitions in a parsed schema by full name."""
    found: dict[str, dict[str, Any]] = {}

    def look(node: Schema) -> None:
        if isinstance(node, list):
            for branch in node:
                look(branch)
        elif isinstance(node, dict):
            if node["type"] in _NAMED:
                found[node["name"]] = node
            for inner in _inner(node):
                look(inner)

    look(schema)
    return found


def without_logical_types(schema: Schema, keep: frozenset[int] = frozenset()) -> Schema:
    """Return a parsed schema whose logical types are left out.

    :param keep: ids of the dicts that keep theirs.
    """

    def bare(node: dict[str, Any]) -> dict[str, Any]:
        return node if id(node) in keep else {key: node[key] for key in node if key != "logicalType"}

    return rebuilt(schema, bare)


def rebuilt(schema: Schema, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Schema:
    """Return a parsed schema in which another dict stands for each one."""

    def build(node: Schema) -> Schema:
        if isinstance(node, list):
            return [build(branch) for branch in node]
        if not isinstance(node, dict):
            return node
        out = {name: part for name, part in change(node).items() if name[:2] != "__"}
        if "fields" in out:
            out["fields"] = [{**field, "type": build(field["type"])} for field in out["fields"]]
        for name in ("items", "values", "type"):
            if isinstance(out.get(name), dict | list):
                out[name] = build(out[name])
        return out

    return parse_schema(build(schema))


def type_name(schema: Schema) -> str:
    """Return the name of a parsed schema's type: the full name of a named one."""
    if isinstance(schema, list):
        return "union"
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema["name"]) if schema["type"] in _NAMED else type_name(schema["type"])


def logical_type(schema: Schema) -> str:
    """Return fastavro's name of a logical type, e.g. ``long-timestamp-millis``; "" if there is none."""
    if isinstance(schema, dict) and isinstance(schema.get("logicalType"), str):
        return f"{schema['type']}-{schema['logicalType']}"
    return ""


def default_of(
    schema: Schema, default: Any, named: Mapping[str, Schema], _left: list[int] | None = None
) -> Any:
    """Return what a default in a schema's JSON stands for, by the rules of Avro, without logical types.

    :raises BrokenSchemaError: it stands for very many values, as where defaults of records have defaults.
    """
    left = _left if _left is not None else [MAX_STEPS]
    left[0] -= 1
    if left[0] < 0:
        raise BrokenSchemaError(f"a default of it stands for more than {MAX_STEPS:,} values")
    if isinstance(schema, list):
        return default_of("null" if default is None else schema[0], default, named, left)
    if isinstance(schema, str):
        if schema in named:
            return default_of(named[schema], default, named, left)
        if schema in ("float", "double"):
            return float(default)
        return default.encode("latin-1") if schema == "bytes" and isinstance(default, str) else default
    kind = schema["type"]
    if kind == "array":
        return [default_of(schema["items"], item, named, left) for item in default]
    if kind == "map":
        return {key: default_of(schema["values"], item, named, left) for key, item in default.items()}
    if kind in ("record", "error"):
        return {
            field["name"]: default_of(
                field["type"], default.get(field["name"], field.get("default")), named, left
            )
            for field in schema["fields"]
        }
    if kind == "enum":
        return default
    return default_of("bytes" if kind == "fixed" else kind, default, named, left)


def _inner(node: dict[str, Any]) -> list[Schema]:
    """Return the schemas inside one."""
    fields = [field["type"] for field in node.get("fields", ())]
    return fields + [
        node[name] for name in ("items", "values", "type") if isinstance(node.get(name), dict | list)
    ]


class _Fits:
    """Builds the functions of one schema; those of records are shared, since a record may hold itself."""

    def __init__(self, schema: Schema) -> None:
        self.named = named_types(schema)
        self._records: dict[str, Fit] = {}

    def of(self, schema: Schema, where: str) -> Fit:
        """Return the function for a value at one place."""
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            return self.of(self.named[schema], where) if schema in self.named else _primitive(schema, where)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, where)
        if kind in ("record", "error"):
            base = self._record(schema, where)
        elif kind == "array":
            base = _array(self.of(schema["items"], where), where)
        elif kind == "map":
            base = _map(self.of(schema["values"], where), where)
        elif kind == "enum":
            base = _enum(schema, where)
        elif kind == "fixed":
            base = _fixed(schema, where)
        else:
            base = self.of(kind, where)
        return _logical(schema, base, where)

    def _record(self, schema: Schema, where: str) -> Fit:
        name = schema["name"]
        if name not in self._records:
            # While its fields are built, a record that holds itself is looked up when it is used.
            self._records[name] = lambda value: self._records[name](value)
            self._records[name] = self._record_fields(schema)
        fields = self._records[name]

        def fit(value: Any) -> Any:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise MisfitError(where, name)
            return fields(value)

        return fit

    def _record_fields(self, schema: Schema) -> Fit:
        name = schema["name"]
        fields = []
        for field in schema["fields"]:
            place = f"{name}.{field['name']}"
            default = _MISSING
            if "default" in field:
                meant = default_of(field["type"], field["default"], self.named)
                # fastavro writes every other default as it is.
                default = meant if meant != field["default"] else None
            fields.append((field["name"], self.of(field["type"], place), default, field["type"]))
        known = {field[0] for field in fields}

        def fit(value: Any) -> Any:
            out = value if type(value) is dict else dict(value)
            found = 0
            for key, fit_field, default, kind in fields:
                item = value.get(key, _MISSING)
                if item is _MISSING:
                    if default is _MISSING:
                        raise MisfitError(f"{name}.{key}", _wanted(kind), "and is missing")
                    if default is None:
                        continue
                    new = default
                else:
                    found += 1
                    new = fit_field(item)
                    if new is item:
                        continue
                if out is value:
                    out = dict(value)
                out[key] = new
            if found != len(value):
                return _without_type(out, known, name)
            return out

        return fit

    def _union(self, schema: list[Schema], where: str) -> Fit:
        """Return the function of a union; a value that fits several branches goes where fastavro puts it."""
        branches = {type_name(branch): self.of(branch, where) for branch in schema}
        nullable = branches.pop("null", None) is not None
        records = {name for name in branches if self._is_record(name)}
        if len(branches) == 1:
            [(only, fit_only)] = branches.items()
            return _optional(only, fit_only, _wanted(schema), where, nullable=nullable)
        choose = _choice(branches, {name: self._names_in(name) for name in records}, _wanted(schema), where)
        return lambda value: None if value is None and nullable else choose(value)

    def _names_in(self, record: str) -> set[str]:
        return {field["name"] for field in self.named[record]["fields"]}

    def _is_record(self, name: str) -> bool:
        return name in self.named and self.named[name]["type"] in ("record", "error")


def _optional(only: str, fit_only: Fit, wanted: str, where: str, *, nullable: bool) -> Fit:
    """Return the function of a union with one branch beside null, which needs no name."""

    def fit(value: Any) -> Any:
        if value is None and nullable:
            return None
        if type(value) is tuple and len(value) == 2 and value[0] == only:
            value = value[1]
        try:
            return fit_only(value)
        except MisfitError as misfit:
            raise _nearest([misfit], where, wanted) from None

    return fit


def _choice(branches: dict[str, Fit], records: dict[str, set[str]], wanted: str, where: str) -> Fit:
    """Return the function that chooses one of several branches, and gives the pair of its name and the value.

    :param records: names of the fields of those branches that are records.
    """
    # Of the two types of floats the wider is taken.
    order = sorted(branches, key=lambda name: name == "float" and "double" in branches)

    def named(value: Any) -> str | None:
        if type(value) is tuple:
            if len(value) != 2 or not isinstance(value[0], str) or value[0] not in branches:
                raise MisfitError(where, wanted, "and the first of a tuple names one of them")
            return value[0]
        name = value.get(TYPE_KEY) if isinstance(value, Mapping) else None
        return name if isinstance(name, str) and name in records else None

    def choose(value: Any) -> tuple[str, Any]:
        name = named(value)
        if name is not None:
            return name, branches[name](value[1] if type(value) is tuple else value)
        fits: list[tuple[int, str, Any]] = []
        near: list[MisfitError] = []
        for name in order:
            try:
                new = branches[name](value)
            except MisfitError as misfit:
                near.append(misfit)
                continue
            if name not in records:
                return name, new
            fits.append((len(records[name] & set(value)), name, new))
        if not fits:
            raise _nearest(near, where, wanted)
        # Of several records, the first of those that have the most of its fields.
        _, name, new = max(fits, key=lambda fit: fit[0])
        return name, new

    return choose


def _nearest(near: list[MisfitError], where: str, wanted: str) -> MisfitError:
    """Return the fault of a value that fits no branch: inside the one branch it is meant for, else of all."""
    inside = [misfit for misfit in near if misfit.why or not str(misfit).startswith(f"{where} must be ")]
    return inside[0] if len(inside) == 1 else MisfitError(where, wanted)


def _without_type(value: dict[str, Any], known: set[str], name: str) -> dict[str, Any]:
    """Return a record without the key that names its type; another key that the schema lacks is refused."""
    extra = sorted(str(key) for key in value if key not in known and key != TYPE_KEY)
    if extra:
        named = without_values(", ".join(extra), own="")
        raise MisfitError("the value", name, f"has more fields than the schema specifies: {named}")
    if value.get(TYPE_KEY, name) != name:
        raise MisfitError("the value", name, f"and its {TYPE_KEY} names another record")
    return {key: item for key, item in value.items() if key != TYPE_KEY}


def _wanted(schema: Schema) -> str:
    branches = schema if isinstance(schema, list) else [schema]
    return " or ".join(dict.fromkeys(map(type_name, branches)))


def _primitive(kind: str, where: str) -> Fit:
    if kind in _INTEGERS:
        return _integer(kind, where)
    if kind == "float":
        return _float(where)
    return {"null": _null, "boolean": _boolean, "double": _double, "string": _string, "bytes": _bytes}[kind](
        where
    )


def _null(where: str) -> Fit:
    def fit(value: Any) -> Any:
        if value is not None:
            raise MisfitError(where, "null")
        return value

    return fit


def _boolean(where: str) -> Fit:
    def fit(value: Any) -> Any:
        if value is not True and value is not False:
            raise MisfitError(where, "boolean")
        return value

    return fit


def _integer(kind: str, where: str) -> Fit:
    bits = _INTEGERS[kind]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def fit(value: Any) -> Any:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise MisfitError(where, kind)
        if not low <= value <= high:
            raise MisfitError(where, kind, f"of {bits} bits")
        return value

    return fit


def _double(where: str) -> Fit:
    def fit(value: Any) -> Any:
        return value if type(value) is float else _number(value, where, "double")

    return fit


def _float(where: str) -> Fit:
    def fit(value: Any) -> Any:
        number = value if type(value) is float else _number(value, where, "float")
        size = abs(number)
        # NaN is neither, infinity and 0 are what they are.
        if _FLOAT_LIMIT <= size < float("inf") or 0 < size <= _FLOAT_ZERO:
            raise MisfitError(where, "float", "which has no number of that size")
        if isinstance(value, Integral) and struct.unpack("f", struct.pack("f", number))[0] != value:
            raise MisfitError(where, "float", "which does not hold a whole number of that length")
        return number

    return fit


def _number(value: Any, where: str, kind: str) -> float:
    """Return a number as a float; a whole number must be that very number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise MisfitError(where, kind)
    try:
        number = float(value)
    except OverflowError:
        raise MisfitError(where, kind, "which has no number of that size") from None
    if isinstance(value, Integral) and number != value:
        raise MisfitError(where, kind, "which does not hold a whole number of that length")
    return number


def _string(where: str) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, str):
            raise MisfitError(where, "string")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise MisfitError(where, "string", "and holds half of a surrogate pair") from None
        return value

    return fit


def _bytes(where: str) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is bytes:
            return value
        if not isinstance(value, bytes | bytearray):
            raise MisfitError(where, "bytes")
        return bytes(value)

    return fit


def _fixed(schema: Schema, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, bytes | bytearray):
            raise MisfitError(where, schema["name"])
        if len(value) != schema["size"]:
            raise MisfitError(where, schema["name"], f"of {counted(schema['size'], 'byte')}")
        return value

    return fit


def _enum(schema: Schema, where: str) -> Fit:
    symbols = frozenset(schema["symbols"])

    def fit(value: Any) -> Any:
        if not isinstance(value, str):
            raise MisfitError(where, schema["name"])
        if value not in symbols:
            raise MisfitError(where, schema["name"], "one of its symbols")
        return value

    return fit


def _array(fit_item: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is not list and (isinstance(value, _NO_ARRAYS) or not isinstance(value, _ARRAYS)):
            raise MisfitError(where, "array")
        for item in value:
            if fit_item(item) is not item:
                return [fit_item(each) for each in value]
        return value

    return fit


def _map(fit_item: Fit, where: str) -> Fit:
    fit_key = _string(f"a key of {where}")

    def fit(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise MisfitError(where, "map")
        changed = type(value) is not dict
        for key, item in value.items():
            fit_key(key)
            changed = fit_item(item) is not item or changed
        return {key: fit_item(item) for key, item in value.items()} if changed else value

    return fit


def _logical(schema: Schema, base: Fit, where: str) -> Fit:
    """Return the function of a logical type, which takes Python's type, and what its own type takes."""
    known = logical_type(schema)
    if known in ("long-timestamp-millis", "long-timestamp-micros"):
        return _timestamp(schema["logicalType"], base, where)
    if known in ("long-local-timestamp-millis", "long-local-timestamp-micros"):
        return _local_timestamp(schema["logicalType"], base, where)
    if known == "int-date":
        return _date(base, where)
    if known in _TIMES_OF_DAY:
        return _time(schema["logicalType"], _TIMES_OF_DAY[known] * _DAY_SECONDS, base, where)
    if known in ("bytes-decimal", "fixed-decimal"):
        return _decimal(schema, base, where)
    if known == "string-uuid":
        return _uuid(base, where)
    prepare = fastavro.write.LOGICAL_WRITERS.get(known)
    return base if prepare is None else lambda value: base(prepare(value, schema))


def _timestamp(kind: str, base: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, datetime.datetime):
            return base(value)
        if value.utcoffset() is None:
            raise MisfitError(where, kind, "a datetime with a zone: give one, e.g. value.replace(tzinfo=UTC)")
        return value

    return fit


def _local_timestamp(kind: str, base: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, datetime.datetime):
            return base(value)
        if value.tzinfo is not None:
            raise MisfitError(where, kind, "a datetime without a zone: say which time is meant")
        return value

    return fit


def _date(base: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            raise MisfitError(where, "date", "a date: say which day is meant, e.g. value.date()")
        if isinstance(value, str):
            try:
                datetime.date.fromisoformat(value)
            except ValueError:
                raise MisfitError(where, "date", "as in 2024-12-31") from None
            return value
        return value if isinstance(value, datetime.date) else base(value)

    return fit


def _time(kind: str, day: int, base: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, datetime.time):
            if value.tzinfo is not None:
                raise MisfitError(where, kind, "a time without a zone")
            return value
        if not 0 <= base(value) < day:
            raise MisfitError(where, kind, "a time of one day")
        return value

    return fit


def _decimal(schema: Schema, base: Fit, where: str) -> Fit:
    precision, scale = schema["precision"], schema.get("scale", 0)
    wanted = f"decimal({precision}, {scale})"
    prepare = fastavro.write.LOGICAL_WRITERS[logical_type(schema)]

    def fit(value: Any) -> Any:
        if not isinstance(value, decimal.Decimal):
            try:
                data = base(value)
            except MisfitError as misfit:
                raise MisfitError(where, wanted, misfit.why) from None
            if abs(int.from_bytes(data, "big", signed=True)) >= 10**precision:
                raise MisfitError(where, wanted, "which has fewer digits")
            return data
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise MisfitError(where, wanted, "a finite number")
        if exponent + scale < 0:
            raise MisfitError(where, wanted, "which has fewer digits after the point")
        if value and len(digits) + exponent + scale > precision:
            raise MisfitError(where, wanted, "which has fewer digits")
        # A scale far above any number's has more zeros than a zero needs.
        return base(prepare(value if value else decimal.Decimal(0), schema))

    return fit


def _uuid(base: Fit, where: str) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return value
        try:
            text = base(value)
        except MisfitError:
            raise MisfitError(where, "uuid") from None
        if not _UUID.fullmatch(text):
            raise MisfitError(where, "uuid", "as in 123e4567-e89b-12d3-a456-426614174000")
        return value

    return fit
