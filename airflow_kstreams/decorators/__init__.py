"""TaskFlow decorators: ``@task.kstreams``.

Airflow finds it through ``get_provider_info``; DAG files use it as ``@task.kstreams``. It turns a function
into an application file for ``RunTopologyOperator``, so it may import ``operators`` and ``hooks``.
"""

from __future__ import annotations

from airflow_kstreams.launch.installation import require_airflow

require_airflow("airflow.providers.apache.spark", what=__name__)
