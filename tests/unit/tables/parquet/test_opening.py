"""Rows of a task go to the files of the table that its run began with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget
from airflow_kstreams.streams.table_plan import Column, TablePlan
from airflow_kstreams.streams.tables.table_port import TableLook
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.opening import rows_opener
from tests.support.tables.folder_files import FolderFiles

COLUMNS = (Column("n", "long"), Column("text", "text"))


def test_no_more_files_are_open_than_a_task_may_have(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    look = TableLook(table_id="t", columns=COLUMNS, partition_by=("n",))
    port = SimpleNamespace(look=lambda: look, files=lambda look: files)
    tables: Any = SimpleNamespace(table=lambda spec: port)
    table = TablePlan(name="a.b", format="iceberg", location="a.b", columns=COLUMNS, partition_by=("n",))
    writer = RowsWriter(application_id="app", run_id="r1", task_id="0_0", attempt=0)
    rows = rows_opener(tables, open_files=2)(table, FrozenTarget(table_id="t", sequence=1), writer)
    for number in range(5):
        rows.add((number, ""))
    assert len(rows.take()) == 5
    assert files.most_open == 2
