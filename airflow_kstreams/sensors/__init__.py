"""Waiting for runs and data, one sensor a module; ``condition_sensor`` is what all of them share.

DAG files use it. A sensor names its condition (``batch.inspect.conditions``) and reads its parameters; it
joins no group and commits nothing. It may import ``triggers``, ``hooks``, ``batch.inspect`` and
``streams``. How a condition is evaluated belongs to ``batch.inspect``, the deferred wait to ``triggers``.
"""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
