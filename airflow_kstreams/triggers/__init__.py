"""The deferred form of the sensors. Triggers only read, and never block the event loop."""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
