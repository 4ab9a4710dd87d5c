"""One Spark job per subtopology, launched in topological order, independent ones side by side.

A job is launched again for the tasks that Kafka says are unfinished (committed offsets and done notifications
decide, never Spark's own word), a bounded number of times.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams.batch.model import Slice, TaskReport
from airflow_kstreams.spark.session import cancel_jobs
from airflow_kstreams.spark.task_host import REPORT_SCHEMA, HostReport, TaskHost
from airflow_kstreams.streams.errors import (
    DataLossError,
    KStreamsError,
    RecordError,
    ReportedError,
    RunError,
    RunSupersededError,
    reported_in,
)
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.plan import TopologyPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: How often a job is launched for the same unfinished tasks before the run fails.
MAX_LAUNCHES = 3


class RunJobs:
    """The jobs of one slice.

    :param unfinished: asks Kafka which groups of a subtopology are not done yet.
    :param check: raises when this driver was superseded; called before every launch.
    """

    def __init__(
        self,
        *,
        session: SparkSession,
        source: ApplicationFile,
        settings: ApplicationSettings,
        slice_: Slice,
        client_config_path: str,
        unfinished: Callable[[int], Sequence[int]],
        check: Callable[[], None],
    ) -> None:
        self._session = session
        self._source = source
        self._settings = settings
        self._slice = slice_
        self._client_config_path = client_config_path
        self._unfinished = unfinished
        self._check = check
        self._stopping = threading.Event()

    def run(self) -> list[TaskReport]:
        """Run every subtopology to its stop offsets.

        :return: the reports of the tasks that this driver ran; tasks found done are not among them.
        :raises KStreamsError: a task failed for good.
        """
        graph = dependencies(self._slice.plan.topology)
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
                # What runs beside the failed subtopology would only delay the news; it resumes with the
                # retry.
                self._stopping.set()
                cancel_jobs(self._session)
                raise
        return reports

    def _run_subtopology(self, subtopology: int) -> list[TaskReport]:
        """Launch a subtopology's unfinished tasks until Kafka says that there are none, a bounded number of
        times.

        :raises KStreamsError: a task failed in a way that a launch cannot mend, or the last launch failed,
            too.
        """
        reports: list[TaskReport] = []
        failure: KStreamsError | None = None
        for launch in range(MAX_LAUNCHES):
            groups = self._unfinished(subtopology)
            if not groups:
                return reports
            if launch and self._stopping.wait(_pause_seconds(launch)):
                break
            self._check()
            try:
                reports.extend(self._launch(subtopology, groups))
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

    def _given_up(self, subtopology: int, left: Sequence[int]) -> RunError:
        names = ", ".join(f"{subtopology}_{group}" for group in left)
        return RunError(
            f"tasks {names} of application {self._settings.application_id!r} did not reach their stop "
            "offsets in "
            f"{MAX_LAUNCHES} launches",
            fix="read the executors' logs for what stopped them, then retry the run: its slice is kept",
            run_id=self._slice.run_id,
        )

    def _launch(self, subtopology: int, groups: Sequence[int]) -> list[TaskReport]:
        assignment = spread(groups, self._settings.num_stream_threads)
        host = TaskHost(
            source=self._source,
            settings=self._settings,
            subtopology=subtopology,
            assignment=assignment,
            run_id=self._slice.run_id,
            generation=self._slice.generation,
            client_config_path=self._client_config_path,
        )
        count = len(assignment)
        frame = self._session.range(0, count, 1, count).mapInArrow(host.function(), REPORT_SCHEMA)
        try:
            rows = frame.collect()
        except Exception as error:
            raise (error_in(str(error)) or _spark_failure(error, self._slice.run_id)) from error
        outcomes = [msgspec.json.decode(row.report, type=HostReport) for row in rows]
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        if failed:
            raise ReportedError.from_dict(failed[0])
        return [outcome.report for outcome in outcomes if outcome.report is not None]


def dependencies(plan: TopologyPlan) -> dict[int, set[int]]:
    """Return for each subtopology the ones that write what it reads."""
    return {
        sub.id: {writer.id for topic in sub.sources for writer in plan.writers_of(topic)}
        for sub in plan.subtopologies
    }


def spread(groups: Sequence[int], threads: int) -> tuple[tuple[int, ...], ...]:
    """Spread task groups over as few Spark partitions as ``num.stream.threads`` allows."""
    count = -(-len(groups) // threads)
    return tuple(tuple(groups[index::count]) for index in range(count))


def worth_another_launch(error: KStreamsError) -> bool:
    """Say whether the same driver should launch the tasks again."""
    decided = isinstance(error, RunSupersededError | DataLossError | RecordError) or (
        isinstance(error, ReportedError) and error.error_type == "RecordError"
    )
    return error.is_retriable and not decided


def error_in(text: str) -> ReportedError | None:
    """Find the last error that an executor noted in a Spark failure's text."""
    found = (reported_in(line) for line in reversed(text.splitlines()))
    return next((error for error in found if error is not None), None)


def _pause_seconds(launch: int) -> float:
    return random.uniform(0.5, 1.0) * (1 << launch)  # noqa: S311 - jitter, no secret


def _spark_failure(error: Exception, run_id: str) -> RunError:
    lines: Iterable[str] = (line.strip() for line in str(error).splitlines())
    first = next((line for line in lines if line), type(error).__name__)
    return RunError(
        f"a Spark job of run {run_id!r} failed: {first[:500]}",
        fix="read the driver's log for the executor that failed, then retry the run: its slice is kept",
        run_id=run_id,
    )
