"""Shows applications and runs inside Airflow's web interface, read-only.

Airflow's API server calls it, through the plugin in ``plugin``, which every process of Airflow imports and
which imports nothing heavy. The rest is imported at the first request: who may see a page (``access``), the
applications that the serialized DAGs name (``dag_applications``), what Airflow keeps of their runs
(``kept_runs``), what Kafka says now (``live_readings``), and the routes (``page_routes``). All HTML comes
from ``views``. It may import ``hooks``, ``inspect`` and what lies below; nothing imports it. What writes to
Kafka does not belong here: the API server only reads it, through ``read_only_cluster``.
"""
