"""What operators and sensors leave in XCom: small, typed, never read back to decide anything (Kafka is asked
for that).
"""

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
