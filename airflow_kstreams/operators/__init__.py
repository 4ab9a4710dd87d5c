"""The three steps of a run, and the task group that lays them out: capture stop offsets, run the topology,
finish.
"""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", "airflow.providers.apache.spark", what=__name__)
