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
from airflow_kstreams.batch.inspect.runs.audit import AuditRow, BetweenTopic, RunAudit
from airflow_kstreams.batch.inspect.runs.run_in_full import (
    ComparedFigure,
    ComparedRuns,
    ReadTopic,
    RunInFull,
    SeenTask,
)
from airflow_kstreams.batch.inspect.runs.seen_runs import RunFilter, SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion
from airflow_kstreams.inspect.readings import compare, lag, plan, run, runs
from airflow_kstreams.inspect.run_page import run_page

__all__ = [
    "AuditRow",
    "BetweenTopic",
    "ComparedFigure",
    "ComparedRuns",
    "ExpectedTime",
    "NextRun",
    "PartitionLag",
    "PlannedPartition",
    "PlannedTopic",
    "ReadTopic",
    "Refusal",
    "RunAudit",
    "RunFilter",
    "RunInFull",
    "SeenLag",
    "SeenRun",
    "SeenRuns",
    "SeenTask",
    "StateToRestore",
    "Suspicion",
    "TopicLag",
    "WindowsToClose",
    "compare",
    "lag",
    "plan",
    "run",
    "run_page",
    "runs",
]
