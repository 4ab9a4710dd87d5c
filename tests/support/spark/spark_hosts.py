"""Runs the function that Spark runs, in a process of its own, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from airflow_kstreams.spark.driver.package_archive import shipped
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.spark.executor.task_host import TaskHost


def run_spark_task(host: TaskHost, partition: int) -> list[HostReport]:
    """Run one Spark task and return what it reports to the driver."""
    column = pa.array([partition], type=pa.int64())
    batches: Iterator[pa.RecordBatch] = iter([pa.RecordBatch.from_arrays([column], names=["id"])])
    return [
        msgspec.json.decode(report, type=HostReport)
        for batch in shipped(host)(batches)
        for report in batch.column(0).to_pylist()
    ]
