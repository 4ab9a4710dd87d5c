"""Reads applications, runs, lag, the plan of the next run, state and dead letters as typed values. It writes
nothing to Kafka.

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
    PlannedTable,
    PlannedTopic,
    StateToRestore,
    WindowsToClose,
)
from airflow_kstreams.batch.inspect.applications import SeenApplication, SeenApplications
from airflow_kstreams.batch.inspect.dead_letters import LetterGroup, SeenLetter, SeenLetters
from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.doctor import Finding
from airflow_kstreams.batch.inspect.runs.audit import AuditRow, BetweenTopic, RunAudit
from airflow_kstreams.batch.inspect.runs.run_in_full import (
    ComparedFigure,
    ComparedRuns,
    ReadAndWritten,
    ReadOffsets,
    RunInFull,
    SeenTask,
)
from airflow_kstreams.batch.inspect.runs.seen_runs import RunFilter, SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion
from airflow_kstreams.batch.inspect.tables.listed_files import LandedRows, WaitingRows
from airflow_kstreams.batch.inspect.tables.seen_tables import SeenTable, SeenTables
from airflow_kstreams.batch.inspect.tables.table_check import CheckedTable, TableDifference, TablesCheck
from airflow_kstreams.batch.ledger.history import Attempt, Failure, RunHistory
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.explore import stored_state
from airflow_kstreams.inspect.html_forms import run_page
from airflow_kstreams.inspect.readings import (
    applications,
    check_tables,
    compare,
    doctor,
    lag,
    letters,
    plan,
    run,
    runs,
    tables,
)

__all__ = [
    "Attempt",
    "AuditRow",
    "BetweenTopic",
    "CheckedTable",
    "ComparedFigure",
    "ComparedRuns",
    "Diagnosis",
    "ExpectedTime",
    "Failure",
    "Finding",
    "LandedRows",
    "LetterGroup",
    "NextRun",
    "PartitionLag",
    "PlannedPartition",
    "PlannedTable",
    "PlannedTopic",
    "ReadAndWritten",
    "ReadOffsets",
    "RunAudit",
    "RunFilter",
    "RunHistory",
    "RunInFull",
    "SeenApplication",
    "SeenApplications",
    "SeenLag",
    "SeenLetter",
    "SeenLetters",
    "SeenRun",
    "SeenRuns",
    "SeenTable",
    "SeenTables",
    "SeenTask",
    "StateToRestore",
    "StepTimes",
    "Suspicion",
    "TableDifference",
    "TablesCheck",
    "TopicLag",
    "WaitingRows",
    "WindowsToClose",
    "applications",
    "check_tables",
    "compare",
    "doctor",
    "lag",
    "letters",
    "plan",
    "run",
    "run_page",
    "runs",
    "stored_state",
    "tables",
]
