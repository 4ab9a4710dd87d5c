"""Runs the tasks that take turns in one thread of a continuous run, as Kafka Streams' StreamThread does, and
watches the lease of their driver.

Rule of turns: every task has its turn in every round, and a turn is short (``continuous_task.py``), so none
starves however much the others have to do. A round in which no task did anything waits for records, a share
of the wait at each task. Before a task is opened, which may restore state for minutes, the others commit: no
transaction is open meanwhile, for the broker would abort one that lasts too long.

Executors know nothing but Kafka, so that any deploy mode works: the driver says there that it is alive (it
renews its lease), that the tasks are to stop (``stopping``), and that it released it. Tasks whose driver was
killed therefore end by themselves, and so do those whose application another driver has claimed.

Rule of the lease: it is lost when nothing was heard of it for ``lease.ms`` on this machine's own monotonic
clock, so clocks that differ between machines do not matter. Ending late does no harm: the run that begins
next fences every transactional id of this run first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import closing

from airflow_kstreams.batch.continuous.continuous_task import ContinuousTask
from airflow_kstreams.batch.ledger.fold import LeaseOf, LeaseState, decode_lease, is_about_lease
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.task.loop import FETCH_SECONDS
from airflow_kstreams.streams.errors import KafkaClientError, RunSupersededError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
_FETCH_RECORDS = 1_000


class TaskThread:
    """Runs some tasks in turns; close it after use.

    :param tasks: the tasks, at least one.
    :param verdict: returns the lease's order to the tasks.
    :param run_id: id of the continuous run.
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

        :param leave: returns whether another thread has failed, so that this one commits and leaves.
        :return: the report of each task; empty if the thread left.
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
                f"the tasks of continuous run {self._run_id!r} stop: their driver does not renew its lease "
                "any more, or another driver holds it",
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


class LeaseVerdict(enum.Enum):
    """The lease's order to a task: go on, stop, or give up."""

    GO_ON = "go on"
    STOP = "stop cleanly"
    LOST = "stop, the lease is lost"


class LeaseWatch:
    """Watches the lease of one continuous run. One thread looks, any thread may ask for the verdict.

    :param run_id: id of the continuous run.
    :param generation: generation of its start.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        run_id: str,
        generation: int,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._group = settings.application_id
        self._partition = TopicPartition(ProtocolTopics(settings.application_id).ledger, 0)
        self._lease_seconds = settings.lease_ms / 1000
        self._mine = LeaseOf(run_id, generation, continuous=True)
        self._clock = clock
        self._reader: ReaderPort | None = None
        self._heard = clock.monotonic_seconds()
        self._met = False
        self._decided: LeaseVerdict | None = None

    @property
    def verdict(self) -> LeaseVerdict:
        """The lease's order to the tasks; one that ends them is never taken back."""
        if self._decided is not None:
            return self._decided
        silent = self._clock.monotonic_seconds() - self._heard
        return LeaseVerdict.LOST if silent > self._lease_seconds else LeaseVerdict.GO_ON

    def look(self, *, timeout_seconds: float) -> None:
        """Read the new records of the ledger.

        :param timeout_seconds: longest wait for a new record, seconds.
        """
        try:
            if self._reader is None:
                self._reader = self._open()
            fetched = self._reader.poll(max_records=_FETCH_RECORDS, timeout_seconds=timeout_seconds)
            for record in fetched.records.get(self._partition, ()):
                self._note(record)
        except KafkaClientError as error:
            # The lease decides, not this reader: it is lost if this goes on for too long.
            log.warning("the lease could not be read, trying again: %s", error.cause)
            self.close()
            self._clock.sleep(timeout_seconds)

    def close(self) -> None:
        """Close the reader. Closing twice is harmless."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _open(self) -> ReaderPort:
        with closing(self._cluster.admin()) as admin:
            start = admin.start_offsets([self._partition])[self._partition]
        reader = self._cluster.reader(group_id=self._group, follows=True, small=True)
        try:
            reader.assign({self._partition: start})
        except BaseException:
            reader.close()
            raise
        return reader

    def _note(self, record: Record) -> None:
        if not is_about_lease(record):
            return
        lease = decode_lease(record)
        state = self._mine.state_of(lease)
        if state is not LeaseState.OTHER:
            self._met = True
            self._heard = self._clock.monotonic_seconds()
            if state is LeaseState.RELEASED:
                self._decide(LeaseVerdict.LOST)
            elif lease is not None and lease.stopping:
                self._decide(LeaseVerdict.STOP)
        elif self._met:  # another driver holds it, or a reset has taken it away
            self._decide(LeaseVerdict.LOST)
        # Before its own, a run finds the leases of those that came earlier.

    def _decide(self, verdict: LeaseVerdict) -> None:
        if self._decided is None:
            self._decided = verdict
