"""Defines the base of this package's sensors: a condition, evaluated in the worker or in the triggerer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import (
    Condition,
    RunFinished,
    StopOffsetsReached,
    condition_to_json,
    never_run,
    why_not,
)
from airflow_kstreams.hooks.airflow_versions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    airflow_conf,
)
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, Rendered, text
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, ReportedError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import check_application_id
from airflow_kstreams.triggers.condition import ConditionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

log = package_log(__name__)

__all__ = ["ConditionSensor"]
#: Airflow's own timer backs up the trigger's, for a triggerer that hangs; it must not be the first to fire,
#: because then the trigger's last look would be lost.
_BACKUP_SECONDS = 120.0
#: Type of a backfill's dag runs, and how the ids begin of those that it made.
_BACKFILL = "backfill"


class ConditionSensor(Rendered, BaseSensorOperator):
    """Waits until a condition holds.

    It behaves the same in every mode: it looks at once, then every ``poke_interval`` seconds, and fails
    without retry when ``timeout`` seconds have passed.

    :param application_id: the application. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot; by default as
        ``[operators] default_deferrable`` says, except with ``mode="reschedule"`` or ``exponential_backoff``,
        which have no effect there.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    """

    ui_color = "#e6f1f2"

    template_fields: Sequence[str] = ("application_id", "kafka_conn_id")
    readers: ClassVar[Mapping[str, Reader]] = {"application_id": text, "kafka_conn_id": text}

    def __init__(
        self,
        *,
        application_id: str,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        stays_here = bool(self.exponential_backoff) or self.mode == "reschedule"
        if deferrable and stays_here:
            setting = "exponential_backoff" if self.exponential_backoff else "mode"
            raise ValueError(
                f"{type(self).__name__}: {setting}={getattr(self, setting)!r} has no effect on a deferred "
                "wait; remove it, or set deferrable=False"
            )
        if deferrable is None:
            deferrable = not stays_here and bool(
                airflow_conf().getboolean("operators", "default_deferrable", fallback=False)
            )
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.deferrable = deferrable

    def condition(self) -> Condition:
        """Return the condition to wait for, made from the rendered parameters.

        :raises ConfigError: a parameter cannot be used.
        """
        self.read_rendered()
        return self._condition()

    @abstractmethod
    def _condition(self) -> Condition:
        """Return the condition that the parameters make."""

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        with airflow_outcomes():
            condition = self.condition()
            with ClusterView(KafkaHook(self.kafka_conn_id).cluster()) as view:
                result = condition.evaluate(view)
                why = why_not(condition, view) if result is None else ""
        if result is None:
            log.info("Still waiting for %s%s", condition, f"; {why}" if why else "")
            return PokeReturnValue(is_done=False)
        log.info("Done waiting for %s", condition)
        return PokeReturnValue(is_done=True, xcom_value=result)

    def execute(self, context: Context) -> Any:
        """Wait in the worker, or in the triggerer."""
        try:
            with airflow_outcomes():
                condition = self.condition()
                check_application_id(condition.application_id)
                _refuse_run_of_backfill(condition, context)
            if self.deferrable:
                self._defer(condition)
            return super().execute(context)
        except (AirflowSensorTimeout, AirflowFailException) as error:
            # Airflow obeys both flags when a deferred sensor resumes, but in the worker only while it pokes.
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(f"Skipped instead of failing: {error}") from error
            raise

    def _defer(self, condition: Condition) -> NoReturn:
        self.defer(
            trigger=ConditionTrigger(
                condition=condition_to_json(condition),
                kafka_conn_id=self.kafka_conn_id,
                poke_interval=self.poke_interval,
                deadline=time.time() + self.timeout,
                silent_fail=self.silent_fail,
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout + _BACKUP_SECONDS),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the result of the trigger's event, or raise its error."""
        match event["status"]:
            case "holds":
                log.info("Done waiting for %s", self.condition())
                return event["result"]
            case "timeout":
                condition = self.condition()
                why = _seen_at_the_end(condition, self.kafka_conn_id)
                detail = f"; {why}" if why else ""
                raise AirflowSensorTimeout(
                    f"Timed out after {self.timeout:g} s of waiting for {condition}{detail}"
                )
        error = ReportedError.from_dict(event["error"])
        if self.never_fail:
            raise AirflowSkipException("Skipping due to never_fail is set to True.") from error
        with airflow_outcomes():
            raise error


def _seen_at_the_end(condition: Condition, kafka_conn_id: str) -> str:
    """Say that the application has never run, or describe the run's parked records, or why Kafka gives no
    answer; the sensor has timed out either way.
    """
    try:
        with ClusterView(KafkaHook(kafka_conn_id).cluster()) as view:
            parked = condition.still_parked(view) if isinstance(condition, RunFinished) else ""
            return parked or never_run(condition, view)
    except KStreamsError as error:
        return error.cause


def _refuse_run_of_backfill(condition: Condition, context: Context) -> None:
    """Refuse to wait, for days, for a run that cannot come: a backfill's run is of another application.

    Where a backfill processes a date again, Airflow keeps the run id, and the live run may have the same one.

    :raises ConfigError: the sensor's dag run is a backfill's.
    """
    dag_run = context.get("dag_run")
    if dag_run is None or not isinstance(condition, RunFinished | StopOffsetsReached):
        return
    of_backfill = getattr(dag_run, "run_type", None) == _BACKFILL
    if (
        of_backfill
        and condition.run_id == dag_run.run_id
        and dag_run.run_id.startswith(f"{_BACKFILL}__")
        and f"-{_BACKFILL}-" not in condition.application_id
    ):
        raise ConfigError(
            f"dag run {dag_run.run_id!r} is a backfill, which works on an application of its own: "
            f"{condition.application_id!r} will never have a run of this id",
            fix="keep the sensor out of DAGs that are backfilled, or let it wait for another run",
        )
