"""TaskFlow decorators: ``@task.kstreams``."""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", "airflow.providers.apache.spark", what=__name__)
