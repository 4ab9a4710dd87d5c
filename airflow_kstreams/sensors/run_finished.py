"""Waits until a run of an application is finished."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.hooks.ledger import finished_run
from airflow_kstreams.hooks.outcomes import airflow_outcomes, outcome_of
from airflow_kstreams.hooks.results import RunResult, result_of_summary
from airflow_kstreams.streams.errors import ReportedError
from airflow_kstreams.streams.settings import check_application_id
from airflow_kstreams.triggers.run_finished import RunFinishedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["RunFinishedSensor"]

#: Airflow's own timer backs up the trigger's, for a triggerer that hangs; it must not be the first to fire,
#: because then the trigger's last look would be lost.
_BACKUP_SECONDS = 120.0


class RunFinishedSensor(BaseSensorOperator):
    """Waits until the run ledger, which Kafka holds, has a run; the sensor reads it and nothing else.

    It behaves the same in every mode: it looks at once, then every ``poke_interval`` seconds, and fails
    without retry when ``timeout`` seconds have passed. A run that finished long ago counts.

    :param application_id: the application. (templated)
    :param run_id: the run to wait for, usually the waiting dag run's own; None or empty means the
        application's last finished run, whichever it is. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    :return: a :class:`~airflow_kstreams.hooks.results.RunResult`.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.sensors.run_finished import RunFinishedSensor
    >>> with DAG("orders_report", schedule=None):
    ...     finished = RunFinishedSensor(
    ...         task_id="wait_for_orders", application_id="orders", deferrable=True, timeout=3600
    ...     )
    >>> finished.run_id
    '{{ run_id }}'
    """

    template_fields: Sequence[str] = ("application_id", "run_id", "kafka_conn_id")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        application_id: str,
        run_id: str | None = "{{ run_id }}",
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if deferrable and (self.exponential_backoff or self.mode == "reschedule"):
            setting = "exponential_backoff" if self.exponential_backoff else "mode"
            raise ValueError(
                f"RunFinishedSensor: {setting}={getattr(self, setting)!r} has no effect on a deferred wait; "
                "remove it, or set deferrable=False"
            )
        self.application_id = application_id
        self.run_id = run_id
        self.kafka_conn_id = kafka_conn_id
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        with airflow_outcomes():
            check_application_id(self.application_id)
            summary = finished_run(
                KafkaHook(self.kafka_conn_id).cluster(), self.application_id, self.run_id or None
            )
        if summary is None:
            self.log.info("Run %s of application %s is not finished", self.run_id, self.application_id)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._logged(result_of_summary(summary)))

    def execute(self, context: Context) -> Any:
        """Wait here, or in the triggerer."""
        if self.deferrable:
            self._defer()
        return super().execute(context)

    def _defer(self) -> NoReturn:
        self.defer(
            trigger=RunFinishedTrigger(
                application_id=self.application_id,
                run_id=self.run_id or None,
                kafka_conn_id=self.kafka_conn_id,
                poke_interval=self.poke_interval,
                deadline=time.time() + self.timeout,
                silent_fail=self.silent_fail,
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout + _BACKUP_SECONDS),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> RunResult:
        """Take the trigger's event."""
        match event["status"]:
            case "finished":
                return self._logged(cast("RunResult", event["result"]))
            case "timeout":
                raise AirflowSensorTimeout(
                    f"Run {self.run_id} of application {self.application_id} did not finish within "
                    f"{self.timeout:g} s"
                )
        error = ReportedError.from_dict(event["error"])
        if self.never_fail:
            raise AirflowSkipException("Skipping due to never_fail is set to True.") from error
        raise outcome_of(error)

    def _logged(self, result: RunResult) -> RunResult:
        self.log.info("Run %s of application %s is finished", result["run_id"], self.application_id)
        return result
