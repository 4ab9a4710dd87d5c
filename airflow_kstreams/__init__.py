"""Scheduled incremental batch processing of Kafka topics: Airflow schedules, Spark runs, Kafka decides.

Importing this package is free of side effects: it loads neither Airflow, Spark nor a Kafka client, because
Spark executors and DAG files import it too.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
