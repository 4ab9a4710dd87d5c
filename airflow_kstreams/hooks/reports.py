"""Gives a DAG's own tasks what they read of an application, and the types that operators leave in XCom.

An application's finished runs, the new ones, the last values of a topic, what lies in a store, and what an
asset event says of a finished run. The engine does not read XCom back to decide anything: it asks Kafka.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.finished_runs import finished_run, last_values, new_runs
from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.batch.report.lineage import announced_runs, event_extra, snapshots_of
from airflow_kstreams.batch.report.results import (
    NewDataResult,
    PartitionsResult,
    ProcessorsResult,
    ReplayResult,
    ResetResult,
    RunResult,
    StopOffsetsResult,
)

__all__ = [
    "NewDataResult",
    "PartitionsResult",
    "ProcessorsResult",
    "ReplayResult",
    "ResetResult",
    "RunResult",
    "StopOffsetsResult",
    "StoredState",
    "announced_runs",
    "event_extra",
    "finished_run",
    "last_values",
    "new_runs",
    "snapshots_of",
]
