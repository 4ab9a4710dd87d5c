"""Rewrites the files of an Iceberg table that have rows of staged keys, bucket by bucket.

The table is partitioned by ``bucket(n, key)``, and staged files lie apart by the same buckets. For each
bucket with staged rows:

1. Keys of the table's files are read, of those whose bounds allow a staged key. A file without one stays.
2. The others are read once, in batches, without the rows of staged keys, and written anew together with the
   last row of each staged key. A new row is written beside the kept ones that it lies among, so that files
   of a table that is sorted by its key keep to ranges of keys, and later upserts leave most of them alone.

Positional deletes of other engines are applied while a file is read; tables with equality deletes are
refused at the look. A file of another partitioning is refused: its rows may be of any bucket.

Memory holds the staged rows of one bucket, batches that pyarrow reads ahead, and one row group that is
written, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

from airflow_kstreams.streams.errors import LargeRewriteError, TableRefusedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.table_plan import DELETED, ColumnType
from airflow_kstreams.streams.tables.table_port import (
    TARGET_BYTES,
    FileFacts,
    RewrittenFiles,
    TableCommit,
    TableFiles,
    TableLook,
)
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.arrow_rows import arrow_type
from airflow_kstreams.tables.parquet.merging import fitted, together
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from airflow_kstreams.tables.storage_errors import TablePlace
from airflow_kstreams.tables.upserts.staged_files import StagedFiles, plain_keys

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

#: Bytes of the files that may have a staged key from which buckets are rewritten elsewhere, if they can be.
LARGE_BYTES = 64 * 1024 * 1024
#: Bytes of a row group that is written.
_GROUP_BYTES = 32 * 1024 * 1024


class TableRewrite:
    """One upsert of a table, made for one state of it.

    :param look: the state, whose snapshot need not be the newest one any more.
    :param files: storage of the table's files.
    :param commit: the upsert.
    :param place: the table, for messages.
    :param most_bytes: bytes of files that may be rewritten here; None for any.
    """

    def __init__(
        self,
        look: TableLook,
        files: TableFiles,
        commit: TableCommit,
        place: TablePlace,
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._look, self._files, self._commit, self._place = look, files, commit, place
        self._most_bytes = most_bytes
        self._table: Table = look.state
        self._key = commit.key_column
        self._staged = {
            partition: StagedFiles(files, staged, self._key)
            for partition, staged in _by_partition(commit.added).items()
        }

    @property
    def is_large(self) -> bool:
        """Whether it touches more than one bucket, and much may have to be rewritten."""
        most = sum(task.file.file_size_in_bytes for tasks in self._candidates.values() for task in tasks)
        return len(self._staged) > 1 and most >= LARGE_BYTES

    def by_bucket(self) -> list[TableCommit]:
        """Return the upsert in parts, one for each bucket."""
        return [replace(self._commit, added=files) for files in _by_partition(self._commit.added).values()]

    def made(self) -> RewrittenFiles:
        """Write the files.

        :raises LargeRewriteError: there is more to rewrite than may be; nothing was written.
        :raises TableRefusedError: the table has what cannot be rewritten here.
        :raises TableUnavailableError: the storage did not answer, or a file is not there.
        """
        touched = self._touched()
        removed = [task.file for tasks in touched.values() for task in tasks]
        removed_bytes = sum(file.file_size_in_bytes for file in removed)
        if self._most_bytes is not None and removed_bytes > self._most_bytes:
            raise LargeRewriteError(
                f"table {self._place.name!r}: commit {self._commit.sequence} rewrites "
                f"{counted(removed_bytes, 'byte')} of its files, and this process may rewrite "
                f"{counted(self._most_bytes, 'byte')}",
                fix="set finish=True on the task that runs the topology, which may rewrite any size, and "
                "retry it: nothing is processed again",
            )
        rows = self._writer()
        try:
            for partition, staged in self._staged.items():
                for batch in together(self._bucket(rows.schema, staged, touched[partition]), _GROUP_BYTES):
                    rows.add_part(partition, batch)
            added = rows.take()
        except BaseException:
            rows.abandon()
            raise
        paths = tuple(file.file_path for file in removed)
        return RewrittenFiles(removed=paths, removed_bytes=removed_bytes, added=tuple(added))

    def _writer(self) -> ParquetRows:
        unknown = [str(each) for each in self._look.columns if _is_unknown(each.type)]
        if unknown:
            raise TableRefusedError(
                f"table {self._place.name!r}: {', '.join(unknown)}: rows with a column of this type are not "
                "rewritten here",
                fix="drop the column, or write to another table",
            )
        plan = FilePlan(
            columns=self._look.columns,
            partition_by=self._look.partition_by,
            sort_by=self._look.sort_by or (self._key,),
            ids=self._look.column_ids,
            target_bytes=self._look.target_bytes or TARGET_BYTES,
        )
        writer = RowsWriter(
            application_id=self._commit.application_id,
            run_id=str(self._commit.sequence),
            task_id="upsert",
            attempt=1,
        )
        return ParquetRows(self._files, plan, FileNames(writer))

    @cached_property
    def _candidates(self) -> Mapping[tuple[Any, ...], list[FileScanTask]]:
        """The files of each bucket whose bounds allow a staged key."""
        found: dict[tuple[Any, ...], list[FileScanTask]] = {partition: [] for partition in self._staged}
        head = int(self._look.snapshot) if self._look.snapshot else None
        for task in self._table.scan(row_filter=self._within(), snapshot_id=head).plan_files():
            self._refuse_other_spec(task.file)
            partition = tuple(task.file.partition[place] for place in range(len(self._look.partition_by)))
            if partition in found:
                found[partition].append(task)
        return found

    def _touched(self) -> Mapping[tuple[Any, ...], list[FileScanTask]]:
        """Return the files of each bucket that have a staged key, those with the smallest keys first."""
        schema = self._table.schema().select(self._key)
        field_id = schema.find_field(self._key).field_id
        found: dict[tuple[Any, ...], list[FileScanTask]] = {}
        for partition, tasks in self._candidates.items():
            keys = self._staged[partition].keys().unique() if tasks else None
            found[partition] = sorted(
                (task for task in tasks if self._has_one(task, schema, keys)),
                key=lambda task: (task.file.lower_bounds or {}).get(field_id, b""),
            )
        return found

    def _within(self) -> BooleanExpression:
        """Return the filter for files that may have a staged key."""
        bounds = [staged.bounds for staged in self._staged.values()]
        lower = [each for each, _ in bounds]
        upper = [each for _, each in bounds]
        said: BooleanExpression = AlwaysTrue()
        if None not in lower:
            said = And(said, GreaterThanOrEqual(self._key, min(lower)))  # type: ignore[call-arg, arg-type]
        if None not in upper:
            said = And(said, LessThanOrEqual(self._key, max(upper)))  # type: ignore[call-arg, arg-type]
        return said

    def _refuse_other_spec(self, file: DataFile) -> None:
        if file.spec_id != self._look.spec_id:
            raise TableRefusedError(
                f"table {self._place.name!r}: {file.file_path} was written before the table was partitioned "
                f"by {self._look.partition_by[0]}, and may have rows of each bucket",
                fix="let the table's engine rewrite its files by the new partitioning, then retry the run",
            )

    def _has_one(self, task: FileScanTask, schema: Schema, keys: pa.Array | None) -> bool:
        return any(pc.any(_is_in(batch, self._key, keys)).as_py() for batch in self._read(task, schema))

    def _read(self, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Give the rows of a file that are not deleted, in batches.

        pyiceberg's public way to read a task loads it whole; the two functions beneath give its batches.
        """
        scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
        deletes = _read_all_delete_files(self._table.io, [task])
        return scan._record_batches_from_scan_tasks_and_deletes([task], deletes)

    def _bucket(
        self, schema: pa.Schema, staged: StagedFiles, tasks: Sequence[FileScanTask]
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of a bucket's rewritten files, and its new ones among them."""
        last = pa.Table.from_batches(staged.last_rows(), staged.schema())
        keys = plain_keys(last.column(self._key).combine_chunks())
        new = _fitting(last.filter(pc.invert(last.column(DELETED))), schema)
        new = new.take(pc.sort_indices(plain_keys(new.column(self._key))))
        for task in tasks:
            for batch in self._read(task, self._table.schema()):
                kept = batch.filter(pc.invert(_is_in(batch, self._key, keys)))
                if kept.num_rows:
                    yield fitted(kept, schema)
                    below = _count_up_to(new, self._key, kept)
                    if below:
                        yield new.slice(0, below)
                        new = new.slice(below)
        if new.num_rows:
            yield new


def _by_partition(files: Collection[FileFacts]) -> dict[tuple[Any, ...], list[FileFacts]]:
    found: dict[tuple[Any, ...], list[FileFacts]] = {}
    for file in files:
        found.setdefault(tuple(file.partition), []).append(file)
    return found


def _is_unknown(kind: ColumnType) -> bool:
    """Return True for a type that stands under Iceberg's own name among columns."""
    try:
        arrow_type(kind)
    except KeyError:
        return True
    return False


def _is_in(batch: pa.RecordBatch, key: str, keys: pa.Array) -> pa.Array:
    """Return whether the key of each row is among keys."""
    own = plain_keys(batch.column(key))
    return pc.is_in(own if own.type == keys.type else own.cast(keys.type), value_set=keys)


def _fitting(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return staged rows with the columns of the table; those that rows do not have are null."""
    arrays = []
    for field in schema:
        if field.name in rows.column_names:
            array = rows.column(field.name).combine_chunks()
            arrays.append(array if array.type == field.type else array.cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _count_up_to(new: pa.RecordBatch, key: str, kept: pa.RecordBatch) -> int:
    """Return how many of the new rows, sorted by their keys, have one that is not above all kept ones."""
    if not new.num_rows:
        return 0
    highest = pc.max(plain_keys(kept.column(key)))
    own = plain_keys(new.column(key))
    return int(pc.sum(pc.less_equal(own, highest.cast(own.type))).as_py() or 0)
