"""Runs a task of a continuous run: attempts one after another, in steps, under the rules of the task runner.

The protocol is that of :mod:`airflow_kstreams.batch.task.runner`, with the ledger in place of the metadata
topic in step 2: the task's work is the run that the ledger names, everything from the committed offsets on.
Step 5 has no end. A step that fails in a way that starting over may help drops the attempt; the next one
begins a moment later, while the thread goes on with its other tasks. A task that was fenced gives up at once:
either another attempt of it is alive, or the broker timed it out, and Spark starts it anew.

Reading without end differs from a batch:

- A partition whose end was reached counts as finished until its next record comes, so that a quiet input
  keeps no other one waiting (``partition_group.py``).
- Commits come every ``commit.interval.ms`` if there is something to commit, cached results with them, and no
  commit is special. A task that has nothing to do commits its offsets again once in a while: the broker
  forgets those of quiet partitions, and ids of producers that never commit.
- A step ends after a share of a second, so that the tasks of a thread take turns however much one has to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Set
from typing import TypeVar

import msgspec

from airflow_kstreams.batch.evidence.contradictions import find_moved_under_way
from airflow_kstreams.batch.evidence.prior_runs import find_other_records
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.metrics import task_line
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import task_partitions
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.batch.task.runner import OpenTask, TaskAttempt
from airflow_kstreams.batch.task.work import TaskAssignment, TaskSetup, TaskSlice, Unread, at_commit_point
from airflow_kstreams.streams.errors import KStreamsError, TaskFencedError
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    CommittedOffset,
    Fetched,
    ReaderPort,
    TopicPartition,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.record_queue import UNBOUNDED
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId

log = package_log(__name__)
#: Offsets expire after days, transactional ids too.
_REFRESH_SECONDS = 3_600.0
#: Pause between a failed attempt and the next: it grows with every fruitless one, up to a limit, with jitter.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
T = TypeVar("T")


class ContinuousTask:
    """One task of a continuous run.

    :param setup: names the task and its continuous run, and holds the parts of each attempt.
    """

    def __init__(self, setup: TaskSetup) -> None:
        self._setup = setup
        self._task_id = setup.assignment.task_id
        self._clock = setup.clock
        self._work = ContinuousWork()
        self._attempts = RetryBudget()
        self._attempt: TaskAttempt | None = None
        self._open: OpenTask | None = None
        self._resume_at = setup.clock.monotonic_seconds()

    @property
    def is_open(self) -> bool:
        """Whether the task is ready to process; if not, the next step opens it, which may take long."""
        return self._open is not None

    @property
    def waits(self) -> bool:
        """Whether it is too early for the next attempt."""
        return self._open is None and self._clock.monotonic_seconds() < self._resume_at

    def step(self, wait_seconds: float) -> bool:
        """Open the task if it is not, else let it fetch and process for one turn.

        :param wait_seconds: longest wait of the fetch, if no record is there yet.
        :return: whether the step opened the task or processed a record.
        :raises KStreamsError: an error that attempts could not overcome.
        """
        if self.waits:
            self._clock.sleep(wait_seconds)
            return False
        opened = self._open
        if opened is None:
            return self._guarded(self._begin) is not None
        return bool(self._guarded(lambda: opened.loop.step(wait_seconds)))

    def commit(self) -> None:
        """Commit the processed records, if the task is open and there are any.

        :raises KStreamsError: an error that attempts could not overcome.
        """
        opened = self._open
        if opened is not None:
            self._guarded(opened.loop.commit)

    def stop(self) -> TaskReport:
        """Close the processors, make the last commit, and keep the local state for the next run.

        :raises KStreamsError: the last commit failed; everything uncommitted is void.
        """
        opened, report = self._open, None
        if opened is not None:
            report = self._guarded(opened.finish, again=False)
        self.close()
        if report is None:  # between two attempts: there is nothing to commit
            report = TaskReport(task_id=str(self._task_id), attempts=self._attempts.number)
        report = msgspec.structs.replace(report, outcome="stopped")
        log.info("%s", task_line(report, self._setup.topology.purposes))
        return report

    def close(self) -> None:
        """Close the attempt; what is not committed is void."""
        self._drop(None)

    def _begin(self) -> OpenTask:
        self._attempt = attempt = TaskAttempt(self._setup, self._work, self._attempts)
        opened = attempt.open()
        if isinstance(opened, TaskReport):
            raise TypeError("a task without stop offsets is never done before it has begun")
        opened.loop.start(opened.share.bounds)
        self._open = opened
        log.info("task %s is ready", self._task_id)
        return opened

    def _guarded(self, step: Callable[[], T], *, again: bool = True) -> T | None:
        """Take a step; when it fails, drop the attempt.

        :param again: whether another attempt may follow a failure.
        :return: the step's result; None if it failed and another attempt follows.
        """
        try:
            return step()
        except BaseException as error:
            self._drop(error)
            if again and self._attempts.leaves_out(error, self._setup.settings):
                log.warning("task %s resumes without a result: %s", self._task_id, _first_line(error))
                return None
            exhausted = self._attempts.fruitless >= self._setup.settings.task_max_attempts
            if not again or exhausted or not resumable(error):
                raise
            pause = min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2**self._attempts.fruitless)
            pause *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
            self._resume_at = self._clock.monotonic_seconds() + pause
            log.warning("task %s starts over in %.1f s: %s", self._task_id, pause, _first_line(error))
            return None

    def _drop(self, error: BaseException | None) -> None:
        """End the attempt, if there is one.

        :param error: the failure that ends it; None if nothing went wrong.
        """
        attempt, self._attempt, self._open = self._attempt, None, None
        if attempt is not None:
            kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
            attempt.__exit__(kind, error, traceback)


def _first_line(error: BaseException) -> str:
    return error.cause if isinstance(error, KStreamsError) else type(error).__name__


class ContinuousWork:
    """Gives a task of a continuous run its work, which has no end."""

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Find the run in the ledger, and the offsets at which the task goes on.

        :raises TaskFencedError: another driver owns the run now.
        :raises DataLossError: records that the task must read are gone, or its committed offsets are.
        """
        ledger = read_ledger(setup.cluster, setup.settings.application_id, admin=admin, clock=setup.clock)
        run = current_run(ledger, setup.assignment)
        return run.slice, continuous_share(run, setup.assignment.task_id, reader, admin, clock=setup.clock)

    def end(self, task: StreamTask, admin: AdminPort) -> EndlessEnd:
        """Return an end that no reading reaches."""
        return EndlessEnd(task, admin)


def current_run(ledger: Ledger, assignment: TaskAssignment) -> ContinuousRun:
    """Return the continuous run, if the ledger still says that it is this driver's.

    :raises TaskFencedError: the driver that launched the task does not own the application any more.
    """
    assignment.refuse_unless_in_force(ledger.lease, continuous=True)
    run = ledger.current_continuous
    if run is None or (run.run_id, run.generation) != (assignment.run_id, assignment.generation):
        found = "none" if run is None else f"{run.run_id!r} generation {run.generation}"
        raise TaskFencedError(
            f"task {assignment.task_id} belongs to the continuous run {assignment.run_id!r} generation "
            f"{assignment.generation}, but the ledger names {found}",
            fix="nothing: the driver that owns the application launches its tasks itself",
            task_id=str(assignment.task_id),
        )
    return run


def continuous_share(
    run: ContinuousRun, task_id: TaskId, reader: ReaderPort, admin: AdminPort, *, clock: Clock
) -> TaskSlice:
    """Work out the share of a task of a continuous run: all records from its committed offsets on.

    :param reader: reader of the application's group; its earlier assignment is lost.
    :raises DataLossError: records that the task must read are gone, its committed offsets are, or the log was
        truncated before them and has grown again.
    """
    partitions = task_partitions(run.slice, task_id.subtopology, task_id.group)
    refuse_other_topics(admin, run.slice, {partition.topic for partition in partitions})
    committed = reader.committed(partitions)
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    losses = [
        loss
        for tp in partitions
        if (loss := _gap(tp, committed.get(tp), starts[tp], ends[tp], run_id=run.run_id)) is not None
    ]
    begun = {tp: run.starts.get(str(tp), 0) for tp in partitions}
    losses += find_moved_under_way(begun, committed, admin, run_id=run.run_id)
    application_id = run.plan.topology.application_id
    if losses:
        raise data_loss(losses, application_id, run_id=run.run_id)
    others = find_other_records(
        admin,
        reader,
        {tp: OffsetMetadata.decode(at.metadata).last_record for tp, at in committed.items()},
        committed={tp: at.offset for tp, at in committed.items()},
        logs={tp: (starts[tp], ends[tp]) for tp in partitions},
        clock=clock,
    )
    if others:
        raise data_loss(others, application_id, run_id=run.run_id)
    return TaskSlice(
        bounds={partition: (committed[partition].offset, UNBOUNDED) for partition in partitions},
        committed=committed,
    )


def _gap(
    partition: TopicPartition, committed: CommittedOffset | None, start: int, end: int, *, run_id: str
) -> Loss | None:
    if committed is not None and start <= committed.offset <= end:
        return None
    what = (
        "there is no committed offset" if committed is None else f"the committed offset is {committed.offset}"
    )
    return Loss(
        partitions=(partition,),
        text=f"{partition}: {what}, but the log holds [{start}, {end}); continuous run {run_id!r} cannot go "
        "on there",
        advice="stop the run first",
    )


class EndlessEnd:
    """No end: a continuous run is stopped from outside.

    :param task: the task, which reads on.
    :param admin: gives the ends of logs for error texts.
    """

    turn_seconds = 0.25

    def __init__(self, task: StreamTask, admin: AdminPort) -> None:
        self._task = task
        self._admin = admin
        #: Positions of the partitions at the last commit; None: the work of the processors in init waits for
        #: a commit.
        self._at_commit: Mapping[TopicPartition, int] | None = None

    def take(self, fetched: Fetched) -> None:
        """Give the fetched records to the task; a partition at its end keeps no other one waiting."""
        group = self._task.group
        for partition, records in fetched.records.items():
            group.add_live(partition, records)
        for partition, end in fetched.ends.items():
            group.caught_up(partition, end)

    def at_stop(self) -> bool:
        """Return that the task is not at its stop: it has none."""
        return False

    def end_of_run(self) -> Iterator[None]:
        """Leave stream time as it is: it advances at the end of a run, and this one has none."""
        return iter(())

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Return whether to commit: at the task's own commit points, by the interval, and once in a while."""
        if self._task.commit_due(interval_elapsed=False, processed=processed):
            return True
        if since_seconds >= _REFRESH_SECONDS and self._task.execution.may_commit:
            return True
        return interval_elapsed and self.anything_to_commit(opened=opened) and at_commit_point(self._task)

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Return whether the task has written something, or has read records without writing."""
        return opened or self._at_commit != self._task.group.positions()

    def committed(self) -> None:
        """Keep the positions at the commit."""
        self._at_commit = self._task.group.positions()

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return (position, end of the log) of every partition: there is no stop offset."""
        ends = self._admin.end_offsets(sorted(positions), isolation="read_uncommitted")
        return {p: (positions[p], ends[p]) for p in sorted(positions)}

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that are far ahead of others."""
        return set(self._task.group.ahead(paused))
