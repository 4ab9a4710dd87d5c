"""What reports read of an application: its finished runs, and the last values of a topic."""

from __future__ import annotations

from airflow_kstreams.batch.report.reading import finished_run, last_values

__all__ = ["finished_run", "last_values"]
