"""Sensors that wait for runs and data, one a module; ``condition_sensor`` is their base class.

DAG files use them. A sensor names its condition (``batch.inspect.conditions``) and reads its parameters; it
joins no group and commits nothing. The folder may import ``triggers``, ``hooks``, ``batch.inspect`` and
``streams``. Conditions are evaluated in ``batch.inspect``, deferred waits are in ``triggers``.
"""

from __future__ import annotations

from airflow_kstreams.launch.installation import require_airflow

require_airflow(what=__name__)
