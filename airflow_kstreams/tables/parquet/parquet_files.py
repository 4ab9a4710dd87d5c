"""Writes the rows of one task for one table into Parquet files.

Rows go a long way in bounded memory, whatever their number and that of their partitions:

1. Rows are kept as they come, some thousands or some megabytes of them, and then packed into a batch of
   Arrow.
2. Batches are kept until they have ``buffer_bytes``. Then their rows are parted by partition, sorted, and
   written: one row group for each partition, first for partitions whose file is open.
3. At most ``open_files`` files are open. For another one, that which was written to the longest time ago is
   closed. A file of the target size is closed, too.

Rule: a file is given by :meth:`ParquetRows.take` only once it is closed, and found in the storage at its
size. Every other file of this writer is one that no list can name, and :meth:`ParquetRows.abandon` deletes
those.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_kstreams.streams.errors import TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.table_plan import Column, DecimalType
from airflow_kstreams.streams.tables.partition_fields import PartitionField, field_of
from airflow_kstreams.streams.tables.table_port import FileFacts, TableFiles
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.file_streams import safe_name
from airflow_kstreams.tables.parquet.arrow_rows import ArrowRows, PartitionValues, column_array
from airflow_kstreams.tables.parquet.file_facts import column_facts, nan_columns, plain_columns, row_groups
from airflow_kstreams.tables.parquet.last_rows import last_places

log = package_log(__name__)

#: Rows after which their bytes are estimated, by one row in so many.
_LOOK_ROWS, _ONE_IN = 64, 8
#: Rows, and bytes in them, that are packed into one batch.
_PACK_ROWS, _PACK_BYTES = 4096, 4 * 1024 * 1024
#: Bytes of a value beside its content.
_VALUE_BYTES = 16
_LONGEST_PART = 60
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names the files of one attempt of a task.

    :param writer: the attempt.
    """

    writer: RowsWriter
    #: Tells attempts apart that are numbered alike.
    token: str = field(default_factory=lambda: secrets.token_hex(6))

    def name(self, number: int) -> str:
        """Return the name of a file.

        :param number: number of the file, unique for this object.
        """
        by = self.writer
        parts = "-".join(map(_safe, (by.run_id, by.task_id, str(by.attempt))))
        return f"{file_prefix(by.application_id)}{parts}-{self.token}-{number:05d}.parquet"


def file_prefix(application_id: str) -> str:
    """Return the beginning of the names of all files of an application, and of no other one.

    >>> file_prefix("flight-delays")
    'rows-flight-delays-d3e3e3a4-'
    """
    digest = hashlib.sha256(application_id.encode()).hexdigest()[:8]
    return f"rows-{_safe(application_id)}-{digest}-"


def _safe(text: str) -> str:
    return safe_name(text, _LONGEST_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """What files of a table have to be like.

    :param columns: columns of the rows.
    :param partition_by: the partitioning, one text for each field.
    :param sort_by: columns by which the rows of a partition are sorted, as far as they are kept in memory.
    :param ids: dotted name of a column or part -> its id in files, see
        :func:`airflow_kstreams.tables.parquet.arrow_rows.arrow_schema`.
    :param left_out: columns that stand in a file's partition alone, as Delta has it.
    :param last_of: column of keys, of which the last row alone is written, as far as rows are kept in memory;
        empty if each row is.
    :param target_bytes: size at which a file is closed, bytes.
    :param open_files: number of files that are open at most.
    :param buffer_bytes: bytes of batches that are kept in memory.
    """

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    last_of: str = ""
    target_bytes: int = 128 * 1024 * 1024
    open_files: int = 8
    buffer_bytes: int = 32 * 1024 * 1024


class ParquetRows:
    """The port ``TableRows`` on Parquet files.

    :param files: storage of the table's files.
    :param plan: what the files have to be like.
    :param names: names of the files.
    :ivar schema: Arrow's schema of the files.
    """

    def __init__(self, files: TableFiles, plan: FilePlan, names: FileNames) -> None:
        self._files, self._plan, self._names = files, plan, names
        self._fields = tuple(map(field_of, plan.partition_by))
        self._arrow = ArrowRows(plan.columns, plan.ids)
        self._values = PartitionValues(plan.columns, self._fields)
        self._sizes = _measures(plan.columns)
        self._written = [column.name for column in plan.columns if column.name not in plan.left_out]
        self.schema = pa.schema([self._arrow.schema.field(name) for name in self._written])
        self._plain = plain_columns(
            tuple(column for column in plan.columns if column.name not in plan.left_out)
        )
        self._number = 0
        self._rows: list[tuple[Any, ...]] = []
        self._row_bytes = 0
        self._looked = 0
        self._turn = 0
        self._next_look = _LOOK_ROWS
        self._batches: list[pa.RecordBatch] = []
        self._batch_bytes = 0
        #: Partition -> its open file, that written to last at the end.
        self._open: OrderedDict[tuple[Any, ...], _OpenFile] = OrderedDict()
        self._closed: list[FileFacts] = []
        #: Locations of all files since the last call of take().
        self._paths: list[str] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """Take a row, a value for each column; it has passed the checks of the row type.

        :raises TableUnavailableError: the storage did not answer, or is full.
        :raises TableRefusedError: a file may not be written.
        """
        rows = self._rows
        rows.append(row)
        if len(rows) == self._next_look:
            self._look()

    def add_part(self, partition: tuple[Any, ...], batch: pa.RecordBatch) -> None:
        """Write rows of one partition as a row group of its file.

        :param partition: the partition, as :class:`FileFacts` has it.
        :param batch: the rows, with at least the columns of :attr:`schema`.
        :raises TableUnavailableError: the storage did not answer, or is full.
        :raises TableRefusedError: a file may not be written.
        """
        self._write_part(partition, batch)

    def take(self) -> list[FileFacts]:
        """Close all files, see that they are there, and return them; the next row begins new ones.

        :raises TableUnavailableError: the storage did not answer, or a file is not there as it was written.
        :raises TableRefusedError: a file may not be written.
        """
        self._pack()
        self._write()
        while self._open:
            self._close(next(iter(self._open)))
        taken = self._closed
        self._check(taken)
        self._closed, self._paths = [], []
        return taken

    def abandon(self, taken: Collection[FileFacts] = ()) -> None:
        """Delete the files that were written since the last call of :meth:`take`, and those that it gave, and
        forget all rows. What cannot be deleted stays behind, and no list names it.

        :param taken: what it gave, if the transaction that was to list these files has failed for sure.
        """
        for each in self._open.values():
            each.discard()
        paths = [*self._paths, *(file.path for file in taken)]
        self._rows.clear()
        self._batches.clear()
        self._open.clear()
        self._row_bytes = self._batch_bytes = self._looked = 0
        self._next_look = _LOOK_ROWS
        self._closed, self._paths = [], []
        if not paths:
            return
        try:
            self._files.delete(paths)
        except (TableUnavailableError, TableRefusedError) as error:
            log.warning("%d files that no list names stay behind, e.g. %s: %s", len(paths), paths[0], error)

    # Rows

    def _look(self) -> None:
        """Estimate the bytes of the rows since the last look, and pack all rows if they are many."""
        rows = self._rows[self._looked + self._turn :: _ONE_IN]
        self._turn = (self._turn + 1) % _ONE_IN
        self._row_bytes += _LOOK_ROWS * _VALUE_BYTES * len(self._plan.columns)
        for place, size in self._sizes:
            self._row_bytes += _ONE_IN * sum([size(row[place]) for row in rows])
        self._looked = len(self._rows)
        self._next_look = self._looked + _LOOK_ROWS
        if self._looked >= _PACK_ROWS or self._row_bytes >= _PACK_BYTES:
            self._pack()

    def _pack(self) -> None:
        """Make a batch of the rows, and write all batches if they are many."""
        if self._rows:
            batch = self._arrow.batch(self._rows)
            self._rows.clear()
            self._batches.append(batch)
            self._batch_bytes += batch.nbytes
        self._row_bytes = self._looked = 0
        self._next_look = _LOOK_ROWS
        if self._batch_bytes >= self._plan.buffer_bytes:
            self._write()

    def _write(self) -> None:
        """Write the batches, parted by partition."""
        if not self._batches:
            return
        (batch,) = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        self._batches.clear()
        self._batch_bytes = 0
        if self._plan.last_of:
            batch = batch.take(last_places(column_array(batch, self._plan.last_of)))
        parts = self._parts(batch)
        parts.sort(key=lambda part: part[0] not in self._open)
        for partition, places in parts:
            self._write_part(partition, batch if places is None else batch.take(places))

    def _parts(self, batch: pa.RecordBatch) -> list[tuple[tuple[Any, ...], pa.Array | None]]:
        """Return each partition with the places of its rows, in their order; None for all rows."""
        if not self._fields:
            return [((), None)]
        values = self._values.arrays(batch)
        codes = _codes(values)
        order = pc.sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int32())
        ends = runs.run_ends.to_pylist()
        parts: list[tuple[tuple[Any, ...], pa.Array | None]] = []
        for begin, end in zip([0, *ends], ends, strict=False):
            first = order[begin].as_py()
            partition = self._values.python([array[first] for array in values])
            parts.append((partition, order.slice(begin, end - begin) if len(ends) > 1 else None))
        return parts

    def _write_part(self, partition: tuple[Any, ...], batch: pa.RecordBatch) -> None:
        """Write rows of one partition as one row group."""
        if self._plan.sort_by:
            batch = batch.take(_sorted(batch, self._plan.sort_by))
        file = self._open.get(partition)
        if file is None:
            if len(self._open) >= self._plan.open_files:
                self._close(next(iter(self._open)))
            file = self._open[partition] = self._begin(partition)
        self._open.move_to_end(partition)
        file.nans.update(nan_columns(batch, self._plain))
        file.writer.write_table(pa.Table.from_batches([batch.select(self._written)], self.schema))
        file.rows += batch.num_rows
        if file.stream.size >= self._plan.target_bytes:
            self._close(partition)

    # Files

    def _begin(self, partition: tuple[Any, ...]) -> _OpenFile:
        shown = [
            (each.name, _shown(value, each)) for value, each in zip(partition, self._fields, strict=True)
        ]
        path = self._files.path(self._names.name(self._number), shown)
        self._number += 1
        self._paths.append(path)
        stream = _CountedStream(self._files.create(path))
        metadata: list[Any] = []
        writer = pq.ParquetWriter(
            stream,
            self.schema,
            compression="zstd",
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=metadata,
        )
        return _OpenFile(path, stream, writer, metadata)

    def _close(self, partition: tuple[Any, ...]) -> None:
        """Close a partition's file, and keep its facts."""
        file = self._open[partition]
        file.writer.close()
        file.stream.close()
        del self._open[partition]
        (metadata,) = file.metadata
        self._closed.append(
            FileFacts(
                path=file.path,
                size=file.stream.size,
                rows=file.rows,
                partition=partition,
                columns=column_facts(metadata, self._plain, file.nans),
                row_groups=row_groups(metadata),
            )
        )

    def _check(self, taken: Sequence[FileFacts]) -> None:
        """Refuse files that are not in the storage as they were written."""
        if not taken:
            return
        sizes = self._files.sizes([file.path for file in taken])
        for file in taken:
            found = sizes.get(file.path)
            if found != file.size:
                seen = "is not there" if found is None else f"has {counted(found, 'byte')} there"
                raise TableUnavailableError(
                    f"file {file.path} was written with {counted(file.size, 'byte')} and closed, and {seen}",
                    fix="look at the storage's own log and its lifecycle rules; a retry writes other files",
                )


class _OpenFile:
    """A file that rows are written to.

    :param path: its location.
    :param stream: where its bytes go.
    :param writer: Parquet's writer.
    :param metadata: list that holds the footer once the writer is closed.
    :ivar rows: number of its rows.
    :ivar nans: columns with a NaN.
    """

    def __init__(self, path: str, stream: _CountedStream, writer: Any, metadata: list[Any]) -> None:
        self.path, self.stream, self.writer, self.metadata = path, stream, writer, metadata
        self.rows = 0
        self.nans: set[str] = set()

    def discard(self) -> None:
        """Close the file, whatever is in it, and give the footer that the writer still owes to nothing."""
        self.stream.is_discarding = True
        with suppress(RuntimeError, pa.ArrowException):  # it has none, after an error
            self.writer.close()
        with suppress(TableUnavailableError, TableRefusedError, OSError):
            self.stream.close()


class _CountedStream:
    """A stream that counts the bytes that are written.

    :param stream: the storage's stream.
    :ivar size: number of bytes.
    :ivar is_discarding: True if what is written goes nowhere.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = 0
        self.is_discarding = False

    @property
    def closed(self) -> bool:
        """True if it is closed."""
        return self._stream.closed

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes, all of them."""
        size = len(data)
        if self.is_discarding:
            return size
        left = memoryview(data).cast("B") if size else memoryview(b"")
        while left:
            left = left[self._stream.write(left) :]
        self.size += size
        return size

    def tell(self) -> int:
        """Return the number of bytes."""
        return self.size

    def flush(self) -> None:
        """Do nothing: a file exists once it is closed."""

    def close(self) -> None:
        """Close the storage's stream."""
        self._stream.close()


def _codes(values: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row, the same for rows of one partition."""
    codes = None
    for array in values:
        encoded = array.dictionary_encode(null_encoding="encode")
        own = encoded.indices.cast(pa.int64())
        if codes is not None:
            # Numbers of all fields so far are made small again, so they never grow beyond 64 bits.
            codes = codes.dictionary_encode().indices.cast(pa.int64())
            own = pc.add(pc.multiply(codes, _length_of(encoded.dictionary)), own)
        codes = own
    return codes


def _length_of(array: pa.Array) -> pa.Scalar:
    return pa.Array.from_buffers(
        pa.int64(), 1, [None, pa.py_buffer(len(array).to_bytes(8, "little", signed=True))]
    )[0]


def _sorted(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Return the places of rows in the order of columns."""
    arrays = [column_array(batch, name) for name in names]
    keys = [str(place) for place in range(len(names))]
    table = pa.RecordBatch.from_arrays(arrays, names=keys)
    return pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys])


def _measures(columns: Sequence[Column]) -> list[tuple[int, Callable[[Any], int]]]:
    """Return place and measure of each column whose values differ in size."""
    return [
        (place, _size_of_plain if column.type in ("text", "binary") else _size)
        for place, column in enumerate(columns)
        if column.type in ("text", "binary") or not isinstance(column.type, str | DecimalType)
    ]


def _size_of_plain(value: Any) -> int:
    return 0 if value is None else len(value)


def _size(value: Any) -> int:
    """Return about the bytes of a value."""
    match value:
        case str() | bytes():
            return _VALUE_BYTES + len(value)
        case list() | tuple():
            return _VALUE_BYTES + sum(map(_size, value))
        case dict():
            return _VALUE_BYTES + sum(map(_size, value)) + sum(map(_size, value.values()))
        case _:
            return _VALUE_BYTES


def _shown(value: Any, each: PartitionField) -> Any:
    """Return a partition's value as a folder's name shows it to people."""
    if value is None:
        return None
    match each.transform:
        case "year":
            return 1970 + value
        case "month":
            return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
        case "day":
            return (_EPOCH_DAY + timedelta(days=value)).isoformat()
        case "hour":
            return f"{(_EPOCH_DAY + timedelta(days=value // 24)).isoformat()}-{value % 24:02d}"
        case _:
            return value
