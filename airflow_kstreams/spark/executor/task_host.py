"""Hosts the tasks of one Spark partition on an executor, returns their reports and shows their log.

Tasks of a slice run side by side to their stop offsets. Tasks of a continuous run take turns on some threads,
and one more thread watches the driver's lease: the Spark task ends when the lease holds a stop, and fails as
soon as one of its tasks fails; the others commit and end, and all start anew.

The module imports all modules that any task needs, so that one which the executor lacks is reported before a
task has begun.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.continuous.continuous_task import ContinuousTask
from airflow_kstreams.batch.continuous.task_thread import LeaseWatch, TaskThread
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.batch.task.global_table_read import OF_PROCESS
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.spark.executor.copy_host import CopyHost
from airflow_kstreams.spark.executor.machine_files import ClientSettings, scratch_folder
from airflow_kstreams.spark.executor.merge_host import MergeHost
from airflow_kstreams.spark.executor.report_rows import HostReport, in_arrow, reported
from airflow_kstreams.spark.executor.rewrite_host import RewriteHost
from airflow_kstreams.spark.executor.stuck_functions import FunctionWatch
from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.errors import CallsStuckError, KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs

if TYPE_CHECKING:
    from airflow_kstreams.spark.executor.report_rows import ArrowFunction

log = package_log(__name__)

#: Format of every process of a run, so that a log which several of them write reads as one.
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PACKAGE = "airflow_kstreams"
_LOOK_SECONDS = 0.5


def run_shipped(text: str) -> ArrowFunction:
    """Return the function that hosts tasks, copies state, merges files, or rewrites files.

    :param text: a :class:`TaskHost`, :class:`CopyHost`, :class:`MergeHost` or :class:`RewriteHost` as JSON.
    """
    show_log_lines()
    return in_arrow(decode_json(text, TaskHost | CopyHost | MergeHost | RewriteHost).run_partition)


class TaskHost(msgspec.Struct, frozen=True, kw_only=True, tag="tasks"):
    """All that an executor needs to run tasks: plain data without secrets.

    :param source: the application file.
    :param settings: application settings.
    :param tasks: the tasks of each Spark partition, with their shares of the slice.
    :param run_id: id of the slice's run, or of the continuous run.
    :param generation: the run's generation when the driver launched the job.
    :param slice: the part of the slice that all tasks share; None for a continuous run.
    :param client: where the client settings are read.
    :param allowed: settings that run code and that the driver's deployment allows, as text.
    """

    source: ApplicationFile
    settings: ApplicationSettings
    tasks: tuple[tuple[TaskShare, ...], ...]
    run_id: str
    generation: int
    slice: Slice | None
    client: ClientSettings
    allowed: str = ""

    @property
    def names(self) -> list[list[str]]:
        """The names of each Spark partition's tasks, for messages."""
        return [
            [str(TaskId(subtopology=share.subtopology, group=share.group)) for share in shares]
            for shares in self.tasks
        ]

    def run_partition(self, index: int) -> list[HostReport]:
        """Run the tasks of one Spark partition, as many at once as have ``num.threads.per.task`` threads of
        ``num.stream.threads``.

        A process in which too many calls of asynchronous nodes never returned ends instead: the calls hold
        its memory, and Spark runs the partition in another process.
        """
        if abandoned.too_many():
            log.error("this process ends: %s or more have not returned", counted(abandoned.MOST, "call"))
            os._exit(1)
        tasks = self.tasks[index]
        config = self.client.read()
        schema_registry.configure(config)
        slice_ = self.slice
        if slice_ is None:
            return self._run_until_stopped(index, config)
        work = [partial(self._run_to_stop, slice_, *numbered, config) for numbered in enumerate(tasks)]
        try:
            return self._watch(index).run(work, at_once=self.settings.tasks_at_once)
        except CallsStuckError as error:
            return [reported(error)]

    def _watch(self, index: int) -> FunctionWatch:
        return FunctionWatch(self.names[index], stall_ms=self.settings.run_stall_timeout_ms)

    def _run_to_stop(
        self, slice_: Slice, number: int, share: TaskShare, config: dict[str, str]
    ) -> HostReport:
        try:
            setup = self._setup(number, share, self._cluster(config))
            return HostReport(report=TaskRunner(setup, SliceWork(slice_, share)).run())
        except KStreamsError as error:
            return reported(error)
        finally:
            # A bound topology refers to itself in circles. Its stores must not wait for the collector's own
            # time while the worker hosts the next task.
            gc.collect()

    def _run_until_stopped(self, index: int, config: dict[str, str]) -> list[HostReport]:
        tasks, cluster = self.tasks[index], self._cluster(config)
        watch = LeaseWatch(
            cluster, self.settings, run_id=self.run_id, generation=self.generation, clock=SystemClock()
        )
        try:
            with watching(watch):
                reports = run_until_stopped(
                    [ContinuousTask(self._setup(*numbered, cluster)) for numbered in enumerate(tasks)],
                    watch,
                    run_id=self.run_id,
                    most_threads=self.settings.tasks_at_once,
                    functions=self._watch(index),
                )
                return [HostReport(report=report) for report in reports]
        except KStreamsError as error:
            return [reported(error)]

    def _setup(self, number: int, share: TaskShare, cluster: KafkaCluster) -> TaskSetup:
        task_id = TaskId(subtopology=share.subtopology, group=share.group)
        return TaskSetup(
            topology=with_outputs(self.source.topology(), self.settings),
            assignment=TaskAssignment(task_id=task_id, run_id=self.run_id, generation=self.generation),
            cluster=cluster,
            settings=self.settings.of_task(number),
            scratch=scratch_folder(task_id.group),
            global_tables=OF_PROCESS,
            open_rows=self._open_rows,
        )

    def _open_rows(self, table: TablePlan, target: FrozenTarget, writer: RowsWriter) -> TableRows:
        """Open what takes a task's rows for a table, by a catalogue of its own: tasks side by side share no
        connection. Only tasks with tables need what it imports.
        """
        from airflow_kstreams.tables.connections import open_tables
        from airflow_kstreams.tables.parquet.opening import rows_opener

        open_rows = rows_opener(
            open_tables(self.client.read_tables()), open_files=self.settings.table_open_files
        )
        return open_rows(table, target, writer)

    def _cluster(self, config: dict[str, str]) -> KafkaCluster:
        return KafkaCluster(config, settings=self.settings, allowed=AllowedSettings.parse(self.allowed))


def run_until_stopped(
    tasks: Sequence[ContinuousTask],
    watch: LeaseWatch,
    *,
    run_id: str,
    most_threads: int,
    functions: FunctionWatch,
) -> list[TaskReport]:
    """Run tasks until the lease holds a stop.

    :param watch: the watch of the lease, which :func:`watching` updates.
    :param run_id: id of the continuous run.
    :param most_threads: largest number of threads that share the tasks.
    :param functions: watches the calls of users' functions in these threads.
    :raises RunSupersededError: the lease is lost.
    :raises KStreamsError: a task failed for good.
    """
    count = min(most_threads, len(tasks))
    failed = threading.Event()
    threads = [
        TaskThread(tasks[index::count], verdict=lambda: watch.verdict, run_id=run_id)
        for index in range(count)
    ]
    found = functions.run([partial(_run, thread, failed) for thread in threads], at_once=count)
    return [report for reports in found for report in reports]


@contextmanager
def watching(watch: LeaseWatch) -> Iterator[None]:
    """Watch the lease in a thread of its own, so that slow functions of a topology do not delay a stop."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            watch.look(timeout_seconds=_LOOK_SECONDS)

    with ExitStack() as stack:
        stack.callback(watch.close)
        thread = threading.Thread(target=look, name="lease-watch", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _run(thread: TaskThread, failed: threading.Event) -> list[TaskReport]:
    try:
        return thread.run(failed.is_set)
    except BaseException:
        failed.set()
        raise
    finally:
        thread.close()


def show_log_lines() -> None:
    """Write this package's log, from INFO on, to the worker's stderr, which Spark keeps as the executor's log
    and which is the driver's own on a ``local`` master. A worker that has logging of its own keeps it.
    """
    package = logging.getLogger(_PACKAGE)
    if package.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LINE))
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    # An application file may set up the root's logging later; each line still comes once.
    package.propagate = False
