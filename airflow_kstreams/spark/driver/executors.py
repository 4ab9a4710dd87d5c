"""Runs a driver's tasks: the port of executors, and its implementation on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.task_share import TaskShare, without_partitions
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.spark.driver.hosts import SparkHosts
from airflow_kstreams.spark.driver.slots import HOSTS, most_hosts, slots_of
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class Executors(Protocol):
    """Runs tasks in other processes; several threads may launch tasks side by side."""

    def start(self) -> None:
        """Start the executors; a second call does nothing."""
        ...

    def slots(self) -> int:
        """Return the number of launches of one slot that can run at once; call it after :meth:`start`."""
        ...

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks of a slice to their stop offsets.

        :raises KStreamsError: a task failed.
        """
        ...

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Run tasks of a continuous run in one slot until the ledger holds a stop.

        :raises KStreamsError: a task failed.
        """
        ...

    def cancel(self) -> None:
        """Cancel running tasks, and launch no more; best effort."""
        ...

    def close(self) -> None:
        """End the executors; never raises."""
        ...


class SparkExecutors:
    """The executors of one Spark session, which is opened on first use.

    :param name: name of the session, shown in Spark's UI.
    :param source: the application file.
    :param client_config_path: file of the Kafka client's configuration; executors read it, too.
    :param session: an open session to use.
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
        self._source = source
        self._settings = settings
        self._client_config_path = client_config_path
        self._hosts = SparkHosts(name, client_config_path=client_config_path, session=session)
        self.start = self._hosts.start
        self.cancel = self._hosts.cancel
        self.close = self._hosts.close

    def slots(self) -> int:
        """Return the number of Spark tasks that can run at once.

        :raises ConfigError: Spark does not give the number.
        """
        return slots_of(self._hosts.session)

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks of a slice as one Spark job, on as few Spark tasks as possible.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: a task failed.
        """
        common = without_partitions(slice_)
        return self._host(slice_, self._packed(tasks), common)

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Run tasks of a continuous run as one Spark job of one Spark task.

        A continuous run has a job of its own for every slot: a failure in one is known at once, and only that
        job is launched again.

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
        outcomes = self._hosts.run(host, run_id=run.run_id)
        return [outcome.report for outcome in outcomes if outcome.report is not None]

    def _packed(self, tasks: Sequence[TaskShare]) -> tuple[tuple[TaskShare, ...], ...]:
        """Return the tasks of a slice that each Spark task hosts."""
        threads = self._settings.tasks_at_once
        many = len(tasks) > HOSTS * threads
        return packed(tasks, threads, most=most_hosts(self._hosts.session) if many else HOSTS)


def packed(tasks: Sequence[T], threads: int, *, most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over as few Spark partitions as ``num.stream.threads`` allows.

    :param most: largest number of Spark partitions.
    """
    return spread(tasks, min(-(-len(tasks) // threads), most))


def spread(tasks: Sequence[T], most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over at most ``most`` places; tasks side by side go to different places."""
    count = min(most, len(tasks))
    return tuple(tuple(tasks[index::count]) for index in range(count))
