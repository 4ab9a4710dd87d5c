"""Defines tables as plain data: what begin and finish need to know of them without loading user code.

A column has a name, a type, and says whether every row must have a value. The types are those that Iceberg,
Delta, Parquet and Arrow share, each with one kind of Python value:

=====================  ==============================================================================
type                   value in a row
=====================  ==============================================================================
``text``               ``str``
``long``               ``int`` of 64 bits
``double``             ``float``
``boolean``            ``bool``
``binary``             ``bytes``
``date``               ``datetime.date``
``instant``            ``datetime.datetime`` with a time zone; microseconds in UTC
``uuid``               ``uuid.UUID``
``DecimalType``        ``decimal.Decimal`` of at most so many digits
``ListType``           ``list`` of values of one type; each may be None if the type says so
``MapType``            ``dict`` with keys of text
``StructType``         a tuple with a value for each of its columns
=====================  ==============================================================================

``int`` and ``float`` (32 bits) exist in tables that others have made. Rows of ours fit into their wider types
only, so begin widens such a column (:mod:`airflow_kstreams.streams.tables.table_port`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

TableFormat = Literal["iceberg", "delta"]
#: ``append`` adds each row; ``upsert`` keeps the last row of each key.
TableMode = Literal["append", "upsert"]
#: Last column of files that wait for an upsert, after those of the table: True in place of a row that is
#: deleted. No column of a row can have this name, for it has a space.
DELETED = "is deleted"
PlainType = Literal["text", "long", "double", "boolean", "binary", "date", "instant", "uuid", "int", "float"]


_LABEL = "table:"


class DecimalType(msgspec.Struct, frozen=True, tag="decimal", tag_field="of"):
    """A decimal number.

    :param precision: number of digits, from 1 to 38.
    :param scale: number of digits behind the point, from 0 to the precision.
    """

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


class ListType(msgspec.Struct, frozen=True, tag="list", tag_field="of"):
    """A list.

    :param item: type of its items.
    :param required: True if no item may be None.
    """

    item: ColumnType
    required: bool = True

    def __str__(self) -> str:
        return f"list<{self.item}{'' if self.required else '?'}>"


class MapType(msgspec.Struct, frozen=True, tag="map", tag_field="of"):
    """A map with keys of text.

    :param value: type of its values.
    :param required: True if no value may be None.
    """

    value: ColumnType
    required: bool = True

    def __str__(self) -> str:
        return f"map<text, {self.value}{'' if self.required else '?'}>"


class StructType(msgspec.Struct, frozen=True, tag="struct", tag_field="of"):
    """A row within a row.

    :param columns: its columns, in their order.
    """

    columns: tuple[Column, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.columns))}>"


ColumnType = PlainType | DecimalType | ListType | MapType | StructType


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column.

    :param name: name of the column, or of a field of a struct.
    :param type: type of its values.
    :param required: True if no row may have None in it.

    >>> print(Column("fares", ListType(DecimalType(10, 2)), required=False))
    fares: list<decimal(10, 2)>?
    """

    name: str
    type: ColumnType
    required: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'' if self.required else '?'}"


class SchemaChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done to a table before rows with some columns can be written to it.

    :param added: optional columns that the table does not have.
    :param widened: columns of the table that need a wider type, with that type.
    :param refused: one sentence for each difference that is not made by itself.
    """

    added: tuple[Column, ...] = ()
    widened: tuple[Column, ...] = ()
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.widened or self.refused)


_WIDENINGS = {("int", "long"), ("float", "double")}


def changes_for(rows: tuple[Column, ...], table: tuple[Column, ...]) -> SchemaChanges:
    """Compare the columns of rows with those of a table.

    Columns of the table that rows do not have stay None in them. So such a column must be optional.

    :param rows: columns of the rows that are to be written.
    :param table: columns of the table.

    >>> table = (Column("id", "int"), Column("note", "text", required=False))
    >>> changes = changes_for((Column("id", "long"), Column("at", "instant", required=False)), table)
    >>> [str(column) for column in changes.added], [str(column) for column in changes.widened]
    (['at: instant?'], ['id: long'])
    """
    found = {column.name: column for column in table}
    added: list[Column] = []
    widened: list[Column] = []
    refused: list[str] = []
    for column in rows:
        known = found.pop(column.name, None)
        if known is None and column.required:
            refused.append(f"{column.name} is required, and the table does not have it")
        elif known is None:
            added.append(column)
        elif known.required and not column.required:
            refused.append(f"{column.name} may be None in a row, and is required in the table")
        elif (known.type, column.type) in _WIDENINGS:
            widened.append(Column(known.name, column.type, known.required))
        elif not _fits(column.type, known.type):
            refused.append(f"{column.name} is {column.type}, and {known.type} in the table")
    refused += [
        f"{left.name} is required in the table, and rows do not have it"
        for left in found.values()
        if left.required
    ]
    return SchemaChanges(added=tuple(added), widened=tuple(widened), refused=tuple(refused))


def _fits(row: ColumnType, table: ColumnType) -> bool:
    """Whether values of one type can be written as another without a change of the table."""
    match row, table:
        case ListType(), ListType():
            return _fits(row.item, table.item) and row.required >= table.required
        case MapType(), MapType():
            return _fits(row.value, table.value) and row.required >= table.required
        case DecimalType(), DecimalType():
            return row.scale == table.scale and row.precision <= table.precision
        case StructType(), StructType():
            return not changes_for(row.columns, table.columns)
        case _:
            return row == table


def names_in(columns: tuple[Column, ...]) -> Iterator[str]:
    """Give the names of columns and, dotted, of the fields within them."""
    for column in columns:
        yield column.name
        if isinstance(column.type, StructType):
            yield from (f"{column.name}.{name}" for name in names_in(column.type.columns))


class TablePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table that a topology writes to.

    :param name: name of the sink, unique in the topology.
    :param format: format of the table.
    :param location: the table's identifier in its catalogue, or its URI.
    :param columns: columns of the rows, complete.
    :param partition_by: the partitioning, one text for each field: ``hour(at)``, ``bucket(16, key)``, or the
        name of a column.
    :param mode: what happens to rows of a key.
    :param create: whether begin creates the table where it is missing.
    :param merge: whether small files of a run are merged before they are committed.
    :param expire_snapshots: number of snapshots to keep after each run; 0 keeps all.
    """

    name: str
    format: TableFormat
    location: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    mode: TableMode = "append"
    create: bool = True
    merge: bool = True
    expire_snapshots: int = 0

    @property
    def identity(self) -> tuple[object, ...]:
        """The part that a run cannot go on without: part of the topology's hash."""
        return (self.format, self.name, self.location, self.columns, self.partition_by, self.mode)

    @property
    def key_column(self) -> str:
        """The column by which rows are replaced and deleted; empty if each row is added."""
        return self.columns[0].name if self.mode == "upsert" else ""

    @property
    def listed_by(self) -> tuple[str, ...]:
        """The partitioning of the files that tasks list.

        Files of an upsert lie apart by bucket for Iceberg, whose buckets are rewritten one by one. Delta's
        merge takes all rows at once.
        """
        return () if self.mode == "upsert" and self.format == "delta" else self.partition_by

    @property
    def rewrites(self) -> bool:
        """Whether a commit to it is made by rewriting files of the table, here."""
        return self.mode == "upsert" and self.format == "iceberg"


def table_label(name: str) -> str:
    """Return the name of a table among those of topics: in counts, and for backfills."""
    return f"{_LABEL}{name}"


def is_table_label(name: str) -> bool:
    """Whether a name is that of a table among topics; no topic has a colon in its name."""
    return name.startswith(_LABEL)
