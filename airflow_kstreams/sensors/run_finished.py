"""Waits until a run of an application is finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.hooks.rendered import Reader, given, interval_ms, moment_with_zone, optional_text
from airflow_kstreams.sensors.condition_sensor import ConditionSensor
from airflow_kstreams.streams.errors import ConfigError

__all__ = ["RunFinishedSensor"]


class RunFinishedSensor(ConditionSensor):
    """Waits until the run ledger, a topic in Kafka, holds a run; the sensor reads nothing else.

    It behaves the same in every mode: it looks at once, then every ``poke_interval`` seconds, and fails
    without retry when ``timeout`` seconds have passed. A run that finished long ago counts.

    :param application_id: the application. (templated)
    :param run_id: the run to wait for, usually the waiting dag run's own; None or empty means the
        application's last finished run, whichever it is. (templated)
    :param data_interval_start: with ``data_interval_end``, waits for the run of that data interval instead,
        whatever its id: a time with zone, usually ``"{{ data_interval_start }}"``. (templated)
    :param data_interval_end: end of that interval. (templated)
    :param allow_parked: whether a run counts though records that it left parked, for another attempt of their
        calls, are parked still; with False the sensor waits until runs after it have processed them all, and
        says how many are parked where, and when they are due.
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot; by default as
        ``[operators] default_deferrable`` says, except with ``mode="reschedule"`` or ``exponential_backoff``,
        which have no effect there.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.sensors.run_finished import RunFinishedSensor
    >>> with DAG("orders_report", schedule=None):
    ...     finished = RunFinishedSensor(
    ...         task_id="wait_for_orders", application_id="orders", deferrable=True, timeout=3600
    ...     )
    >>> finished.run_id
    '{{ run_id }}'
    """

    template_fields: Sequence[str] = (
        *ConditionSensor.template_fields,
        "run_id",
        "data_interval_start",
        "data_interval_end",
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **ConditionSensor.readers,
        "run_id": optional_text,
        "data_interval_start": moment_with_zone,
        "data_interval_end": moment_with_zone,
    }

    def __init__(
        self,
        *,
        run_id: str | None = "{{ run_id }}",
        data_interval_start: str | None = None,
        data_interval_end: str | None = None,
        allow_parked: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.run_id = given(run_id)
        self.data_interval_start: Any = given(data_interval_start)
        self.data_interval_end: Any = given(data_interval_end)
        self.allow_parked = allow_parked

    def _condition(self) -> RunFinished:
        if not (self.data_interval_start or self.data_interval_end):
            return RunFinished(
                application_id=self.application_id,
                run_id=self.run_id or None,
                allow_parked=self.allow_parked,
            )
        if not (self.data_interval_start and self.data_interval_end):
            raise ConfigError(
                "a data interval has a start and an end, only one was given",
                fix='give data_interval_start="{{ data_interval_start }}" and '
                'data_interval_end="{{ data_interval_end }}"',
            )
        return RunFinished(
            application_id=self.application_id,
            interval_ms=interval_ms(self.data_interval_start, self.data_interval_end),
            allow_parked=self.allow_parked,
        )
