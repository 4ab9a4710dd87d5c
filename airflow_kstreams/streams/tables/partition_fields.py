"""Reads the fields of a partitioning: ``carrier``, ``hour(at)``, ``bucket(16, key)``, ``truncate(4, code)``.

Rule: a field has one text. ``str`` of it gives that text, whatever spaces the user wrote, and it is what
plans, hashes and looks at tables hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.table_plan import Column, ColumnType, DecimalType, StructType

TransformName = Literal["identity", "year", "month", "day", "hour", "date", "bucket", "truncate"]
_FIELD = re.compile(
    r"\s*+(?:(?P<transform>\w++)\s*+\(\s*+(?:(?P<argument>-?\d{1,10}+)\s*+,\s*+)?)?"
    r"(?P<column>[^\s(),]++)\s*+(?P<end>\)?)\s*+"
)
_TIMES = frozenset({"year", "month", "day", "hour"})
#: Ending of the name that a field has in the table, as Iceberg's writers name it.
_ENDINGS = {"truncate": "trunc"}
_LARGEST = 2**31 - 1
#: Number in the form that an error shows; ten is a width for decimals, too.
_NUMBERS = {"bucket": 16, "truncate": 10}
#: Transform -> types of the columns that it takes; DecimalType stands for decimals.
_TAKEN: dict[str, tuple[object, ...]] = {
    "identity": ("text", "long", "boolean", "binary", "date", "instant", "uuid", DecimalType),
    "year": ("date", "instant"),
    "month": ("date", "instant"),
    "day": ("date", "instant"),
    "hour": ("instant",),
    "date": ("instant",),
    "bucket": ("text", "long", "binary", "date", "instant", "uuid", DecimalType),
    "truncate": ("text", "long", "binary", DecimalType),
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partitioning.

    :param transform: what is made of the column's value.
    :param column: the column, dotted for a field of a struct.
    :param argument: number of buckets, or width; 0 for transforms without one.

    >>> str(PartitionField("bucket", "key", 16)), PartitionField("hour", "at").name
    ('bucket(16, key)', 'at_hour')
    """

    transform: TransformName
    column: str
    argument: int = 0

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.argument}, ' if self.argument else ''}{self.column})"

    @property
    def name(self) -> str:
        """Name of the field: that of the column, or ``at_hour``, ``key_bucket``, ``code_trunc``."""
        if self.transform == "identity":
            return self.column
        return f"{self.column}_{_ENDINGS.get(self.transform, self.transform)}"


def parsed_field(text: str, *, transforms: tuple[str, ...], table: str) -> PartitionField:
    """Read a field.

    :param text: its text.
    :param transforms: the transforms that the format has.
    :param table: the user's call, for messages: ``IcebergTable 'flights.carriers'``.
    :raises TopologyError: it is none.

    >>> parsed_field("bucket( 16,key )", transforms=("identity", "bucket"), table="t")
    PartitionField(transform='bucket', column='key', argument=16)
    """
    found = _FIELD.fullmatch(text) if isinstance(text, str) else None
    transform = (found["transform"] or "identity") if found else ""
    with_number = transform in ("bucket", "truncate")
    if found is None or bool(found["transform"]) is not bool(found["end"]) or transform not in transforms:
        raise TopologyError(
            f"{table} at {call_site()} has no partition field {text!r}",
            fix=f"write one of: {', '.join(_form(_named(each), '') for each in transforms)}",
        )
    argument = int(found["argument"] or 0)
    if with_number is not bool(found["argument"]) or (with_number and not 1 <= argument <= _LARGEST):
        raise TopologyError(
            f"{table} at {call_site()}: partition field {text!r} needs "
            + (f"a number from 1 to {_LARGEST:,}" if with_number else "no number"),
            fix=f"write e.g. {_form(_named(transform), found['column'])}",
        )
    return PartitionField(_named(transform), found["column"], argument)


def field_of(text: str) -> PartitionField:
    """Read a field that is known to be right: a plan's or a look's.

    :raises TopologyError: it is none.
    """
    return parsed_field(text, transforms=get_args(TransformName), table="a table")


def _named(transform: str) -> TransformName:
    return next(each for each in get_args(TransformName) if each == transform)


def _form(transform: TransformName, column: str) -> str:
    """Return a field as a user writes it.

    :param column: the column; empty for any.
    """
    if transform == "identity":
        return column or "a column's name"
    return str(PartitionField(transform, column or "column", _NUMBERS.get(transform, 0)))


def checked_fields(
    texts: Iterable[str], columns: tuple[Column, ...], *, transforms: tuple[str, ...], table: str
) -> tuple[PartitionField, ...]:
    """Read a partitioning.

    :param columns: columns of the table.
    :param transforms: the transforms that the format has.
    :param table: as for :func:`parsed_field`.
    :raises TopologyError: a field is none, its column is missing or of another type, or two fields stand in
        each other's way.
    """
    if isinstance(texts, str):
        raise TopologyError(
            f"{table} at {call_site()} is given partition_by={texts!r}, expected a list",
            fix=f"write partition_by=[{texts!r}]",
        )
    fields = tuple(parsed_field(text, transforms=transforms, table=table) for text in texts)
    for field in fields:
        check_field(field, columns, transforms=transforms, table=table)
    _check_together(fields, columns, table=table)
    return fields


def check_field(
    field: PartitionField, columns: tuple[Column, ...], *, transforms: tuple[str, ...], table: str
) -> None:
    """Refuse a field whose column is missing, or has values that the transform does not take.

    :param transforms: the transforms that the format has.
    :raises TopologyError: so it is.
    """
    kind = type_of(field.column, columns)
    if kind is None:
        raise TopologyError(
            f"{table} at {call_site()} is partitioned by {str(field)!r}, and has no column {field.column!r}",
            fix=f"name one of its columns: {', '.join(column.name for column in columns)}",
        )
    found = DecimalType if isinstance(kind, DecimalType) else kind
    taking = [
        each
        for each in map(_named, transforms)
        if any(found is kept or found == kept for kept in _TAKEN[each])
    ]
    if field.transform not in taking:
        forms = ", ".join(_form(each, field.column) for each in taking)
        raise TopologyError(
            f"{table} at {call_site()} is partitioned by {str(field)!r}, and {field.column!r} is {kind}",
            fix=f"write one of: {forms}" if taking else "partition by another column",
        )
    if (
        isinstance(kind, DecimalType)
        and field.transform == "truncate"
        and 10**kind.precision % field.argument
    ):
        raise TopologyError(
            f"{table} at {call_site()} is partitioned by {str(field)!r}, a width that leaves values "
            f"which are no {kind}",
            fix=f"write a power of ten: {_form('truncate', field.column)}",
        )


def type_of(name: str, columns: tuple[Column, ...]) -> ColumnType | None:
    """Return the type of a column, or of a field within structs by its dotted name; None if there is none."""
    first, dot, rest = name.partition(".")
    for column in columns:
        if column.name == first:
            if not dot:
                return column.type
            return type_of(rest, column.type.columns) if isinstance(column.type, StructType) else None
    return None


def _check_together(fields: tuple[PartitionField, ...], columns: tuple[Column, ...], *, table: str) -> None:
    names = {column.name.casefold() for column in columns}
    known: dict[tuple[str, object], PartitionField] = {}
    for field in fields:
        kind = "time" if field.transform in _TIMES else field.transform
        other = known.setdefault((field.column, kind), field)
        if other is not field:
            raise TopologyError(
                f"{table} at {call_site()} is partitioned by {str(other)!r} and by {str(field)!r}",
                fix="leave one of them out: the finer one tells the other",
            )
        if field.transform != "identity" and field.name.casefold() in names:
            raise TopologyError(
                f"{table} at {call_site()}: partition field {str(field)!r} is called {field.name!r}, "
                "and so is a column",
                fix="rename the column",
            )
