"""Makes columns of a user's row type.

A row type is a ``msgspec.Struct``, a dataclass, a pydantic model, or an Arrow schema, whose rows are dicts.

Rule: a column is named as :func:`serdes.of` writes its field: a ``rename`` of msgspec and an alias of
pydantic count, so a table and a topic of the same rows have the same names. A pydantic field with
``exclude=True`` is in neither. A ``datetime`` is taken as an instant; whether a value has a time zone is seen
when it comes (:mod:`airflow_kstreams.streams.tables.row_values`).

pydantic and pyarrow are known by the names of their classes, for neither need be installed.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, NoReturn
from uuid import UUID

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    PlainType,
    StructType,
)
from airflow_kstreams.streams.tables.arrow_types import arrow_shape, is_arrow_schema
from airflow_kstreams.streams.tables.row_shapes import RowField, RowShape, ValueShape

#: Most digits of a decimal number in Iceberg, Delta and Parquet.
MOST_DIGITS = 38
_TYPES_TO_WRITE = (
    "str, int, float, bool, bytes, Annotated[Decimal, Precision(18, 2)], date, datetime, UUID, an enum or "
    "Literal of texts, list[...], dict[str, ...], a struct, or one of them | None"
)


@dataclass(frozen=True, slots=True)
class Precision:
    """The digits of a decimal column: ``Annotated[Decimal, Precision(18, 2)]``.

    :param digits: number of digits in all, from 1 to 38.
    :param scale: number of them behind the point, from 0.
    :raises TopologyError: there are too many or too few.

    >>> Precision(18, 2)
    Precision(digits=18, scale=2)
    """

    digits: int
    scale: int = 0

    def __post_init__(self) -> None:
        whole = type(self.digits) is int and type(self.scale) is int
        if not (whole and 1 <= self.digits <= MOST_DIGITS and 0 <= self.scale <= self.digits):
            raise TopologyError(
                f"Precision({self.digits!r}, {self.scale!r}) at {call_site()} is none of a table's decimals",
                fix=f"give whole numbers: digits from 1 to {MOST_DIGITS}, and scale from 0 to digits",
            )


def row_shape(row: Any, *, table: str) -> RowShape:
    """Return the shape of a row type.

    :param row: the row type.
    :param table: the user's call, for messages: ``IcebergTable 'flights.carriers'``.
    :raises TopologyError: it is no row type, or a field has a type that no table has.

    >>> class Carrier(msgspec.Struct):
    ...     code: str
    ...     delays: list[float]
    ...     since: date | None = None
    >>> [str(column) for column in row_shape(Carrier, table="t").columns]
    ['code: text', 'delays: list<double>', 'since: date?']
    """
    reading = _Reading(table)
    if is_arrow_schema(row):
        shape = arrow_shape(row, reading.refuse)
    elif inspect.isclass(row) and _is_row_class(row):
        shape = reading.row(row, "", ())
    else:
        given = f"an instance of {type(row).__name__}" if _is_row_class(type(row)) else repr(row)
        raise TopologyError(
            f"{table} at {call_site()} is given row={given}, expected a type of rows",
            fix="give a msgspec.Struct, a dataclass or a pydantic model, as a class without parameters, or "
            "an Arrow schema for dicts",
        )
    check_names(shape.columns, table=table)
    return shape


def value_shape(annotation: Any, *, column: str, table: str) -> ValueShape:
    """Return the shape of a column's values, given the type as a field of a row has it.

    :param column: name of the column, for messages.
    :param table: as for :func:`row_shape`.
    :raises TopologyError: no table has such a type.
    """
    return _Reading(table).value(annotation, column, ())


def columns_of_row(row: Any, *, table: str = "row type") -> tuple[Column, ...]:
    """Return the columns of a row type, see :func:`row_shape`."""
    return row_shape(row, table=table).columns


def check_names(columns: tuple[Column, ...], *, table: str, within: str = "") -> None:
    """Refuse names that a table cannot have.

    :param within: the struct that has these columns, with a dot at the end; empty for those of rows.
    :raises TopologyError: a name has signs that some format does not allow, or is another one's but for
        capitals.
    """
    known: dict[str, str] = {}
    if not columns:
        raise TopologyError(
            f"{table} at {call_site()}: {within.rstrip('.') or 'the row type'} has no fields",
            fix="give it one, or leave the field out: tables have no empty structs",
        )
    for column in columns:
        name = column.name
        if not is_column_name(name):
            raise TopologyError(
                f"{table} at {call_site()}: {within + name!r} cannot be the name of a column",
                fix=f"give the column a name of {COLUMN_SIGNS} (rename= and aliases count)",
            )
        other = known.setdefault(name.casefold(), name)
        if other is not name:
            raise TopologyError(
                f"{table} at {call_site()}: columns {within + other!r} and {within + name!r} differ in "
                "capitals alone, which most engines do not look at",
                fix="rename one of them",
            )
        for inner, path in _structs_in(column.type, f"{within}{name}."):
            check_names(inner, table=table, within=path)


def _structs_in(kind: ColumnType, path: str) -> Iterator[tuple[tuple[Column, ...], str]]:
    match kind:
        case StructType():
            yield kind.columns, path
        case ListType():
            yield from _structs_in(kind.item, path)
        case MapType():
            yield from _structs_in(kind.value, path)


#: Signs that Delta does not allow in the name of a column, the dot that leads into structs, and quotes.
_NOT_IN_NAMES = frozenset(" ,;{}()=.`\"'/\\")
_LONGEST_NAME = 255
#: The signs of a name, for messages.
COLUMN_SIGNS = (
    f"1 to {_LONGEST_NAME} printable signs, without spaces, dots, brackets, quotes, slashes and , ; ="
)


def is_column_name(name: object) -> bool:
    """Return True if every format allows a name for a column."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and _NOT_IN_NAMES.isdisjoint(name)
    )


_PLAIN: Mapping[Any, PlainType] = {
    str: "text",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    date: "date",
    datetime: "instant",
    UUID: "uuid",
}
#: Class that is refused -> what to write.
_INSTEAD: Mapping[Any, str] = {
    Decimal: "Annotated[Decimal, Precision(18, 2)], with Precision of airflow_kstreams.streams",
    Any: _TYPES_TO_WRITE,
    object: _TYPES_TO_WRITE,
    list: "list[...], with the type of its items",
    dict: "dict[str, ...], with the type of its values, or a struct",
    tuple: "list[...], or a struct",
    set: "list[...]",
    frozenset: "list[...]",
    bytearray: "bytes",
    memoryview: "bytes",
    type(None): "another type, or leave the field out: it would have no values",
}


class _Reading:
    """Reads annotations.

    :param table: the user's call, for messages.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def row(self, kind: Any, path: str, outer: tuple[type, ...]) -> RowShape:
        """Return the shape of a class.

        :param path: the field that has it; empty for the row type itself.
        :param outer: the classes around it.
        """
        if kind in outer:
            self.refuse(
                path,
                f"{kind.__name__} within itself",
                "a struct for each level, for so many levels as there are",
            )
        fields = tuple(
            RowField(
                name=name,
                attribute=attribute,
                value=self.value(annotation, _path_of(path, name), (*outer, kind)),
            )
            for attribute, name, annotation in self._fields(kind, path)
        )
        if not fields:
            self.refuse(path or kind.__name__, "without fields", "one field at least, or leave it out")
        return RowShape(type=kind, name=kind.__name__, fields=fields)

    def _fields(self, kind: Any, path: str) -> list[tuple[str, str, Any]]:
        """Return attribute, name and annotation of each field."""
        try:
            if issubclass(kind, msgspec.Struct):
                return [(each.name, each.encode_name, each.type) for each in msgspec.structs.fields(kind)]
            if _is_model(kind):
                return [*_fields_of_model(kind)]
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, TypeError) as error:
            self.refuse(path or kind.__name__, f"unreadable: {error}", "types defined at the top of a module")
        return [(each.name, each.name, hints[each.name]) for each in dataclasses.fields(kind)]

    def value(self, annotation: Any, path: str, outer: tuple[type, ...]) -> ValueShape:
        """Return the shape of an annotation's values."""
        annotation, notes = _without_notes(annotation)
        origin = typing.get_origin(annotation)
        if origin in (typing.Union, types.UnionType):
            return self._union(annotation, notes, path, outer)
        if origin is Literal:
            return self._literal(typing.get_args(annotation), path)
        if origin in (list, dict):
            return self._container(origin, typing.get_args(annotation), path, outer)
        if annotation is Decimal:
            return self._decimal(notes, path)
        if annotation is datetime and any(_is_naive(note) for note in notes):
            self._refuse_naive(path)
        if inspect.isclass(annotation):
            return self._class(annotation, path, outer)
        return self._refuse_type(annotation, origin, path)

    def _class(self, kind: Any, path: str, outer: tuple[type, ...]) -> ValueShape:
        if (plain := _PLAIN.get(kind)) is not None:
            return ValueShape(type=plain)
        if issubclass(kind, enum.Enum):
            return self._enum(kind, path)
        if kind.__module__.startswith("pydantic") and kind.__name__ in ("AwareDatetime", "NaiveDatetime"):
            if kind.__name__ == "NaiveDatetime":
                self._refuse_naive(path)
            return ValueShape(type="instant")
        if _is_row_class(kind):
            row = self.row(kind, path, outer)
            return ValueShape(type=StructType(row.columns), row=row)
        return self._refuse_type(kind, None, path)

    def _union(self, annotation: Any, notes: list[Any], path: str, outer: tuple[type, ...]) -> ValueShape:
        arms = [each for each in typing.get_args(annotation) if each not in (type(None), msgspec.UnsetType)]
        if len(arms) == 1:
            arm = typing.Annotated[(arms[0], *notes)] if notes else arms[0]
            return dataclasses.replace(self.value(arm, path, outer), required=False)
        names = " | ".join(_name_of(arm) for arm in arms)
        if sum(_is_row_class(arm) for arm in arms) > 1:
            self.refuse(path, names, "one struct whose fields are optional, or a table for each of them")
        return self.refuse(path, names, "one type: a column has one")

    def _literal(self, values: tuple[Any, ...], path: str) -> ValueShape:
        texts = [value for value in values if value is not None]
        if not texts or not all(type(value) is str for value in texts):
            self.refuse(path, "a Literal whose values are not all text", "int or bool, or a Literal of texts")
        required = len(texts) == len(values)
        return ValueShape(type="text", required=required, choices=frozenset(texts))

    def _enum(self, kind: type[enum.Enum], path: str) -> ValueShape:
        if not all(isinstance(member.value, str) for member in kind) or not len(kind):
            self.refuse(
                path,
                f"{kind.__name__}, an enum whose values are not text",
                "int, or give its members text values",
            )
        choices = frozenset(str(member.value) for member in kind)
        return ValueShape(type="text", choices=choices, enum=kind)

    def _container(
        self, origin: Any, arguments: tuple[Any, ...], path: str, outer: tuple[type, ...]
    ) -> ValueShape:
        if not arguments:
            kinds = "list[...]" if origin is list else "dict[str, ...]"
            self.refuse(path, f"a {origin.__name__} of any values", f"{kinds} with the type of its values")
        if origin is dict and _without_notes(arguments[0])[0] is not str:
            self.refuse(
                path, f"a dict with keys of {_name_of(arguments[0])}", "dict[str, ...], with keys of text"
            )
        item = self.value(arguments[-1], f"{path}[]", outer)
        kind = ListType if origin is list else MapType
        return ValueShape(type=kind(item.column_type, item.required), item=item)

    def _decimal(self, notes: list[Any], path: str) -> ValueShape:
        for note in notes:
            if isinstance(note, Precision):
                return ValueShape(type=DecimalType(note.digits, note.scale))
        return self.refuse(path, "Decimal without its digits", _INSTEAD[Decimal])

    def _refuse_naive(self, path: str) -> NoReturn:
        self.refuse(
            path,
            "a datetime without a time zone, which is no instant",
            "datetime, and give values a time zone",
        )

    def _refuse_type(self, kind: Any, origin: Any, path: str) -> NoReturn:
        instead = _INSTEAD.get(kind if origin is None else origin) if _is_hashable(kind) else None
        self.refuse(path, _name_of(kind), instead or _TYPES_TO_WRITE)

    def refuse(self, path: str, found: str, instead: str) -> NoReturn:
        raise TopologyError(
            f"{self._table} at {call_site()}: field {path!r} is {found}", fix=f"write {instead}"
        )


def _fields_of_model(model: Any) -> Iterator[tuple[str, str, Any]]:
    """Give attribute, name and annotation of each field of a model, whose notes stand apart."""
    for name, field in model.model_fields.items():
        if not field.exclude:
            notes = tuple(field.metadata)
            annotation = typing.Annotated[(field.annotation, *notes)] if notes else field.annotation
            yield name, field.serialization_alias or name, annotation


def _path_of(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _without_notes(annotation: Any) -> tuple[Any, list[Any]]:
    """Return a type without its names and notes, and the notes, the outermost first."""
    notes: list[Any] = []
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            notes += typing.get_args(annotation)[1:]
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # Python 3.12: type Fare = ...
            annotation = annotation.__value__
        elif typing.get_origin(annotation) in (typing.Required, typing.NotRequired, typing.Final):
            annotation = typing.get_args(annotation)[0]
        else:
            return annotation, notes


def _is_naive(note: Any) -> bool:
    return isinstance(note, msgspec.Meta) and note.tz is False


def _is_hashable(given: Any) -> bool:
    try:
        hash(given)
    except TypeError:
        return False
    return True


def _name_of(annotation: Any) -> str:
    if annotation is Any:
        return "Any"
    return annotation.__qualname__ if inspect.isclass(annotation) else str(annotation)


def _is_row_class(kind: Any) -> bool:
    if not inspect.isclass(kind):
        return False
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or _is_model(kind)


def _is_model(kind: Any) -> bool:
    """Return True for a pydantic model of version 2."""
    return any(
        base.__module__ == "pydantic.main" and base.__name__ == "BaseModel" for base in kind.__mro__[1:]
    )
