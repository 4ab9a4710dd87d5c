"""Defines what pages are made of besides the readings: the frame of a page, an application as a DAG names
it, and a run as Airflow keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What every page needs besides its values.

    :param base: path at which the pages are mounted, without a slash at its end, e.g. ``/kstreams``.
    :param airflow: path of Airflow's own pages, without a slash at its end; empty for the root.
    :param at: time at which the values were read, with its zone.
    :param kept: None if the values were read from Kafka just now; else the sentence that says why not, and
        what is shown instead.
    """

    base: str
    airflow: str
    at: datetime
    kept: str | None = None

    @property
    def now_ms(self) -> int:
        """The time at which the values were read, epoch milliseconds."""
        return round(self.at.timestamp() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DagApplication:
    """An application as a DAG names it.

    :param application_id: id of the application.
    :param dag_id: id of the DAG.
    :param task_ids: ids of the DAG's tasks that work for the application.
    :param kafka_conn_id: id of Airflow's connection to Kafka.
    :param team: name of the DAG's team; None without one.
    :param paused: whether the DAG is paused.
    """

    application_id: str
    dag_id: str
    task_ids: tuple[str, ...]
    kafka_conn_id: str
    team: str | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run as Airflow keeps it: the result that a task has left in XCom.

    :param dag_id: id of the DAG.
    :param task_id: id of the task.
    :param airflow_run_id: id of the DAG run, which is the run's id in Kafka, too.
    :param ended_at: time at which the task ended, with its zone; None where it is not known.
    :param state: state of the task, as Airflow names it.
    :param figures: the result: name of a figure -> the figure. Of these only numbers, the state and the time
        of the finish are shown.
    """

    dag_id: str
    task_id: str
    airflow_run_id: str
    ended_at: datetime | None
    state: str
    figures: Mapping[str, object] = field(default_factory=dict)
