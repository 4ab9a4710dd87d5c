"""Launches one Spark job per subtopology, in topological order, independent ones side by side.

A job is launched again for its unfinished tasks, a bounded number of times. Committed offsets and done
notifications in Kafka show which tasks are unfinished, never Spark. Asking for them also freezes the stop
offsets of topics that other subtopologies, done by then, have written for this one.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter

from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.task_share import TaskShare
from airflow_kstreams.streams.errors import (
    DataLossError,
    KStreamsError,
    RecordError,
    ReportedError,
    RunError,
    RunSupersededError,
    SparkSessionError,
)
from airflow_kstreams.streams.plan import TopologyPlan

log = logging.getLogger(__name__)

#: Number of launches for the same unfinished tasks before the run fails.
MAX_LAUNCHES = 3
_NAMED = 5


class RunJobs:
    """The jobs of one slice.

    :param launch: runs tasks of one subtopology, and returns their reports.
    :param cancel: cancels running jobs.
    :param unfinished: returns the shares of a subtopology's tasks that are not done, by Kafka.
    :param check: raises when this driver was superseded; called before every launch.
    :param only: id of the only subtopology to run, None for all.
    """

    def __init__(
        self,
        *,
        slice_: Slice,
        launch: Callable[[Sequence[TaskShare]], list[TaskReport]],
        cancel: Callable[[], None],
        unfinished: Callable[[int], Sequence[TaskShare]],
        check: Callable[[], None],
        only: int | None = None,
    ) -> None:
        self._slice = slice_
        self._launch = launch
        self._cancel = cancel
        self._unfinished = unfinished
        self._check = check
        self._only = only
        self._stopping = threading.Event()

    def run(self) -> list[TaskReport]:
        """Run every subtopology, or the only one, to its stop offsets.

        :return: the reports of the tasks that this driver ran, without tasks that were done before.
        :raises KStreamsError: a task failed for good.
        """
        graph = dependencies(self._slice.plan.topology) if self._only is None else {self._only: set()}
        order = TopologicalSorter(graph)
        order.prepare()
        reports: list[TaskReport] = []
        running: dict[Future[list[TaskReport]], int] = {}
        with ThreadPoolExecutor(max_workers=max(1, len(graph)), thread_name_prefix="subtopology") as pool:
            try:
                while order.is_active():
                    for subtopology in order.get_ready():
                        running[pool.submit(self._run_subtopology, subtopology)] = subtopology
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        reports.extend(future.result())
                        order.done(running.pop(future))
            except BaseException:
                # Jobs beside the failed subtopology would only delay the error; the retry resumes them.
                self._stopping.set()
                self._cancel()
                raise
        return reports

    def _run_subtopology(self, subtopology: int) -> list[TaskReport]:
        """Launch a subtopology's unfinished tasks until Kafka shows none, a bounded number of times.

        :raises KStreamsError: a task failed with an error that another launch cannot mend, or the last launch
            failed.
        """
        reports: list[TaskReport] = []
        failure: KStreamsError | None = None
        for launch in range(MAX_LAUNCHES):
            shares = self._unfinished(subtopology)
            if not shares:
                return reports
            if launch and self._stopping.wait(pause_seconds(launch)):
                break
            self._check()
            log.info("subtopology %d: %d tasks are launched", subtopology, len(shares))
            try:
                reports.extend(self._launch(shares))
                log.info("subtopology %d: its tasks have ended", subtopology)
            except KStreamsError as error:
                if self._stopping.is_set() or not worth_another_launch(error):
                    raise
                failure = error
                log.warning(
                    "subtopology %d: launching its unfinished tasks again: %s", subtopology, error.cause
                )
        left = self._unfinished(subtopology)
        if left:
            raise failure or self._given_up(subtopology, left)
        return reports

    def _given_up(self, subtopology: int, left: Sequence[TaskShare]) -> RunError:
        names = ", ".join(f"{subtopology}_{share.group}" for share in left[:_NAMED])
        names += f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        return RunError(
            f"tasks {names} of application {self._slice.plan.topology.application_id!r} did not reach their "
            f"stop offsets in {MAX_LAUNCHES} launches",
            fix="read the executors' logs for what stopped them, then retry the run: its slice is kept",
            run_id=self._slice.run_id,
        )


def dependencies(plan: TopologyPlan) -> dict[int, set[int]]:
    """Return for each subtopology the ones that write the topics it reads."""
    return {
        sub.id: {writer.id for topic in sub.sources for writer in plan.writers_of(topic)}
        for sub in plan.subtopologies
    }


def worth_another_launch(error: KStreamsError) -> bool:
    """Say whether the same driver should launch the tasks again."""
    decided = isinstance(error, RunSupersededError | SparkSessionError | DataLossError | RecordError) or (
        isinstance(error, ReportedError) and error.error_type == "RecordError"
    )
    return error.is_retriable and not decided


def pause_seconds(launch: int) -> float:
    """Return the pause before the n-th launch after the first."""
    return random.uniform(0.5, 1.0) * (1 << launch)  # noqa: S311 - jitter, no secret
