"""Defines the base of this package's sensors: a condition, evaluated in the worker or in the triggerer.

Rendered parameters are text unless the DAG renders native objects; functions here read both.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pendulum
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import (
    Condition,
    RunFinished,
    StopOffsetsReached,
    condition_to_json,
    why_not,
)
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.hooks.outcomes import airflow_outcomes, outcome_of
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, ReportedError
from airflow_kstreams.streams.naming.topic_names import is_legal_topic
from airflow_kstreams.streams.settings import check_application_id
from airflow_kstreams.triggers.condition import ConditionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ConditionSensor"]
#: Airflow's own timer backs up the trigger's, for a triggerer that hangs; it must not be the first to fire,
#: because then the trigger's last look would be lost.
_BACKUP_SECONDS = 120.0
#: Type of a backfill's dag runs, and how the ids begin of those that it made.
_BACKFILL = "backfill"


class ConditionSensor(BaseSensorOperator):
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
            deferrable = not stays_here and conf.getboolean("operators", "default_deferrable", fallback=False)
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.deferrable = deferrable

    @abstractmethod
    def condition(self) -> Condition:
        """Return the condition to wait for, made from the rendered parameters.

        :raises ConfigError: a parameter cannot be used.
        """

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        with airflow_outcomes():
            condition = self.condition()
            with ClusterView(KafkaHook(self.kafka_conn_id).cluster()) as view:
                result = condition.evaluate(view)
                why = why_not(condition, view) if result is None else ""
        if result is None:
            self.log.info("Still waiting for %s%s", condition, f"; {why}" if why else "")
            return PokeReturnValue(is_done=False)
        self.log.info("Done waiting for %s", condition)
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
                self.log.info("Done waiting for %s", self.condition())
                return event["result"]
            case "timeout":
                condition = self.condition()
                why = _still_parked(condition, self.kafka_conn_id)
                detail = f"; {why}" if why else ""
                raise AirflowSensorTimeout(
                    f"Timed out after {self.timeout:g} s of waiting for {condition}{detail}"
                )
        error = ReportedError.from_dict(event["error"])
        if self.never_fail:
            raise AirflowSkipException("Skipping due to never_fail is set to True.") from error
        raise outcome_of(error)


def _still_parked(condition: Condition, kafka_conn_id: str) -> str:
    """Describe the run's parked records, or why Kafka gives no answer; the sensor has timed out either
    way.
    """
    if not isinstance(condition, RunFinished) or condition.allow_parked:
        return ""
    try:
        with ClusterView(KafkaHook(kafka_conn_id).cluster()) as view:
            return condition.still_parked(view)
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


def epoch_ms(name: str, value: str | datetime) -> int:
    """Return a time with zone as epoch milliseconds.

    :raises ConfigError: the value is no time, or has no zone.
    """
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise ConfigError(
            f"{name}={value!r} is not a time with zone",
            fix='write it as "2026-01-01T00:00:00+00:00", or as a template: "{{ data_interval_end }}"',
        )
    return round(time.timestamp() * 1000)


def number(name: str, value: object, *, minimum: int) -> int:
    """Return a whole number.

    :raises ConfigError: the value is no whole number, or too small.
    """
    found: int | None = None
    if isinstance(value, int | str) or (isinstance(value, float) and value.is_integer()):
        with suppress(ValueError):
            found = int(value)
    if found is None or found < minimum:
        raise ConfigError(
            f"{name}={value!r} is not a whole number of {minimum} or more",
            fix=f"give {name}={minimum} or more",
        )
    return found


def topic_names(name: str, value: object) -> tuple[str, ...]:
    """Return the names in a list, or in text that separates them by commas.

    :raises ConfigError: the value is neither, or Kafka does not allow such a name.
    """
    names: tuple[object, ...] = ()
    wrong: list[object] = []
    if isinstance(value, str):
        names = tuple(part for text in value.split(",") if (part := text.strip()))
    elif isinstance(value, Iterable):
        names = tuple(value)
    elif value is not None:
        wrong.append(value)
    legal = tuple(each for each in names if isinstance(each, str) and is_legal_topic(each))
    wrong += [each for each in names if each not in legal]
    if wrong:
        raise ConfigError(
            f"{name}={value!r} is not a list of topic names: {wrong[0]!r} is none",
            fix=f'give {name}=["orders", "customers"], or text: "orders, customers"; a template gives text, '
            "so join its list: \"{{ names | join(',') }}\"",
        )
    return legal


def milliseconds(name: str, value: str | float | timedelta) -> int:
    """Return a span of time: ``timedelta``, seconds, or ISO 8601 text (``PT15M``).

    :raises ConfigError: the value is no span of time, or negative.
    """
    seconds: float | None
    try:
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
        elif isinstance(value, str) and value.lstrip().upper().startswith("P"):
            parsed = pendulum.parse(value)
            seconds = parsed.total_seconds() if isinstance(parsed, timedelta) else None
        else:
            seconds = float(value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(
            f"{name}={value!r} is not a span of time",
            fix=f'give {name}=timedelta(minutes=15), a number of seconds, or "PT15M"',
        )
    return round(seconds * 1000)
