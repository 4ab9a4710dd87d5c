"""Reads applications, runs, lag and the plan of the next run as typed values. It writes nothing to Kafka.

Commands, pages and notebooks show these values; ``airflow-kstreams COMMAND --json`` prints them. It may
import ``explore`` (tables, stores), ``kafka`` and ``batch.inspect``, which does the reading.

::

    from airflow_kstreams import inspect

    inspect.runs("orders", "localhost:9092")
    inspect.lag("orders", "localhost:9092").lag
    inspect.plan("orders", "localhost:9092").expected
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.ahead.lag import PartitionLag, SeenLag, TopicLag
from airflow_kstreams.batch.inspect.ahead.next_run import (
    ExpectedTime,
    NextRun,
    PlannedPartition,
    PlannedTopic,
    Refusal,
    StateToRestore,
    WindowsToClose,
)
from airflow_kstreams.batch.inspect.runs.seen_runs import RunFilter, SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion
from airflow_kstreams.inspect.readings import lag, plan, runs

__all__ = [
    "ExpectedTime",
    "NextRun",
    "PartitionLag",
    "PlannedPartition",
    "PlannedTopic",
    "Refusal",
    "RunFilter",
    "SeenLag",
    "SeenRun",
    "SeenRuns",
    "StateToRestore",
    "Suspicion",
    "TopicLag",
    "WindowsToClose",
    "lag",
    "plan",
    "runs",
]
