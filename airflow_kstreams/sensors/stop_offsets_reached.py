"""Waits until one subtopology of a run is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kstreams.batch.inspect.conditions import StopOffsetsReached
from airflow_kstreams.hooks.rendered import Reader, number, text
from airflow_kstreams.sensors.condition_sensor import ConditionSensor

__all__ = ["StopOffsetsReachedSensor"]


class StopOffsetsReachedSensor(ConditionSensor):
    """Waits until every task of one subtopology has committed its stop offsets.

    What the subtopology writes for this run is complete then, though other subtopologies may still run.

    :param application_id: the application. (templated)
    :param subtopology: id of the subtopology, as ``airflow-kstreams describe`` shows it. (templated)
    :param run_id: the run, usually the waiting dag run's own. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot; by default as
        ``[operators] default_deferrable`` says, except with ``mode="reschedule"`` or ``exponential_backoff``,
        which have no effect there.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    :return: a :class:`~airflow_kstreams.hooks.reports.StopOffsetsResult`.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor
    >>> with DAG("orders_first_stage", schedule=None):
    ...     cleaned = StopOffsetsReachedSensor(
    ...         task_id="orders_are_cleaned", application_id="orders", subtopology=0, deferrable=True
    ...     )
    """

    template_fields: Sequence[str] = (*ConditionSensor.template_fields, "subtopology", "run_id")
    readers: ClassVar[Mapping[str, Reader]] = {
        **ConditionSensor.readers,
        "subtopology": number(0),
        "run_id": text,
    }

    def __init__(self, *, subtopology: int | str, run_id: str = "{{ run_id }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.subtopology: Any = subtopology
        self.run_id = run_id

    def _condition(self) -> StopOffsetsReached:
        return StopOffsetsReached(
            application_id=self.application_id, run_id=self.run_id, subtopology=self.subtopology
        )
