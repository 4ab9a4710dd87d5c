"""Describes files of rows to Iceberg, and reaches the storage in which they lie.

A file's description is made of its facts alone: the file is not opened. Partition values are those of the
facts, never derived from statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)
from pyiceberg.utils.datetime import (
    date_to_days,
    datetime_to_micros,
    days_to_date,
    micros_to_timestamptz,
)
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from airflow_kstreams.streams.errors import InvariantError, TableRefusedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.partition_fields import PartitionField, type_of
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts
from airflow_kstreams.tables.file_streams import checked, folder_of
from airflow_kstreams.tables.iceberg_errors import port_errors
from airflow_kstreams.tables.storage_errors import TablePlace

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

#: Longest bound of text and bytes in a manifest, as Iceberg's own writers have it.
_BOUND_LENGTH = 16
#: Number of files whose sizes are asked for at once.
_ASKED_AT_ONCE = 1_000
#: Credentials are renewed so long before they end, milliseconds.
_RENEWED_BEFORE_MS = 300_000


class DataFileMaker:
    """Makes descriptions of files for one schema and partitioning.

    :param schema: schema of the table.
    :param spec: its partitioning.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._spec = spec
        self._partition_types = [field.field_type for field in spec.partition_type(schema).fields]
        self._plain = dict(_plain_fields("", schema.as_struct()))

    def made(self, file: FileFacts) -> DataFile:
        """Return the description of a file.

        :raises InvariantError: its partition does not fit the partitioning.
        """
        if len(file.partition) != len(self._partition_types):
            raise InvariantError(
                "a file has a value for each field that its table is partitioned by",
                f"it has {counted(len(file.partition), 'value')}, for {len(self._partition_types)}",
                where=f"file {file.path}",
            )
        columns = [(self._plain[name], facts) for name, facts in file.columns.items() if name in self._plain]
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*map(_partition_value, self._partition_types, file.partition)),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            value_counts={field_id: file.rows for (field_id, _), _ in columns},
            null_value_counts={field_id: facts.nulls for (field_id, _), facts in columns},
            lower_bounds=_bounds(columns, upper=False),
            upper_bounds=_bounds(columns, upper=True),
            split_offsets=list(file.row_groups) or None,
        )
        data_file.spec_id = self._spec.spec_id
        return data_file


def _plain_fields(prefix: str, struct: StructType) -> Iterator[tuple[str, tuple[int, PrimitiveType]]]:
    """Give the fields without parts that have one value in each row, by their dotted names."""
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            yield from _plain_fields(f"{prefix}{field.name}.", field.field_type)
        elif isinstance(field.field_type, PrimitiveType):
            yield f"{prefix}{field.name}", (field.field_id, field.field_type)


def _partition_value(kind: IcebergType, value: Any) -> Any:
    """Return a partition value as Iceberg's metadata has it: instants and dates as numbers."""
    match value:
        case None:
            return None
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case Decimal() if isinstance(kind, DecimalType):
            return value.quantize(Decimal(1).scaleb(-kind.scale))
        case _:
            return value


def partition_value_of(field: PartitionField, columns: tuple[Column, ...], value: Any) -> Any:
    """Return a partition value of Iceberg's metadata as ``FileFacts`` has it.

    >>> partition_value_of(PartitionField("identity", "day"), (Column("day", "date"),), 19_723)
    datetime.date(2024, 1, 1)
    """
    kind = type_of(field.column, columns) if field.transform == "identity" else None
    if kind == "date" and isinstance(value, int):
        return days_to_date(value)
    if kind == "instant" and isinstance(value, int):
        return micros_to_timestamptz(value)
    return value


def _bounds(columns: list[tuple[tuple[int, PrimitiveType], ColumnFacts]], *, upper: bool) -> dict[int, bytes]:
    bounds = {}
    for (field_id, kind), facts in columns:
        value = _bound(kind, facts.upper if upper else facts.lower, upper=upper)
        if value is not None:
            bounds[field_id] = to_bytes(kind, value)
    return bounds


def _bound(kind: IcebergType, value: Any, *, upper: bool) -> Any:
    """Return a bound as Iceberg encodes it; None for none."""
    if value is None or value != value:
        return None
    match kind:
        case StringType():
            return truncate_upper_bound_text_string(value, _BOUND_LENGTH) if upper else value[:_BOUND_LENGTH]
        case BinaryType():
            return (
                truncate_upper_bound_binary_string(value, _BOUND_LENGTH) if upper else value[:_BOUND_LENGTH]
            )
        case DecimalType():
            return value.quantize(Decimal(1).scaleb(-kind.scale))
        case DoubleType() | FloatType():
            # Readers may tell the zeros apart: the bounds include both.
            return (0.0 if upper else -0.0) if value == 0 else float(value)
        case TimestamptzType():
            return datetime_to_micros(value)
        case DateType():
            return date_to_days(value)
        case _:
            return value


def _valid_until_ms(table: Table) -> float | None:
    """Return when the credentials that a catalogue gave for a table end, epoch milliseconds; None if it does
    not say.
    """
    said = [value for name, value in table.io.properties.items() if name.endswith("expires-at-ms")]
    return min((float(value) for value in said if str(value).isdigit()), default=None)


class IcebergFiles:
    """The storage of a table's files.

    :param table: the table, with the credentials that its catalogue gave for it.
    :param place: the table, for messages.
    :param renewed: loads the table again, for other credentials when those come to their end.
    """

    def __init__(self, table: Table, place: TablePlace, renewed: Callable[[], Table]) -> None:
        self._place, self._renewed = place, renewed
        self._io = self._pyarrow_io(table)
        self._until_ms = _valid_until_ms(table)
        self._locations = table.location_provider()
        self._root = self._locations.data_path

    def _pyarrow_io(self, table: Table) -> PyArrowFileIO:
        if isinstance(table.io, PyArrowFileIO):
            return table.io
        raise TableRefusedError(
            f"table {self._place.name!r}: its catalogue names {type(table.io).__name__} (py-io-impl) for "
            "its files, and they are written through pyarrow here"
        )

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        """Return the location of a new file."""
        return self._locations.new_data_location(f"{folder_of(partition)}{name}")

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        with self._errors(f"creation of {path}"):
            filesystem, inner = self._reached(path)
            return checked(filesystem.open_output_stream(inner), self._errors, path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return the size of each file that exists, bytes."""
        found: dict[str, int] = {}
        ordered = list(paths)
        for first in range(0, len(ordered), _ASKED_AT_ONCE):
            some = ordered[first : first + _ASKED_AT_ONCE]
            for path, info in zip(some, self._infos(some), strict=True):
                if info.type == FileType.File:
                    found[path] = int(info.size)
        return found

    def _infos(self, paths: list[str]) -> list[FileInfo]:
        if not paths:
            return []
        with self._errors(f"look at {paths[0]}"):
            filesystem, _ = self._reached(paths[0])
            return list(filesystem.get_file_info([self._reached(path)[1] for path in paths]))

    def read(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        with self._errors(f"read of {path}"):
            filesystem, inner = self._reached(path)
            return checked(filesystem.open_input_file(inner), self._errors, path)

    def names(self, beginning: str) -> Iterable[tuple[str, int]]:
        """Give location and time of the last change of files whose name begins so."""
        with self._errors(f"list of {self._root}"):
            filesystem, root = self._reached(self._root)
            infos = filesystem.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        for info in infos:
            if info.type == FileType.File and info.base_name.startswith(beginning):
                yield f"{self._root}{info.path[len(root) :]}", int(info.mtime_ns) // 1_000_000

    def delete(self, paths: Collection[str]) -> None:
        """Delete files that exist."""
        for path in paths:
            with self._errors(f"deletion of {path}"):
                filesystem, inner = self._reached(path)
                try:
                    filesystem.delete_file(inner)
                except FileNotFoundError:
                    continue

    def _reached(self, path: str) -> tuple[FileSystem, str]:
        if self._until_ms is not None and time.time() * 1000 > self._until_ms - _RENEWED_BEFORE_MS:
            table = self._renewed()
            self._io, self._until_ms = self._pyarrow_io(table), _valid_until_ms(table)
        scheme, netloc, inner = self._io.parse_location(path, self._io.properties)
        return self._io.fs_by_scheme(scheme, netloc), inner.rstrip("/")

    def _errors(self, doing: str) -> AbstractContextManager[None]:
        return port_errors(self._place, doing)
