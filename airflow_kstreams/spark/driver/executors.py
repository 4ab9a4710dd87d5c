"""Runs a driver's tasks: the port of executors, its implementation on Spark, the number of Spark tasks that a
job should have, and which failed launches are worth another one.

A continuous run needs all of its Spark tasks at the same time: one that waits for a slot would wait for ever.
So their number is that of the slots Spark has, not of those requested: the driver waits a while for the cores
of ``spark.cores.max``, or of executors times their cores, and then uses those that are there.

A job of a slice waits for no slot. It has a Spark task for each of its tasks while they are few, so that
Spark shows them and tries them again one by one. With more tasks, a start for each costs more than it gains:
each slot then has a few Spark tasks, so that a slow one delays the job's end by a part only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.spark.driver.hosts import SparkHosts
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.errors import (
    ConfigError,
    DataLossError,
    KStreamsError,
    RecordError,
    ReportedError,
    RunSupersededError,
    SparkSessionError,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = package_log(__name__)
#: Executors register one after the other when the session is already there.
_REGISTRATION_SECONDS = 30.0
#: Nothing was asked for: when the number stayed the same for so long, it is taken.
_STEADY_SECONDS = 3.0
_STEP_SECONDS = 0.2
#: Number of Spark tasks that a job may have, whatever slots there are.
HOSTS = 100
_HOSTS_PER_SLOT = 4


#: Number of launches for the same unfinished tasks before the run fails.
MAX_LAUNCHES = 3


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
    :param client_config_path: the driver's file of client settings.
    :param session: an open session to use.
    :ivar hosts: runs hosts on the session.
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
        self.hosts = SparkHosts(name, client_config_path=client_config_path, session=session)
        self.start = self.hosts.start
        self.cancel = self.hosts.cancel
        self.close = self.hosts.close

    def slots(self) -> int:
        """Return the number of Spark tasks that can run at once.

        :raises ConfigError: Spark does not give the number.
        """
        return slots_of(self.hosts.session)

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
            client=self.hosts.client,
            allowed=AllowedSettings.of_environment().to_text(),
        )
        outcomes = self.hosts.run(host, run_id=run.run_id)
        return [outcome.report for outcome in outcomes if outcome.report is not None]

    def _packed(self, tasks: Sequence[TaskShare]) -> tuple[tuple[TaskShare, ...], ...]:
        """Return the tasks of a slice that each Spark task hosts."""
        threads = self._settings.tasks_at_once
        many = len(tasks) > HOSTS * threads
        return packed(tasks, threads, most=most_hosts(self.hosts.session) if many else HOSTS)


def packed(tasks: Sequence[T], threads: int, *, most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over as few Spark partitions as ``num.stream.threads`` allows.

    :param most: largest number of Spark partitions.
    """
    return spread(tasks, min(-(-len(tasks) // threads), most))


def spread(tasks: Sequence[T], most: int) -> tuple[tuple[T, ...], ...]:
    """Spread tasks over at most ``most`` places; tasks side by side go to different places."""
    count = min(most, len(tasks))
    return tuple(tuple(tasks[index::count]) for index in range(count))


def slots_of(session: SparkSession) -> int:
    """Return the number of Spark tasks that can run at once.

    :raises ConfigError: Spark Connect does not give the number, and no setting does.
    """
    return max(1, _cores(session) // max(1, _number(session, "spark.task.cpus", 1)))


def most_hosts(session: SparkSession) -> int:
    """Return the number of Spark tasks that a job of a slice may have, by the present slots."""
    try:
        cores = session.sparkContext.defaultParallelism
    except Exception:  # Spark Connect raises an error of its own: this side has no context
        cores = 0
    return max(HOSTS, _HOSTS_PER_SLOT * max(cores, _configured(session) or 0))


def _cores(session: SparkSession) -> int:
    wanted = _configured(session)
    try:
        context = session.sparkContext
    except Exception:  # Spark Connect raises an error of its own: this side has no context
        if wanted is None:
            raise ConfigError(
                "Spark Connect does not say how many slots there are, which a continuous run must know",
                fix="set spark.cores.max, or spark.executor.instances and spark.executor.cores",
            ) from None
        return wanted
    if str(context.master).startswith("local"):
        return context.defaultParallelism
    started = changed = time.monotonic()
    cores = context.defaultParallelism
    while time.monotonic() - started < _REGISTRATION_SECONDS:
        if cores >= wanted if wanted is not None else time.monotonic() - changed >= _STEADY_SECONDS:
            break
        time.sleep(_STEP_SECONDS)
        if context.defaultParallelism != cores:
            cores, changed = context.defaultParallelism, time.monotonic()
    if wanted is not None and cores < wanted:
        log.warning(
            "Spark offers %d cores after %.0f s, and %d were asked for", cores, _REGISTRATION_SECONDS, wanted
        )
    return cores if wanted is None else min(cores, wanted)


def _configured(session: SparkSession) -> int | None:
    """Return the number of cores in the settings, None if they set none."""
    most = _number(session, "spark.cores.max", 0)
    executors = _number(session, "spark.executor.instances", 0)
    together = executors * _number(session, "spark.executor.cores", 1)
    return min((number for number in (most, together) if number), default=None)


def _number(session: SparkSession, name: str, default: int) -> int:
    text = session.conf.get(name, str(default))
    try:
        return int(str(text))
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, not a number", fix=f"set {name} to a number") from None


def worth_another_launch(error: KStreamsError) -> bool:
    """Return whether the same driver should launch the tasks again."""
    decided = isinstance(error, RunSupersededError | SparkSessionError | DataLossError | RecordError) or (
        isinstance(error, ReportedError) and error.error_type in ("RecordError", "CallsStuckError")
    )
    return error.is_retriable and not decided


def pause_seconds(launch: int) -> float:
    """Return the pause before the n-th launch after the first."""
    return random.uniform(0.5, 1.0) * (1 << launch)  # noqa: S311 - jitter, no secret
