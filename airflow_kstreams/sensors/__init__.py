"""Waiting for runs. Sensors only read: they join no group and commit nothing."""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
