"""Where the shipped function begins on an executor, once this package is known to be there.

It imports all that any task needs, so that what is missing is said before a task has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

import airflow_kstreams.batch.continuous.lease_watch
import airflow_kstreams.batch.continuous.task
import airflow_kstreams.batch.continuous.task_thread
import airflow_kstreams.batch.task.runner
import airflow_kstreams.kafka.cluster  # noqa: F401
from airflow_kstreams.spark.executor.continuous_host import ContinuousHost
from airflow_kstreams.spark.executor.reports import in_arrow
from airflow_kstreams.spark.executor.task_host import TaskHost

if TYPE_CHECKING:
    from airflow_kstreams.spark.executor.reports import ArrowFunction

_HOSTS: dict[str, type[TaskHost | ContinuousHost]] = {
    host.__name__: host for host in (TaskHost, ContinuousHost)
}


def run_shipped(kind: str, text: str) -> ArrowFunction:
    """Return what hosts tasks.

    :param kind: name of the host's class.
    :param text: the host as JSON.
    """
    return in_arrow(msgspec.json.decode(text, type=_HOSTS[kind]).run_partition)
