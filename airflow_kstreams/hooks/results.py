"""Types of what operators and sensors leave in XCom. No decision reads them back: Kafka alone is asked."""

from __future__ import annotations

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
]
