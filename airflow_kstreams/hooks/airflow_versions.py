"""Bridges the releases of Airflow from 3.1 on: what an earlier one calls by another name, or lacks.

Everything else of this package takes these names from here. A part that needs what cannot be bridged refuses
with :func:`refuse_before`.

=======================================  ============================================================
name                                     in earlier releases
=======================================  ============================================================
exceptions                               before 3.2 in ``airflow.exceptions``
:func:`airflow_conf`                     before 3.2 in ``airflow.configuration``
:func:`cron_intervals`                   before 3.2 in ``airflow.timetables.interval``
:func:`amask_secret`                     before 3.3 missing; its steps are possible
``shared_stream_producer``               before 3.3 missing, with the word that an event is stored
:func:`has_teams`                        before 3.2 a connection is not looked up for a team
=======================================  ============================================================
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pendulum
from packaging.version import Version

from airflow_kstreams.launch.installation import version_of
from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import exceptions
    from airflow.sdk.log import amask_secret, mask_secret
else:
    from airflow.sdk import exceptions

    if not hasattr(exceptions, "AirflowFailException"):
        from airflow import exceptions
    from airflow.sdk.log import mask_secret

    try:
        from airflow.sdk.log import amask_secret
    except ImportError:

        async def amask_secret(secret):
            """Mask a secret in the logs of this process and of the one that supervises it.

            ``mask_secret`` is no substitute: it waits for the supervisor's answer, and so holds up the event
            loop that would receive it.
            """
            from airflow.sdk._shared.secrets_masker import _secrets_masker

            _secrets_masker().add_mask(secret)
            with suppress(Exception):  # as in Airflow's own: outside of a triggerer there is no supervisor
                from airflow.sdk.execution_time import task_runner
                from airflow.sdk.execution_time.comms import MaskSecret

                await task_runner.SUPERVISOR_COMMS.asend(MaskSecret(value=secret))


AirflowException = exceptions.AirflowException
AirflowFailException = exceptions.AirflowFailException
AirflowNotFoundException = exceptions.AirflowNotFoundException
AirflowRescheduleException = exceptions.AirflowRescheduleException
AirflowSensorTimeout = exceptions.AirflowSensorTimeout
AirflowSkipException = exceptions.AirflowSkipException
TaskDeferralTimeout = exceptions.TaskDeferralTimeout
TaskDeferred = exceptions.TaskDeferred

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "airflow_conf",
    "amask_secret",
    "cron_intervals",
    "has_teams",
    "mask_secret",
    "next_interval",
    "refuse_before",
]


def airflow_conf() -> Any:
    """Return Airflow's configuration."""
    try:
        from airflow.sdk.configuration import conf
    except ImportError:
        from airflow.configuration import conf
    return conf


def cron_intervals(cron: str, timezone: str) -> Any:
    """Return the timetable whose runs have the intervals between the times of a cron expression."""
    try:
        from airflow.sdk import CronDataIntervalTimetable
    except ImportError:
        from airflow.timetables import interval

        return interval.CronDataIntervalTimetable(cron, timezone=timezone)
    return CronDataIntervalTimetable(cron, timezone=timezone)


def next_interval(timetable: Any, start: datetime, end: datetime) -> tuple[datetime, datetime] | None:
    """Return the interval that a timetable of cron intervals has after another one; None if the timetable is
    of another kind, or Airflow's scheduler is not installed here.

    :param timetable: timetable of a DAG.
    :param start: first moment of the interval.
    :param end: first moment past it.
    """
    try:
        from airflow.timetables.base import DataInterval, TimeRestriction
        from airflow.timetables.interval import CronDataIntervalTimetable
    except ImportError:
        return None
    if isinstance(timetable, CronDataIntervalTimetable):
        cron = timetable
    elif isinstance(timetable, type(cron_intervals("@hourly", "UTC"))):
        cron = CronDataIntervalTimetable(timetable.expression, timetable.timezone)
    else:
        return None
    info = None
    with suppress(ValueError):  # Where it does not get on, no run follows either.
        info = cron.next_dagrun_info(
            last_automated_data_interval=DataInterval(pendulum.instance(start), pendulum.instance(end)),
            restriction=TimeRestriction(earliest=None, latest=None, catchup=True),
        )
    if info is None or info.data_interval is None:
        return None
    return info.data_interval.start, info.data_interval.end


def has_teams() -> bool:
    """Return whether Airflow looks a connection up for the team of a DAG, as it does from 3.2 on."""
    found = version_of("apache-airflow-core")
    return found is not None and Version(found) >= Version("3.2")


def refuse_before(release: str, *, what: str, needs: str, instead: str) -> None:
    """Refuse a part of this package that an earlier Airflow cannot serve.

    :param release: the first release that can.
    :param what: the part.
    :param needs: what it needs of Airflow.
    :param instead: what serves the purpose there.
    :raises ConfigError: Airflow is older.
    """
    found = version_of("apache-airflow-core")
    if found is not None and Version(found) < Version(release):
        raise ConfigError(
            f"{what} needs Airflow {release} or newer ({needs}), and Airflow {found} is installed here",
            fix=f"upgrade Airflow, or {instead}",
        )
