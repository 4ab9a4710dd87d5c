"""Where a driver's tasks run: the port, and Spark behind it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from airflow_kstreams.batch.ledger.continuous_run import ContinuousRun
from airflow_kstreams.batch.protocol.slice import Slice
from airflow_kstreams.batch.protocol.task_report import TaskReport
from airflow_kstreams.batch.protocol.task_share import TaskShare, without_partitions
from airflow_kstreams.kafka.code_settings import AllowedSettings
from airflow_kstreams.spark.driver.failures import failure_of, first_line
from airflow_kstreams.spark.driver.session import cancel_jobs, open_session, ship_file
from airflow_kstreams.spark.driver.shipped import shipped
from airflow_kstreams.spark.driver.slots import HOSTS, most_hosts, slots_of
from airflow_kstreams.spark.executor.reports import REPORT_SCHEMA, HostReport
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.errors import KStreamsError, ReportedError, SparkSessionError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How often the jobs of a session that is being cancelled are cancelled once more, seconds: Spark cancels the
#: jobs that have begun, and knows nothing of one that is on its way to it.
_CANCEL_AGAIN_SECONDS = 0.2


class Executors(Protocol):
    """Runs tasks somewhere else, several launches side by side if asked from several threads."""

    def start(self) -> None:
        """Make ready; once started, nothing happens."""
        ...

    def slots(self) -> int:
        """Return how many launches of one slot can run at once; once started."""
        ...

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks of a slice to their stop offsets.

        :raises KStreamsError: a task failed.
        """
        ...

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Run tasks of a continuous run in one slot until the ledger says stop.

        :raises KStreamsError: a task failed.
        """
        ...

    def cancel(self) -> None:
        """Cancel what runs, and launch nothing any more; best effort."""
        ...

    def close(self) -> None:
        """End it all; never raises."""
        ...


class SparkExecutors:
    """The executors of one Spark session, which is opened when it is needed.

    :param name: of the session, shown in Spark's UI.
    :param source: the application file.
    :param client_config_path: where the Kafka client's configuration lies; executors read it too.
    :param session: one that is open already.
    """

    def __init__(
        self,
        name: str,
        source: ApplicationFile,
        *,
        settings: ApplicationSettings,
        client_config_path: str,
        session: SparkSession | None = None,
    ) -> None:
        self._name = name
        self._source = source
        self._settings = settings
        self._client_config_path = client_config_path
        self._opened = session
        self._changed = threading.Condition()
        self._launched = 0
        self._cancelled = False

    def start(self) -> None:
        """Open the session.

        :raises ConfigError: Spark is configured in a way that breaks the task protocol.
        :raises SparkSessionError: Spark did not start.
        """
        if self._opened is None:
            try:
                self._opened = open_session(self._name)
            except KStreamsError:
                raise
            except Exception as error:  # whatever Spark, its launcher or py4j raised
                raise SparkSessionError(
                    f"Spark did not start for {self._name!r}: {first_line(error)}",
                    fix="read Spark's own words in the driver's log, mend its settings, then retry the run",
                ) from error
            log.info("Spark session ready")
            ship_file(self._opened, self._client_config_path)

    def slots(self) -> int:
        """Return how many Spark tasks can run at once.

        :raises ConfigError: Spark does not say.
        """
        return slots_of(self._session())

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks of a slice as one Spark job, on as few Spark tasks as can be.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: a task failed.
        """
        common = without_partitions(slice_)
        return self._host(slice_, self._packed(tasks), common)

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Run tasks of a continuous run as one Spark job of one Spark task.

        A continuous run has a job of its own for every slot: what happens in one is known at once, and
        launched again alone.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: a task failed.
        """
        return self._host(run, spread([TaskShare(task.subtopology, task.group) for task in tasks], 1), None)

    def _host(
        self, run: Slice | ContinuousRun, tasks: tuple[tuple[TaskShare, ...], ...], common: Slice | None
    ) -> list[TaskReport]:
        host = TaskHost(
            source=self._source,
            settings=self._settings,
            tasks=tasks,
            run_id=run.run_id,
            generation=run.generation,
            slice=common,
            client_config_path=self._client_config_path,
            allowed=AllowedSettings.of_environment().to_text(),
        )
        with self._launching(run.run_id):
            return self._run_job(shipped(host), partitions=len(host.tasks), run_id=run.run_id)

    def _packed(self, tasks: Sequence[TaskShare]) -> tuple[tuple[TaskShare, ...], ...]:
        """Return the tasks of a slice that each Spark task hosts."""
        threads = self._settings.tasks_at_once
        many = len(tasks) > HOSTS * threads
        return packed(tasks, threads, most=most_hosts(self._session()) if many else HOSTS)

    def cancel(self) -> None:
        """Cancel the session's jobs, those that are on their way to Spark included; return when none runs."""
        with self._changed:
            self._cancelled = True
            while self._launched and self._opened is not None:
                cancel_jobs(self._opened)
                self._changed.wait(_CANCEL_AGAIN_SECONDS)

    def close(self) -> None:
        """Stop the session; what fails here is logged and must not hide why the run ended."""
        if self._opened is not None:
            try:
                self._opened.stop()
            except Exception as error:  # py4j raises whatever the lost connection to the JVM raised
                log.warning("the Spark session could not be stopped: %s", type(error).__name__)

    @contextmanager
    def _launching(self, run_id: str) -> Iterator[None]:
        with self._changed:
            if self._cancelled:
                raise SparkSessionError(
                    f"the Spark jobs of run {run_id!r} were cancelled before this one began",
                    fix="look for the failure that cancelled them, then retry the run",
                )
            self._launched += 1
        try:
            yield
        finally:
            with self._changed:
                self._launched -= 1
                self._changed.notify_all()

    def _run_job(
        self,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        *,
        partitions: int,
        run_id: str,
    ) -> list[TaskReport]:
        session = self._session()
        try:
            frame = session.range(0, partitions, 1, partitions).mapInArrow(function, REPORT_SCHEMA)
            rows = frame.collect()
        except Exception as error:  # whatever Spark or py4j raised
            raise failure_of(error, run_id) from error
        outcomes = [msgspec.json.decode(row.report, type=HostReport) for row in rows]
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        if failed:
            raise ReportedError.from_dict(failed[0])
        return [outcome.report for outcome in outcomes if outcome.report is not None]

    def _session(self) -> SparkSession:
        if self._opened is None:
            raise RuntimeError("start the executors first")
        return self._opened


def packed(tasks: Sequence[T], threads: int, *, most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over as few Spark partitions as ``num.stream.threads`` allows.

    :param most: of Spark partitions, however many tasks there are.
    """
    return spread(tasks, min(-(-len(tasks) // threads), most))


def spread(tasks: Sequence[T], most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over so many places, or one each if they are fewer; neighbours go to different places."""
    count = min(most, len(tasks))
    return tuple(tuple(tasks[index::count]) for index in range(count))
