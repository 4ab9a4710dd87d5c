"""Describes the tables that a topology writes to: ``IcebergTable`` and ``DeltaTable``.

Rule: whatever is wrong in a description is refused where the user writes it. Only what depends on the
stream's keys waits for :meth:`with_keys`, which the sink calls: the type of ``key_column``.

The columns of a table are, in this order: ``key_column``, those of the row type, ``timestamp_column``, those
of ``provenance``, and those that Delta is partitioned by and that are made of other columns.

A Delta table has no type for ids, so a ``UUID`` is text in it. Its partitions have no transforms either:
``date(at)`` and ``hour(at)`` are columns of their own, ``at_date`` (a date) and ``at_hour`` (the instant at
which the hour begins, in UTC).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, get_args
from uuid import UUID

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site, check_choice
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.table_plan import Column, DecimalType, TableFormat, TableMode, TablePlan
from airflow_kstreams.streams.tables.partition_fields import PartitionField, checked_fields, type_of
from airflow_kstreams.streams.tables.row_shapes import RowShape, ValueShape
from airflow_kstreams.streams.tables.row_types import (
    COLUMN_SIGNS,
    check_names,
    is_column_name,
    row_shape,
    value_shape,
)
from airflow_kstreams.streams.tables.row_values import RowPlan, compiled
from airflow_kstreams.streams.tables.table_rows import RowOf

#: Columns of ``provenance=True``: those of the consumed record, None where a result has none (a table's
#: cached entry, a punctuation), and the run.
PROVENANCE = (
    Column("_topic", "text", required=False),
    Column("_partition", "long", required=False),
    Column("_offset", "long", required=False),
    Column("_run", "text"),
)
_ICEBERG_TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
_DELTA_TRANSFORMS = ("identity", "date", "hour")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100}){1,9}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_URI = re.compile(r"(?:(?:s3|s3a|gs|gcs|az|abfs|abfss|file)://|/)[^\s?#@]++")
#: Azure names its container ahead of an @.
_CONTAINER = re.compile(r"abfss?://[a-z0-9-]{3,63}+@[^\s?#@/]++(?:/[^\s?#@]*+)?")
#: Parts of a path that are no folder for a table.
_NO_FOLDERS = {"", ".", "..", "_delta_log"}
#: Name of a type in the id of a serde -> the type.
_KEY_TYPES: dict[str, Any] = {
    "string": str,
    "int32": int,
    "int64": int,
    "double": float,
    "bytes": bytes,
    **{
        f"{serde}({kind.__name__})": kind
        for serde in ("json", "msgpack")
        for kind in (str, int, float, bool, bytes, UUID, date, datetime)
    },
}


@dataclass(frozen=True, slots=True, eq=False)
class IcebergTable:
    """An Iceberg table to write to.

    :param name: its identifier in the catalogue, with its namespace: ``flights.carriers``; name of the sink.
    :param row: type of the stream's values: a ``msgspec.Struct``, a dataclass, a pydantic model, or an Arrow
        schema for dicts.
    :param partition_by: fields of its partitioning: a column, ``year(at)``, ``month(at)``, ``day(at)``,
        ``hour(at)``, ``bucket(16, key)``, ``truncate(4, code)``; a field of a struct with a dot.
    :param mode: ``append`` adds a row for each record; ``upsert`` keeps the last row of each key, and None
        deletes it. An upsert needs ``key_column``, and a partitioning by ``bucket(n, <key_column>)`` alone:
        a run rewrites files of the buckets that its keys lie in.
    :param create: whether begin creates the table where it is missing.
    :param key_column: column for the records' keys; empty for none.
    :param key_type: type of the keys, as a field of a row has it; None for that of the stream's key serde.
    :param timestamp_column: column for the records' timestamps; empty for none.
    :param provenance: True to add ``_topic``, ``_partition``, ``_offset`` and ``_run``, which say where each
        row comes from.
    :param merge: whether small files of a run are merged before they are committed: each partition of the
        table then gets at most ``ceil(bytes / target) + 1`` files in a run, of the size that the table asks
        for, or 128 MiB.
    :param expire_snapshots: number of snapshots to keep after each run; 0 keeps all. Older ones are forgotten
        once the run is finished, and files are deleted that only they have. Where that fails, the log says
        so, and the next run does it.
    :raises TopologyError: the row type, a name, or the partitioning is none that Iceberg has.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> @dataclass
    ... class Carrier:
    ...     code: str
    ...     at: datetime
    >>> carriers = IcebergTable("flights.carriers", row=Carrier, partition_by=["hour( at )"])
    >>> [str(column) for column in carriers.columns], [str(part) for part in carriers.partitioning]
    (['code: text', 'at: instant'], ['hour(at)'])
    """

    name: str
    row: Any = field(kw_only=True, repr=False)
    partition_by: Sequence[str] = field(default=(), kw_only=True)
    mode: TableMode = field(default="append", kw_only=True)
    create: bool = field(default=True, kw_only=True)
    key_column: str = field(default="", kw_only=True)
    key_type: Any = field(default=None, kw_only=True, repr=False)
    timestamp_column: str = field(default="", kw_only=True)
    provenance: bool = field(default=False, kw_only=True)
    merge: bool = field(default=True, kw_only=True)
    expire_snapshots: int = field(default=0, kw_only=True)
    _made: _Made = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = f"IcebergTable {self.name!r}"
        if not isinstance(self.name, str) or not _IDENTIFIER.fullmatch(self.name):
            raise TopologyError(
                f"{table} at {call_site()} has no name that a catalogue has",
                fix="write namespace and name with a dot between them, of letters, digits, _ and -: "
                'IcebergTable("flights.carriers", ...)',
            )
        if self.mode == "upsert":
            _check_buckets(table, self.partition_by, self.key_column)
        made = _made(table, self, row_shape(self.row, table=table), _ICEBERG_TRANSFORMS)
        object.__setattr__(self, "_made", made)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, complete.

        :raises TopologyError: the type of the keys is not known yet.
        """
        return self._made.rows().columns

    @property
    def partitioning(self) -> tuple[PartitionField, ...]:
        """Its partitioning."""
        return self._made.partitioning()

    @property
    def plan(self) -> TablePlan:
        """The table as plain data, as far as it decides what runs do."""
        return _plan(self, "iceberg", self.name, self.columns, self.partitioning)

    def with_keys(self, serde: Serde[Any]) -> IcebergTable:
        """Return the table for a stream whose keys have a serde.

        :raises TopologyError: there is a column for keys, and the serde says no type that it can have.
        """
        key_type = _key_type(self._made.table, self, serde)
        return self if key_type is None else dataclasses.replace(self, key_type=key_type)

    def row_of(self, run_id: str = "") -> RowOf:
        """Return the function that makes rows.

        :param run_id: the run, for ``_run``.
        """
        return compiled(self._made.rows(), run_id=run_id)


@dataclass(frozen=True, slots=True, eq=False)
class DeltaTable:
    """A Delta table to write to.

    :param uri: its location: ``s3://bucket/flights/carriers``, ``gs://``, ``abfss://``, or an absolute path
        of a folder.
    :param row: type of the stream's values, as for :class:`IcebergTable`. A ``UUID`` is text in it.
    :param name: name of the sink; by default the last part of the location.
    :param partition_by: columns of its partitioning; ``date(at)`` and ``hour(at)`` add the columns
        ``at_date`` and ``at_hour``, in UTC.
    :param mode: as for :class:`IcebergTable`; the partitioning is free.
    :param create: as for :class:`IcebergTable`.
    :param key_column: as for :class:`IcebergTable`.
    :param key_type: as for :class:`IcebergTable`.
    :param timestamp_column: as for :class:`IcebergTable`.
    :param provenance: as for :class:`IcebergTable`.
    :param merge: as for :class:`IcebergTable`.
    :param expire_snapshots: number of versions to keep at least after each run; 0 keeps all. Delta forgets a
        version only once it is older than the table's ``delta.logRetentionDuration`` (30 days), and deletes
        a file that was taken out only once that is longer ago than its
        ``delta.deletedFileRetentionDuration`` (7 days).
    :raises TopologyError: the row type, a name, or the partitioning is none that Delta has.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> @dataclass
    ... class Carrier:
    ...     code: str
    ...     at: datetime
    >>> carriers = DeltaTable("s3://lake/carriers", row=Carrier, partition_by=["date(at)"])
    >>> carriers.name, [str(column) for column in carriers.columns]
    ('carriers', ['code: text', 'at: instant', 'at_date: date'])
    """

    uri: str
    row: Any = field(kw_only=True, repr=False)
    name: str = field(default="", kw_only=True)
    partition_by: Sequence[str] = field(default=(), kw_only=True)
    mode: TableMode = field(default="append", kw_only=True)
    create: bool = field(default=True, kw_only=True)
    key_column: str = field(default="", kw_only=True)
    key_type: Any = field(default=None, kw_only=True, repr=False)
    timestamp_column: str = field(default="", kw_only=True)
    provenance: bool = field(default=False, kw_only=True)
    merge: bool = field(default=True, kw_only=True)
    expire_snapshots: int = field(default=0, kw_only=True)
    _made: _Made = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = f"DeltaTable {self.uri!r}"
        self._check_location(table)
        object.__setattr__(self, "uri", self.uri.rstrip("/"))
        object.__setattr__(self, "name", self.name or self.uri.rpartition("/")[2])
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise TopologyError(
                f"{table} at {call_site()} has the name {self.name!r}",
                fix="give name=, of letters, digits, dots, _ and -",
            )
        made = _made(table, self, row_shape(self.row, table=table).with_ids_as_text(), _DELTA_TRANSFORMS)
        object.__setattr__(self, "_made", made)

    def _check_location(self, table: str) -> None:
        if not _is_location(self.uri):
            raise TopologyError(
                f"{table} at {call_site()} is no location of a table",
                fix="write s3://bucket/path, gs://..., abfss://container@account/path or an absolute path, "
                "without spaces, ?, #, another @, and without empty parts, . or .. between slashes; "
                "credentials belong in the connection",
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, complete.

        :raises TopologyError: the type of the keys is not known yet.
        """
        return self._made.rows().columns

    @property
    def partitioning(self) -> tuple[PartitionField, ...]:
        """Its partitioning; the fields are columns."""
        return tuple(PartitionField("identity", each.name) for each in self._made.partitioning())

    @property
    def plan(self) -> TablePlan:
        """The table as plain data, as far as it decides what runs do."""
        return _plan(self, "delta", self.uri, self.columns, self.partitioning)

    def with_keys(self, serde: Serde[Any]) -> DeltaTable:
        """Return the table for a stream whose keys have a serde.

        :raises TopologyError: there is a column for keys, and the serde says no type that it can have.
        """
        key_type = _key_type(self._made.table, self, serde)
        return self if key_type is None else dataclasses.replace(self, key_type=key_type)

    def row_of(self, run_id: str = "") -> RowOf:
        """Return the function that makes rows.

        :param run_id: the run, for ``_run``.
        """
        return compiled(self._made.rows(), run_id=run_id)


def _is_location(uri: object) -> bool:
    """Whether a table may be there: in a folder of this machine, or in a bucket or container."""
    if not isinstance(uri, str) or not (_URI.fullmatch(uri) or _CONTAINER.fullmatch(uri)):
        return False
    scheme, _, rest = uri.rpartition("://")
    place, *folders = rest.rstrip("/").split("/")
    if scheme in ("", "file"):
        return place == "" and folders != [] and _NO_FOLDERS.isdisjoint(folders)
    return place != "" and _NO_FOLDERS.isdisjoint(folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A description that was checked.

    :param table: the user's call, for messages.
    :param known: columns of the rows, and what makes their values; None while the type of the keys is not
        known.
    :param fields: its partitioning, as the user wrote it; empty while the type of the keys is not known.
    """

    table: str
    known: RowPlan | None
    fields: tuple[PartitionField, ...]

    def rows(self) -> RowPlan:
        if self.known is None:
            raise TopologyError(
                f"{self.table} at {call_site()} has a column for keys whose type is not known yet",
                fix="pass it to send_to_table of a stream whose keys have a serde, or give key_type=str",
            )
        return self.known

    def partitioning(self) -> tuple[PartitionField, ...]:
        self.rows()
        return self.fields


def _made(table: str, spec: IcebergTable | DeltaTable, row: RowShape, transforms: tuple[str, ...]) -> _Made:
    """Check a description, and make what follows from it."""
    where = f"{table} at {call_site()}"
    check_choice(where, get_args(TableMode), mode=spec.mode)
    flags: dict[str, object] = {"create": spec.create, "provenance": spec.provenance, "merge": spec.merge}
    for option, value in flags.items():
        if not isinstance(value, bool):
            raise TopologyError(f"{where} has {option}={value!r}", fix="write True or False")
    if type(spec.expire_snapshots) is not int or spec.expire_snapshots < 0:
        raise TopologyError(
            f"{where} has expire_snapshots={spec.expire_snapshots!r}",
            fix="write the number of snapshots to keep, e.g. 100, or 0 to keep all",
        )
    _check_added(table, spec, row)
    is_delta = "date" in transforms
    if spec.key_column and spec.key_type is None:
        return _Made(table=table, known=None, fields=())
    key = _key_shape(table, spec, is_delta=is_delta) if spec.key_column else None
    plan = RowPlan(
        row=row,
        key_column=spec.key_column,
        key=key,
        timestamp_column=spec.timestamp_column,
        provenance=PROVENANCE if spec.provenance else (),
        upsert=spec.mode == "upsert",
    )
    fields = checked_fields(spec.partition_by, plan.columns, transforms=transforms, table=table)
    if is_delta:
        plan = _with_written_fields(table, plan, fields)
    return _Made(table=table, known=plan, fields=fields)


def _check_added(table: str, spec: IcebergTable | DeltaTable, row: RowShape) -> None:
    """Refuse names of added columns that are none, or that the row has."""
    where = f"{table} at {call_site()}"
    if spec.mode == "upsert" and not spec.key_column:
        raise TopologyError(
            f"{where} has mode='upsert' and no column for keys, by which rows are replaced and deleted",
            fix="give key_column=, a name that the row type does not have",
        )
    own = {column.name.casefold(): "the row type" for column in row.columns}
    added = {"key_column": spec.key_column, "timestamp_column": spec.timestamp_column}
    for option, name in added.items():
        if name == "":
            continue
        if not is_column_name(name):
            raise TopologyError(
                f"{where} has {option}={name!r}", fix=f"give the column a name of {COLUMN_SIGNS}"
            )
        _add(where, own, option, name)
    for column in PROVENANCE if spec.provenance else ():
        _add(where, own, "provenance=True", column.name)


def _add(where: str, own: dict[str, str], option: str, name: str) -> None:
    other = own.setdefault(name.casefold(), option)
    if other != option:
        raise TopologyError(
            f"{where}: {option} adds the column {name!r}, and {other} has it as well",
            fix="rename one of them"
            if option != "provenance=True"
            else f"rename the field {name!r}, or leave provenance out",
        )


def _with_written_fields(table: str, plan: RowPlan, fields: tuple[PartitionField, ...]) -> RowPlan:
    """Add the columns that a Delta table is partitioned by and that are made of others."""
    for each in fields:
        if "." in each.column:
            raise TopologyError(
                f"{table} at {call_site()} is partitioned by {str(each)!r}, within a struct",
                fix="partition by a column of the row itself: Delta knows no others",
            )
        if each.transform == "identity" and type_of(each.column, plan.columns) == "binary":
            raise TopologyError(
                f"{table} at {call_site()} is partitioned by {each.column!r}, which is binary",
                fix="partition by text: Delta writes partitions as text",
            )
    written = tuple(each for each in fields if each.transform != "identity")
    if {column.name for column in plan.columns} <= {each.name for each in fields}:
        raise TopologyError(
            f"{table} at {call_site()} is partitioned by all of its columns, which leaves none for its files",
            fix="leave one of them out of partition_by",
        )
    return dataclasses.replace(plan, written=written, partitions=tuple(each.name for each in fields))


def _check_buckets(table: str, partition_by: Sequence[str], key_column: str) -> None:
    """Refuse partitions of an upserted Iceberg table by anything but the key: a row's next version must lie
    where the last one does.
    """
    texts = [partition_by] if isinstance(partition_by, str) else [*partition_by]
    kind, _, rest = "".join(str(texts[0]).split()).partition("(") if len(texts) == 1 else ("", "", "")
    number, _, column = rest.partition(",")
    if key_column and not (kind == "bucket" and number.isdecimal() and column == f"{key_column})"):
        raise TopologyError(
            f"{table} at {call_site()} has mode='upsert' and partition_by={texts}: the key alone decides "
            "where its row lies",
            fix=f"write partition_by=['bucket(16, {key_column})'], with a bucket for each 500 MB or so",
        )


def _key_shape(table: str, spec: IcebergTable | DeltaTable, *, is_delta: bool) -> ValueShape:
    shape = value_shape(spec.key_type, column=spec.key_column, table=table)
    columns = (Column(spec.key_column, shape.column_type),)
    check_names(columns, table=table)
    plain = isinstance(shape.type, str | DecimalType)
    if spec.mode == "upsert" and (not plain or not shape.required or shape.type in ("double", "boolean")):
        raise TopologyError(
            f"{table} at {call_site()} has mode='upsert' and keys of {shape.column_type}, which do not tell "
            "rows apart",
            fix="select a key of text, a whole number, bytes, a date or an id ahead of send_to_table, and "
            "write its type in key_type, without None",
        )
    return shape.with_ids_as_text() if is_delta else shape


def _key_type(table: str, spec: IcebergTable | DeltaTable, serde: Serde[Any]) -> Any:
    """Return the type of keys that a serde says; None if there is nothing to say."""
    if not spec.key_column or spec.key_type is not None:
        return None
    if serde.id not in _KEY_TYPES:
        raise TopologyError(
            f"{table} at {call_site()} has a column for keys, and {serde!r} does not say their type",
            fix="give key_type=, e.g. key_type=str, or leave key_column out",
        )
    # Keys may be None: records without one.
    return _KEY_TYPES[serde.id] if spec.mode == "upsert" else _KEY_TYPES[serde.id] | None


def _plan(
    spec: IcebergTable | DeltaTable,
    format: TableFormat,  # noqa: A002  (as in plans)
    location: str,
    columns: tuple[Column, ...],
    partitioning: tuple[PartitionField, ...],
) -> TablePlan:
    return TablePlan(
        name=spec.name,
        format=format,
        location=location,
        columns=columns,
        partition_by=tuple(map(str, partitioning)),
        mode=spec.mode,
        create=spec.create,
        merge=spec.merge,
        expire_snapshots=spec.expire_snapshots,
    )
