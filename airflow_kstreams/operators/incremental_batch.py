"""The three steps of a run as one task group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import TaskGroup

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.operators.capture_stop_offsets import CaptureStopOffsetsOperator
from airflow_kstreams.operators.finish_run import FinishRunOperator
from airflow_kstreams.operators.run_topology import DEFAULT_SPARK_CONN_ID, RunTopologyOperator

__all__ = ["incremental_batch"]


def incremental_batch(
    *,
    application_id: str,
    application: str,
    group_id: str = "incremental_batch",
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
    settings: Mapping[str, Any] | None = None,
    conf: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Lay out one incremental run: ``capture_stop_offsets >> run_topology >> finish_run``.

    Give the DAG ``max_active_runs=1`` and, through ``default_args``, retries: an attempt that died is resumed
    by the next one with the same stop offsets.

    :param application_id: names the consumer group and the internal topics.
    :param application: path of the application file, which defines ``topology()``.
    :param group_id: of the task group.
    :param kafka_conn_id: connection to Kafka.
    :param spark_conn_id: connection to Spark.
    :param settings: application settings by their dotted names.
    :param conf: Spark configuration, e.g. ``{"spark.executor.memory": "2g"}``.
    :return: the task group.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.operators.incremental_batch import incremental_batch
    >>> with DAG("orders_hourly", schedule="@hourly", max_active_runs=1, default_args={"retries": 2}) as dag:
    ...     group = incremental_batch(application_id="orders", application="/opt/spark_apps/orders.py")
    >>> print(*dag.task_ids)
    incremental_batch.capture_stop_offsets incremental_batch.run_topology incremental_batch.finish_run
    """
    with TaskGroup(group_id=group_id) as group:
        capture = CaptureStopOffsetsOperator(
            task_id="capture_stop_offsets",
            application_id=application_id,
            application=application,
            kafka_conn_id=kafka_conn_id,
            settings=settings,
        )
        run = RunTopologyOperator(
            task_id="run_topology",
            application_id=application_id,
            application=application,
            kafka_conn_id=kafka_conn_id,
            spark_conn_id=spark_conn_id,
            settings=settings,
            conf=dict(conf or {}),
        )
        finish = FinishRunOperator(
            task_id="finish_run",
            application_id=application_id,
            kafka_conn_id=kafka_conn_id,
            settings=settings,
        )
        capture >> run >> finish
    return group
