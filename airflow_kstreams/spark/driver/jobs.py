"""Keeps the Spark jobs of a run running: one per subtopology of a slice, or one per slot of a continuous run.

The jobs of a slice run in topological order, independent ones side by side. A job is launched again for its
unfinished tasks, a bounded number of times. Committed offsets and done notifications in Kafka show which
tasks are unfinished, never Spark. Asking for them also freezes the stop offsets of topics that other
subtopologies, done by then, have written for this one.

In a continuous run every task has its slot from the beginning, tasks of one subtopology are spread over the
slots, and nothing moves while the run lasts. A job whose tasks failed is launched again, alone, a bounded
number of times in a row; when that does not help, the others are stopped cleanly and the run fails with the
error.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.streams.errors import (
    DataLossError,
    KStreamsError,
    RecordError,
    ReportedError,
    RunError,
    RunSupersededError,
    SparkSessionError,
)
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.streams.runtime.stream_task import TaskId

log = logging.getLogger(__name__)

#: Number of launches for the same unfinished tasks before the run fails.
MAX_LAUNCHES = 3


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
        names = first_few([f"{subtopology}_{share.group}" for share in left])
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
    """Return whether the same driver should launch the tasks again."""
    decided = isinstance(error, RunSupersededError | SparkSessionError | DataLossError | RecordError) or (
        isinstance(error, ReportedError) and error.error_type == "RecordError"
    )
    return error.is_retriable and not decided


def pause_seconds(launch: int) -> float:
    """Return the pause before the n-th launch after the first."""
    return random.uniform(0.5, 1.0) * (1 << launch)  # noqa: S311 - jitter, no secret


#: A job that ran for so long before it failed was well: its failure is the first one again.
_WELL_SECONDS = 600.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The way to end a run.

    :param requested: set when the run is to end.
    :param announce: asks the tasks to stop, through Kafka.
    :param patience_seconds: time after which tasks that go on are cancelled.
    """

    requested: threading.Event
    announce: Callable[[], None]
    patience_seconds: float


class ContinuousJobs:
    """The jobs of one continuous run.

    :param hosts: the tasks of each slot.
    :param launch: runs the tasks of one slot until they stop.
    :param cancel: cancels running jobs.
    :param check: raises when this driver was superseded; called before every launch but the first.
    :param stopping: the way to end the run.
    :param periodically: called at intervals while the run lasts; must not raise.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[Sequence[TaskId]],
        launch: Callable[[Sequence[TaskId]], list[TaskReport]],
        cancel: Callable[[], None],
        check: Callable[[], None],
        stopping: Stopping,
        periodically: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._hosts = hosts
        self._launch = launch
        self._cancel = cancel
        self._check = check
        self._stopping = stopping
        self._stop = stopping.requested
        self._periodically = periodically
        self._clock = clock
        self._announced_at: float | None = None

    def run(self) -> list[TaskReport]:
        """Run all tasks until a stop is requested.

        :return: the report of each task since its last launch.
        :raises KStreamsError: a task failed for good, or did not stop in time.
        """
        reports: list[TaskReport] = []
        failure: KStreamsError | None = None
        with ThreadPoolExecutor(max_workers=len(self._hosts), thread_name_prefix="slot") as pool:
            running = {pool.submit(self._keep, tasks) for tasks in self._hosts}
            try:
                while running:
                    done, running = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        try:
                            reports.extend(future.result())
                        except KStreamsError as error:
                            failure = failure or error
                    # Tasks end only on request or by an error: in either case the others end, too.
                    if done or self._stop.is_set():
                        self._stop.set()
                        self._end()
                    else:
                        self._periodically()
            except BaseException:
                self._stop.set()
                self._cancel()
                raise
        if failure is not None:
            raise failure
        return reports

    def _keep(self, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Keep the tasks of one slot running."""
        failures = 0
        while True:
            launched = self._clock.monotonic_seconds()
            try:
                if failures:
                    self._check()
                return self._launch(tasks)
            except KStreamsError as error:
                if self._stop.is_set() or not worth_another_launch(error):
                    raise
                well = self._clock.monotonic_seconds() - launched >= _WELL_SECONDS
                failures = 1 if well else failures + 1
                if failures >= MAX_LAUNCHES:
                    raise
                names = ", ".join(map(str, tasks))
                log.warning("launching tasks %s again: %s", names, error.cause)
            if self._stop.wait(pause_seconds(failures)):
                return []

    def _end(self) -> None:
        """Ask the tasks to stop, once; cancel them if that takes too long."""
        now = self._clock.monotonic_seconds()
        if self._announced_at is None:
            self._announced_at = now
            try:
                self._stopping.announce()
            except RunSupersededError:
                self._cancel()
                raise
            except KStreamsError as error:
                log.warning("the stop is announced with the next renewal of the lease: %s", error.cause)
        elif now - self._announced_at > self._stopping.patience_seconds:
            self._announced_at = now
            log.warning("tasks did not stop in %.0f s: cancelled", self._stopping.patience_seconds)
            self._cancel()


def tasks_of(run: ContinuousRun) -> list[TaskId]:
    """Return all tasks, those of one subtopology side by side."""
    return [
        TaskId(subtopology=sub.id, group=group)
        for sub in run.plan.topology.subtopologies
        for group in range(run.plan.tasks[str(sub.id)])
    ]
