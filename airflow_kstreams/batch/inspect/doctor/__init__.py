"""What may break the promise, looked for before it does: the cluster, the topics, the application's state.

Only looks: it claims nothing, commits nothing and creates nothing.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.doctor.diagnosis import Subject, diagnose
from airflow_kstreams.batch.inspect.doctor.findings import Finding, Level

__all__ = ["Finding", "Level", "Subject", "diagnose"]
