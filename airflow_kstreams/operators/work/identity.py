"""Identifies the run that an Airflow task works on, and orders its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

#: The type of a backfill's dag runs, as Airflow says it.
_BACKFILL = "backfill"
#: What the dag run conf of a backfill calls it by.
CONF_KEY = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """The dag run behind a run of the application.

    :param run_id: id of the dag run; also the run's id in Kafka.
    :param clear_number: how often the dag run was cleared.
    :param try_number: of the Airflow task.
    :param owner: names the task in messages.
    :param interval_ms: data interval of the dag run, epoch milliseconds; None if it has none.
    :param task: names the Airflow task among all, with its map index.
    :param backfill: whether the dag run belongs to a backfill.
    :param dag_id: the DAG.
    :param backfill_name: what the backfill's dag run conf calls it under ``backfill``; empty if it does not.
    """

    run_id: str
    clear_number: int
    try_number: int
    owner: str
    interval_ms: tuple[int, int] | None = None
    task: str = ""
    backfill: bool = False
    backfill_name: str = ""
    dag_id: str = ""

    @classmethod
    def of(cls, context: Context) -> RunIdentity:
        """Read it from the task's context.

        :raises ConfigError: the task does not belong to a dag run.
        """
        airflow_task, dag_run = context.get("ti"), context.get("dag_run")
        if airflow_task is None or dag_run is None:
            raise ConfigError(
                "the operator was executed without a dag run",
                fix="run it through Airflow, or through dag.test()",
            )
        return cls(
            run_id=dag_run.run_id,
            clear_number=getattr(dag_run, "clear_number", None) or 0,
            try_number=airflow_task.try_number,
            owner=f"dag {airflow_task.dag_id}, task {airflow_task.task_id}, try {airflow_task.try_number}",
            interval_ms=_interval_ms(dag_run),
            backfill=getattr(dag_run, "run_type", None) == _BACKFILL,
            backfill_name=str((getattr(dag_run, "conf", None) or {}).get(CONF_KEY, "")),
            dag_id=airflow_task.dag_id,
            task=f"{airflow_task.dag_id}.{airflow_task.task_id}[{getattr(airflow_task, 'map_index', -1)}]",
        )

    def refuse_backfill(self, what: str) -> None:
        """Refuse a task that acts on the live application.

        :param what: the task does.
        :raises ConfigError: the dag run belongs to a backfill.
        """
        if self.backfill:
            raise ConfigError(
                f"{self.owner} {what}, and dag run {self.run_id!r} is a backfill, which must not touch the "
                "live application",
                fix="put the task into a DAG of its own; a backfill's own application is reset by its own id",
            )

    @property
    def order(self) -> tuple[int, int]:
        """Orders attempts of one run: the higher one claims the run."""
        return (self.clear_number, self.try_number)

    @property
    def work_id(self) -> str:
        """Names what the task does beside runs: the same for all its tries, another once it is cleared."""
        return f"{self.task} {self.run_id} clear {self.clear_number}"


def _interval_ms(dag_run: DagRunProtocol) -> tuple[int, int] | None:
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if start is None or end is None:
        return None
    return round(start.timestamp() * 1000), round(end.timestamp() * 1000)
