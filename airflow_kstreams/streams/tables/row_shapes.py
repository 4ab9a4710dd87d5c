"""Defines the Python objects that rows are made of: their classes, their fields, and the values of each.

A column says what a table holds (:mod:`airflow_kstreams.streams.table_plan`); a shape also says which
Python objects give it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from airflow_kstreams.streams.table_plan import Column, ColumnType, ListType, MapType, StructType

EnumClass: TypeAlias = type[Enum]
RowClass: TypeAlias = type


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueShape:
    """The Python values that a column takes.

    :param type: type of the column.
    :param required: True if None is not among them.
    :param choices: the texts that are allowed; None if all are.
    :param enum: the enum whose members stand for these texts; None for plain texts.
    :param item: shape of a list's items, or of a dict's values.
    :param row: shape of a struct.
    :param written_as_text: True for ids in a format that has no type for them.
    """

    type: ColumnType
    required: bool = True
    choices: frozenset[str] | None = None
    enum: EnumClass | None = None
    item: ValueShape | None = None
    row: RowShape | None = None
    written_as_text: bool = False

    @property
    def column_type(self) -> ColumnType:
        """Type of the column that is written."""
        match self.type:
            case ListType() if self.item is not None:
                return ListType(self.item.column_type, self.item.required)
            case MapType() if self.item is not None:
                return MapType(self.item.column_type, self.item.required)
            case StructType() if self.row is not None:
                return StructType(self.row.columns)
            case _:
                return "text" if self.written_as_text else self.type

    def with_ids_as_text(self) -> ValueShape:
        """Return the shape for a format that has no type for ids."""
        return dataclasses.replace(
            self,
            written_as_text=self.type == "uuid",
            item=None if self.item is None else self.item.with_ids_as_text(),
            row=None if self.row is None else self.row.with_ids_as_text(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowField:
    """A field of a row.

    :param name: name of its column.
    :param attribute: attribute of the object that has the value; key of a dict.
    :param value: shape of its values.
    """

    name: str
    attribute: str
    value: ValueShape

    @property
    def column(self) -> Column:
        """The column."""
        return Column(self.name, self.value.column_type, self.value.required)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """The Python objects that make rows, or structs in them.

    :param type: their class; None for dicts.
    :param name: the class's name, for messages.
    :param fields: their fields, in the order of the class.
    """

    type: RowClass | None
    name: str
    fields: tuple[RowField, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Their columns."""
        return tuple(field.column for field in self.fields)

    def with_ids_as_text(self) -> RowShape:
        """Return the shape for a format that has no type for ids."""
        fields = (dataclasses.replace(field, value=field.value.with_ids_as_text()) for field in self.fields)
        return dataclasses.replace(self, fields=tuple(fields))
