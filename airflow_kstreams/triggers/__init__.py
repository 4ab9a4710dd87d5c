"""Triggers: the deferred form of the sensors, and the watch of finished runs for assets.

Sensors and DAG files use them. The folder may import ``hooks``, ``kafka``, ``batch`` and ``streams``.
Triggers only read, and never block the event loop: clients live on threads of their own. Conditions are
defined in ``batch.inspect``. Changing a trigger's class path or arguments would break sensors that are
deferred.
"""

from __future__ import annotations

from airflow_kstreams.launch.installation import require_airflow

require_airflow(what=__name__)
