"""Files of a partition are merged into one that has their rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_kstreams.streams.errors import InvariantError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.merging import merged_file
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from tests.support.tables.folder_files import FolderFiles

COLUMNS = (Column("day", "date"), Column("n", "long"), Column("share", "double", required=False))
DAY = date(2024, 1, 1)


def names(task_id: str) -> FileNames:
    return FileNames(RowsWriter(application_id="app", run_id="r1", task_id=task_id, attempt=0))


def written(files: FolderFiles, plan: FilePlan, *files_of_rows: Sequence[tuple[Any, ...]]) -> list[FileFacts]:
    writer = ParquetRows(files, plan, names("0_0"))
    taken: list[FileFacts] = []
    for rows in files_of_rows:
        for row in rows:
            writer.add(row)
        taken += writer.take()
    return taken


def rows_in(file: FileFacts) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pq.ParquetFile(file.path).read().to_pylist()]


def test_merged_file_has_the_rows_and_statistics_of_all(tmp_path: Path) -> None:
    files, plan = FolderFiles(tmp_path), FilePlan(columns=COLUMNS, partition_by=("month(day)",))
    taken = written(files, plan, [(DAY, 3, None), (DAY, 1, 0.5)], [(date(2024, 1, 9), 2, 0.25)])
    made = merged_file(files, plan, names("merge"), taken)
    assert rows_in(made) == [(DAY, 3, None), (DAY, 1, 0.5), (date(2024, 1, 9), 2, 0.25)]
    assert (made.rows, made.partition, made.size) == (
        3,
        ((2024 - 1970) * 12,),
        Path(made.path).stat().st_size,
    )
    assert made.columns == {
        "day": ColumnFacts(0, DAY, date(2024, 1, 9)),
        "n": ColumnFacts(0, 1, 3),
        "share": ColumnFacts(1, 0.25, 0.5),
    }
    assert "day_month=2024-01/rows-app-" in made.path
    assert "-r1-merge-0-" in made.path


def test_column_has_no_bounds_when_one_of_the_files_has_a_nan(tmp_path: Path) -> None:
    files, plan = FolderFiles(tmp_path), FilePlan(columns=COLUMNS)
    taken = written(files, plan, [(DAY, 1, 0.5)], [(DAY, 2, float("nan"))])
    made = merged_file(files, plan, names("merge"), taken)
    assert made.columns["share"] == ColumnFacts(0)


def test_rows_of_each_buffer_are_sorted_when_the_table_is(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    plan = FilePlan(columns=COLUMNS, sort_by=("n",))
    taken = written(files, plan, *([(DAY, number % 7, None)] for number in range(21)))
    made = merged_file(files, plan, names("merge"), taken)
    assert [row[1] for row in rows_in(made)] == sorted(number % 7 for number in range(21))


def test_columns_that_stand_in_the_partition_alone_stay_out_of_the_file(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    plan = FilePlan(columns=COLUMNS, partition_by=("day",), left_out=frozenset({"day"}), ids={"n": 7})
    taken = written(files, plan, [(DAY, 1, None)], [(DAY, 2, None)])
    made = merged_file(files, plan, names("merge"), taken)
    assert (made.partition, rows_in(made)) == ((DAY,), [(1, None), (2, None)])
    schema = pq.ParquetFile(made.path).schema_arrow
    assert schema.field("n").metadata == {b"PARQUET:field_id": b"7"}


@pytest.mark.parametrize("wrong", ["gone", "full", "other"])
def test_no_merged_file_is_left_when_it_cannot_be_made(tmp_path: Path, wrong: str) -> None:
    files, plan = FolderFiles(tmp_path), FilePlan(columns=COLUMNS)
    taken = written(files, plan, [(DAY, 1, None)], [(DAY, 2, None)])
    if wrong == "gone":
        files.delete([taken[1].path])
    elif wrong == "full":
        files.room_bytes = 10
    else:
        taken[1] = FileFacts(taken[1].path, taken[1].size, rows=2)
    before = {path for path, _ in files.names("rows-")}
    kind = {"gone": FileNotFoundError, "full": TableUnavailableError, "other": InvariantError}[wrong]
    with pytest.raises(kind):
        merged_file(files, plan, names("merge"), taken)
    assert {path for path, _ in files.names("rows-")} == before


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    """Arrow holds one buffer, what is read of one file, and a row group that is being written."""
    files = FolderFiles(tmp_path)
    plan = FilePlan(columns=(Column("text", "text"),), buffer_bytes=1 << 19)
    block = [(f"{number:>500}",) for number in range(500)]
    taken = written(files, plan, *[block] * 48)
    few = _most_bytes(files, plan, taken[:8])
    many = _most_bytes(files, plan, taken)
    assert many < few + (1 << 18)
    assert many < sum(file.rows for file in taken) * 500 / 2


def _most_bytes(files: FolderFiles, plan: FilePlan, taken: list[FileFacts]) -> int:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        made = merged_file(files, plan, names("merge"), taken)
    finally:
        pa.set_memory_pool(before)
    assert made.rows == 500 * len(taken)
    return int(pool.max_memory())
