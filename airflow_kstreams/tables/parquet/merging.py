"""Merges files of one partition of a table into one, in bounded memory.

The rows of the files are read in batches, one file after the other, and written through
:class:`~airflow_kstreams.tables.parquet.parquet_files.ParquetRows`: a row group for each ``buffer_bytes`` of
them, sorted if the table is. So memory holds one row group of a file and one buffer, whatever the number of
files and rows. Statistics are those of the new file's own footer.

Files of one run have the same columns and ids, so a row needs no change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_kstreams.streams.errors import InvariantError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts, TableFiles, TablesPort
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.opening import Target, opened_target
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows

#: Rows, and about the bytes in them, that are read at once.
_READ_ROWS, _READ_BYTES = 65_536, 4 * 1024 * 1024


def files_merger(
    tables: TablesPort,
) -> Callable[[TablePlan, Target, RowsWriter, Sequence[FileFacts]], FileFacts]:
    """Return what merges files of one partition of a table into one, for the merges of one run.

    :param tables: opens the tables, each once.
    """
    opened: dict[str, tuple[TableFiles, FilePlan]] = {}

    def merge(table: TablePlan, target: Target, writer: RowsWriter, files: Sequence[FileFacts]) -> FileFacts:
        if table.name not in opened:
            opened[table.name] = opened_target(tables, table, target)
        storage, plan = opened[table.name]
        return merged_file(storage, plan, FileNames(writer), files)

    return merge


def merged_file(
    storage: TableFiles, plan: FilePlan, names: FileNames, files: Sequence[FileFacts]
) -> FileFacts:
    """Write the rows of files into one file, and return it once it is in the storage.

    :param storage: storage of the table's files.
    :param plan: what the files are like, and the new one has to be; its size is not bounded here.
    :param names: name of the new file.
    :param files: files of one partition, one or more; they are left as they are.
    :raises TableUnavailableError: the storage did not answer, is full, or does not have a file.
    :raises TableRefusedError: a file may not be read or written.
    """
    rows = ParquetRows(storage, replace(plan, target_bytes=sys.maxsize), names)
    taken: list[FileFacts] = []
    try:
        for batch in together(_batches(storage, rows.schema, files), plan.buffer_bytes):
            rows.add_part(files[0].partition, batch)
        taken = rows.take()
        (made,) = taken
        _check_rows(made, files)
    except BaseException:
        rows.abandon(taken)
        raise
    return made


def _batches(storage: TableFiles, schema: pa.Schema, files: Sequence[FileFacts]) -> Iterator[pa.RecordBatch]:
    """Give the rows of files, in their order."""
    for file in files:
        with storage.read(file.path) as stream:
            parquet = pq.ParquetFile(stream, pre_buffer=False)
            for group in range(parquet.metadata.num_row_groups):
                read = parquet.iter_batches(_rows_at_once(parquet.metadata.row_group(group)), [group])
                yield from (fitted(batch, schema) for batch in read)


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """Return the number of rows to read at once: few of a row group with large rows."""
    row_bytes = max(1, int(group.total_byte_size) // max(1, int(group.num_rows)))
    return max(1, min(_READ_ROWS, _READ_BYTES // row_bytes))


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema: Parquet gives some back in another form."""
    arrays = [batch.column(field.name) for field in schema]
    fitted = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def together(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Give the rows of batches in batches of so many bytes, the last one excepted."""
    kept: list[pa.RecordBatch] = []
    kept_bytes = 0
    for batch in batches:
        kept.append(batch)
        kept_bytes += batch.nbytes
        if kept_bytes >= most_bytes:
            yield _one(kept)
            kept, kept_bytes = [], 0
    if kept:
        yield _one(kept)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _check_rows(made: FileFacts, files: Sequence[FileFacts]) -> None:
    """Refuse a merged file that has not as many rows as the files, as they were listed."""
    listed = sum(file.rows for file in files)
    if made.rows != listed:
        raise InvariantError(
            "a merged file has the rows of its files",
            f"it has {counted(made.rows, 'row')}, and {counted(len(files), 'file')} had {listed}",
            where=f"file {files[0].path}",
        )
