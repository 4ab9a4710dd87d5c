"""Runs the tasks that take turns in one thread of a continuous run, as Kafka Streams' StreamThread does.

Rule: every task has its turn in every round, and a turn is short (``endless_end.py``), so none starves
however much the others have to do. A round in which no task did anything waits for records, a share of the
wait at each task.

Before a task is opened, which may restore state for minutes, the others commit: no transaction is open
meanwhile, for the broker would abort one that lasts too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_kstreams.batch.continuous.continuous_task import ContinuousTask
from airflow_kstreams.batch.continuous.lease_watch import LeaseVerdict
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.task.loop import FETCH_SECONDS
from airflow_kstreams.streams.errors import RunSupersededError


class TaskThread:
    """Runs some tasks in turns; close it after use.

    :param tasks: at least one.
    :param verdict: returns what the driver's lease says.
    :param run_id: of the continuous run.
    """

    def __init__(
        self, tasks: Sequence[ContinuousTask], *, verdict: Callable[[], LeaseVerdict], run_id: str
    ) -> None:
        self._tasks = tuple(tasks)
        self._verdict = verdict
        self._run_id = run_id
        self._busy = True

    def run(self, leave: Callable[[], bool] = lambda: False) -> list[TaskReport]:
        """Let the tasks take turns until the lease says stop.

        :param leave: whether another thread has failed, so that this one commits and leaves.
        :return: what each task did; nothing if it left.
        :raises RunSupersededError: the lease is lost.
        :raises KStreamsError: a task failed for good.
        """
        while (verdict := self._verdict()) is LeaseVerdict.GO_ON:
            if leave():
                for task in self._tasks:
                    task.commit()
                return []
            self.round()
        if verdict is LeaseVerdict.LOST:
            raise RunSupersededError(
                f"the tasks of continuous run {self._run_id!r} stop: their driver's lease is not renewed any "
                "more, or belongs to another one",
                fix="nothing if the driver was stopped or replaced; else read its log for what ended it",
                run_id=self._run_id,
            )
        return [task.stop() for task in self._tasks]

    def round(self) -> None:
        """Give every task its turn."""
        wait_seconds = 0.0 if self._busy else FETCH_SECONDS / len(self._tasks)
        self._busy = False
        for task in self._tasks:
            if not (task.is_open or task.waits):
                for other in self._tasks:
                    other.commit()
            if task.step(wait_seconds):
                self._busy = True

    def close(self) -> None:
        """Close every task; what is not committed is void."""
        for task in self._tasks:
            task.close()
