"""Offers the steps of a run as Airflow operators, their task group, and backfill, reset and replay.

DAG files use it, ``decorators`` builds on it. It may import ``hooks`` and what hooks import, and Airflow's
Spark provider; constructors only assign. Decisions about a run belong to ``batch``, waiting to ``sensors``.
"""

from __future__ import annotations

from airflow_kstreams.launch.installation import require_airflow

require_airflow("airflow.providers.apache.spark", what=__name__)
