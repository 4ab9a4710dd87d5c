"""Makes the DAG for the backfills of a topology that keeps state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG

from airflow_kstreams.hooks.airflow_versions import cron_intervals
from airflow_kstreams.operators.incremental_batch import incremental_batch

__all__ = ["backfill_dag"]


def backfill_dag(
    dag_id: str,
    *,
    application_id: str,
    application: str,
    schedule: str,
    outputs: Mapping[str, str] | str,
    timezone: str = "UTC",
    dag_arguments: Mapping[str, Any] | None = None,
    **batch: Any,
) -> DAG:
    """Make the DAG through which a stateful topology is backfilled, beside the live one.

    Its runs go one after the other, in the order of their intervals: every task waits for the one of the
    interval before (``depends_on_past``, ``wait_for_downstream``), so that Airflow refuses
    ``--run-backwards`` and the reprocess behavior ``none``. All runs of one backfill share an application id,
    and so its state, which begins empty: ``<application_id>-backfill-<name>``. The name is given with the
    backfill::

        airflow backfill create --dag-id orders_backfill --from-date 2026-01-01 --to-date 2026-01-31
            --reprocess-behavior failed --dag-run-conf '{"backfill": "january"}'

    A run that is not of a backfill, as the scheduler makes them for any DAG with a schedule, is skipped.
    Assign the DAG to a global name, so that Airflow finds it.

    :param dag_id: id of the DAG.
    :param application_id: id of the live application.
    :param application: path of the application file.
    :param schedule: cron expression whose intervals are processed, usually the live DAG's.
    :param outputs: the topic to write in place of each one that the topology writes.
    :param timezone: time zone of the cron expression.
    :param dag_arguments: further arguments of the DAG, e.g. ``start_date``, ``tags``, ``default_args``.
    :param batch: further arguments of
        :func:`~airflow_kstreams.operators.incremental_batch.incremental_batch`.
    :return: the DAG.

    >>> dag = backfill_dag(
    ...     "orders_backfill",
    ...     application_id="orders",
    ...     application="/opt/spark_apps/orders.py",
    ...     schedule="@hourly",
    ...     outputs={"customer-totals": "customer-totals-backfilled"},
    ... )
    >>> dag.max_active_runs, {task.depends_on_past for task in dag.tasks}
    (1, {True})
    """
    arguments = dict(dag_arguments or {})
    defaults = {
        "retries": 2,
        **arguments.pop("default_args", {}),
        "depends_on_past": True,
        "wait_for_downstream": True,
    }
    with DAG(
        dag_id=dag_id,
        schedule=cron_intervals(schedule, timezone),
        **{"catchup": False, "max_active_runs": 1, **arguments},
        default_args=defaults,
    ) as dag:
        incremental_batch(
            application_id=application_id,
            application=application,
            **batch,
            backfill_outputs=outputs,
            backfill_in_order=True,
        )
    return dag
