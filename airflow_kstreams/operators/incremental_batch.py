"""Lays out the steps of a run as one task group."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, TaskGroup, chain

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.operators.capture_stop_offsets import CaptureStopOffsetsOperator
from airflow_kstreams.operators.finish_run import FinishRunOperator
from airflow_kstreams.operators.run_topology import DEFAULT_SPARK_CONN_ID, RunTopologyOperator
from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.streams.errors import ConfigError

__all__ = ["incremental_batch"]

#: Below Airflow's own limit for a DAG file (``dagbag_import_timeout``, 30 s): the error names the file then.
_PARSE_SECONDS = 20.0


def incremental_batch(  # noqa: PLR0913 - all but two have defaults
    *,
    application_id: str,
    application: str,
    group_id: str = "incremental_batch",
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
    settings: Mapping[str, Any] | str | None = None,
    conf: Mapping[str, Any] | None = None,
    outlets: Sequence[Asset] = (),
    per_subtopology: bool | Sequence[int] = False,
    backfill_outputs: Mapping[str, str] | str | None = None,
    backfill_in_order: bool = False,
    allow_parked: bool = True,
) -> TaskGroup:
    """Lay out one incremental run: ``capture_stop_offsets >> run_topology >> finish_run``.

    Give the DAG ``max_active_runs=1`` and, through ``default_args``, retries: an attempt that died is resumed
    by the next one with the same stop offsets. Other arguments reach the tasks through ``default_args``, too,
    e.g. ``env_vars`` and ``py_files`` of the tasks on Spark.

    :param application_id: names the consumer group and the internal topics.
    :param application: path of the application file, which defines ``topology()``.
    :param group_id: of the task group.
    :param kafka_conn_id: connection to Kafka.
    :param spark_conn_id: connection to Spark.
    :param settings: application settings by their dotted names.
    :param conf: Spark configuration, e.g. ``{"spark.executor.memory": "2g"}``.
    :param outlets: assets that are updated once the run is finished; their events name run and offsets. A
        backfill that writes other topics does not update them.
    :param per_subtopology: with True, one Airflow task ``run_subtopology_<id>`` for each subtopology takes
        the place of ``run_topology``, in topology order, one after the other; each retries and resumes alone.
        The application file is then loaded wherever the DAG file is parsed, in a process of its own that
        touches no network. A list of the ids in topology order (``airflow-kstreams describe``) spares that.
    :param backfill_outputs: the topic that a backfill of the DAG writes in place of each one that the
        topology writes, e.g. ``{"large-orders": "large-orders-backfilled"}``; without it ``airflow backfill
        create`` is refused by the first task. A topology that keeps state needs a DAG of its own, see
        :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param backfill_in_order: whether this is that DAG; every other run of it is then skipped.
    :param allow_parked: as for :class:`~airflow_kstreams.operators.finish_run.FinishRunOperator`.
    :return: the task group.
    :raises ConfigError: the application's path is a template, and ``per_subtopology`` is True.
    :raises KStreamsError: ``per_subtopology`` is True, and the application file is wrong.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.operators.incremental_batch import incremental_batch
    >>> with DAG("orders_hourly", schedule="@hourly", max_active_runs=1, default_args={"retries": 2}) as dag:
    ...     group = incremental_batch(application_id="orders", application="/opt/spark_apps/orders.py")
    >>> print(*dag.task_ids)
    incremental_batch.capture_stop_offsets incremental_batch.run_topology incremental_batch.finish_run
    """
    of_run: dict[str, Any] = {
        "application_id": application_id,
        "kafka_conn_id": kafka_conn_id,
        "settings": settings,
        "backfill_outputs": backfill_outputs,
        "backfill_in_order": backfill_in_order,
    }
    with TaskGroup(group_id=group_id) as group:
        capture = CaptureStopOffsetsOperator(
            task_id="capture_stop_offsets", application=application, **of_run
        )
        runs = [
            RunTopologyOperator(
                task_id="run_topology" if subtopology is None else f"run_subtopology_{subtopology}",
                application=application,
                spark_conn_id=spark_conn_id,
                subtopology=subtopology,
                conf=dict(conf or {}),
                **of_run,
            )
            for subtopology in _parts(application, per_subtopology)
        ]
        finish = FinishRunOperator(
            task_id="finish_run", outlets=list(outlets), allow_parked=allow_parked, **of_run
        )
        chain(capture, *runs, finish)
    return group


def _parts(application: str, per_subtopology: bool | Sequence[int]) -> Sequence[int | None]:
    """Return the subtopology of each Airflow task that processes; None is the whole topology."""
    if per_subtopology is False:
        return [None]
    if per_subtopology is not True:
        return list(dict.fromkeys(per_subtopology))
    if "{{" in application or "{%" in application:
        raise ConfigError(
            f"per_subtopology=True needs the application file where the DAG is parsed, and its path "
            f"{application!r} is a template",
            fix="give the ids of the subtopologies in topology order instead, e.g. per_subtopology=[0, 1] "
            "(airflow-kstreams describe shows them)",
        )
    # What subtopologies there are does not depend on the application's id, which may be a template.
    loader = ApplicationLoader(
        application=application, log=logging.getLogger(__name__), timeout_seconds=_PARSE_SECONDS
    )
    return [sub.id for sub in loader.plan("parsed").subtopologies]
