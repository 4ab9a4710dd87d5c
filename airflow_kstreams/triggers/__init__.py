"""What runs in the triggerer: the deferred form of the sensors, and the watch of finished runs for assets.

Sensors and DAG files use it. It may import ``hooks``, ``kafka``, ``batch`` and ``streams``. Triggers only
read, and never block the event loop: clients live on threads of their own. What a condition means belongs
to ``batch.inspect``; a change of a trigger's class path or arguments would break waits that are under way.
"""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
