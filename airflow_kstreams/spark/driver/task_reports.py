"""Keeps the reports of a run's tasks, and exports them in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, partitions_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.finish import counts_by_subtopology, task_metadata
from airflow_kstreams.spark.driver.telemetry import Measured, Telemetry
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

Launch = Callable[[Sequence[TaskShare]], list[TaskReport]]


class TaskReports:
    """The last report of each task that this driver has run.

    :param slice_: the slice of the tasks.
    :param session: gives the tasks' counts.
    :param telemetry: takes the measurements; None: they are not exported.
    """

    def __init__(self, slice_: Slice, session: CoordinatorSession, telemetry: Telemetry | None) -> None:
        self._slice = slice_
        self._session = session
        self._telemetry = telemetry
        self._by_task: dict[str, TaskReport] = {}

    @property
    def latest(self) -> list[TaskReport]:
        """The last report of each task."""
        return list(self._by_task.values())

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Add reports."""
        self._by_task.update({report.task_id: report for report in reports})

    def listening(self, launch: Launch) -> Launch:
        """Return a launch whose reports are added; subtopologies are launched side by side."""

        def launched(tasks: Sequence[TaskShare]) -> list[TaskReport]:
            reports = launch(tasks)
            self.add(reports)
            return reports

        return launched

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Export once after the block, if a task has reported. After an error of the block, Kafka is not
        asked for counts by topic and node.
        """
        try:
            yield
        except KStreamsError:
            self._export({})
            raise
        self._export(self._counts() if self._telemetry is not None and self._by_task else {})

    def _export(self, counts: dict[int, RecordCounts]) -> None:
        if self._telemetry is None or not self._by_task:
            return
        application_id = self._slice.plan.topology.application_id
        self._telemetry.export(Measured(application_id=application_id, reports=self.latest, counts=counts))

    def _counts(self) -> dict[int, RecordCounts]:
        plan = self._slice.plan.topology
        ran = {report.task_id for report in self.latest}
        try:
            committed = self._session.committed(partitions_of(self._slice))
        except KStreamsError as error:
            log.warning("metrics are exported without counts by topic and node: %s", error.cause)
            return {}
        tasks = task_metadata(self._slice, committed)
        return counts_by_subtopology(plan, {task: text for task, text in tasks.items() if task in ran})
