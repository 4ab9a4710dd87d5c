"""Reads an application for reports: its finished runs, the new ones, the last values of a topic, a store's
entries.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.finished_runs import new_runs
from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.batch.report.reading import finished_run, last_values

__all__ = ["StoredState", "finished_run", "last_values", "new_runs"]
