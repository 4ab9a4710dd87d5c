"""Starts a host for the shipped function on an executor that has this package.

It imports all modules that any task needs, so that a missing one is reported before a task has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import airflow_kstreams.batch.task.runner
import airflow_kstreams.kafka.cluster
import airflow_kstreams.spark.executor.task_host  # noqa: F401
from airflow_kstreams.spark.executor.copy_host import CopyHost
from airflow_kstreams.spark.executor.report_rows import in_arrow
from airflow_kstreams.spark.executor.task_host import TaskHost, show_log_lines
from airflow_kstreams.streams.plan import decode_json

if TYPE_CHECKING:
    from airflow_kstreams.spark.executor.report_rows import ArrowFunction


def run_shipped(text: str) -> ArrowFunction:
    """Return the function that hosts tasks, or copies state.

    :param text: a :class:`TaskHost` or a :class:`CopyHost` as JSON.
    """
    show_log_lines()
    return in_arrow(decode_json(text, TaskHost | CopyHost).run_partition)
