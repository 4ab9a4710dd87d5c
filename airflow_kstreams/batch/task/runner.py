"""Runs the task protocol (KIP-129): one bounded task from fencing to its last commit, in as many attempts as
it needs.

Steps of an attempt, in this order, which is the proof:

1. ``init_transactions`` under ``<app>-<subtopology>_<group>`` fences every older attempt of the task and
   waits until the transaction that it left open is aborted or completed. No write of an older attempt can
   become visible after this line.
2. Look at the lease in the ledger's tail: unless it is in force for the task's run and generation, stop;
   nothing was written (:mod:`airflow_kstreams.batch.ledger.fold`). The driver ships the task's share,
   with the stops that are frozen for the run, and they never move.
3. Read the committed offsets. Because of step 1 they cannot move any more except by this attempt, or by one
   that fences it in turn.
4. Restore state from the task's local files, as far as a checkpoint of a clean end goes, and from the
   changelog, up to its end: step 1 settled that, too.
5. Process to the stop offsets. A commit writes outputs, changelogs, offsets (and with the last one the done
   notification) in one transaction, so a crash between any two lines leaves either all of a commit or
   nothing of it.

A crash in 1 to 4 has written nothing. A crash in 5 leaves an open transaction, which step 1 of the next
attempt aborts. If the outcome of a commit is unknown, or its writer is suspect, the writer is dropped and the
next attempt starts at 1, where the committed offsets tell the outcome. With ``at_least_once`` outputs are
flushed before changelogs, notification and offsets are committed in a transaction, so that a crash repeats
records and never skips one. Only the outputs of a zombie are not fenced then.

Rule of ``max.timestamp.ahead.ms``, how far ahead records may be dated: the bound of an input topic depends on
what the run froze, so that every attempt has the same one: the moment at which the slice was frozen, and in a
backfill the end of its interval. A topic that the topology writes has the wall clock's bound, if that is
later: its records may be dated when they were written, by the broker or by a timer, and a slice may be
retried days after it was frozen. A continuous run froze nothing; all its topics go by the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Self

import msgspec
import tenacity

from airflow_kstreams.batch.clock import steady_ms
from airflow_kstreams.batch.growing.state_copy import Homes
from airflow_kstreams.batch.metrics import TaskMeter, task_line
from airflow_kstreams.batch.protocol.logs.fence import await_leaders, written_topics
from airflow_kstreams.batch.protocol.logs.log_read import refuse_unfit_timeouts
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport
from airflow_kstreams.batch.protocol.slice.slice import RunPlan, Slice
from airflow_kstreams.batch.protocol.step_times import TaskTimes
from airflow_kstreams.batch.protocol.topics import topic_limits
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.batch.task.commit import CommitBasis, TaskClients, TaskCommit, write_done
from airflow_kstreams.batch.task.global_table_read import ReadTable, left_out_of
from airflow_kstreams.batch.task.loop import TaskLoop
from airflow_kstreams.batch.task.read_failures import ReadFailures
from airflow_kstreams.batch.task.restore import ChangelogEvidence, restore_stores
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.batch.task.work import SliceWork, TaskSetup, TaskSlice, Work
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RecordError, TaskFencedError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.graph.nodes import global_tables_of
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, TopicLimits, WriterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.timestamp_reading import LatestAllowed, no_bound
from airflow_kstreams.streams.records.topic_limits import BROKER_LIMITS
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.files.checkpoint import StateOwner
from airflow_kstreams.streams.tables.table_port import SAY_WHERE_TABLES_ARE
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows

log = package_log(__name__)
_FENCED_POLL_SECONDS = 0.5


class TaskRunner:
    """Runs one task of a slice until its stop offsets are committed.

    :param setup: names the task and its slice, and holds the parts of each attempt.
    :param work: the task's share of that slice.
    """

    def __init__(self, setup: TaskSetup, work: SliceWork) -> None:
        self._setup = setup
        self._settings = setup.settings
        self._clock = setup.clock
        self._work = work
        self._attempts = RetryBudget()

    def run(self) -> TaskReport:
        """Run attempts until the task is done.

        :raises RecordError: a record could not be decoded, processed, encoded or delivered.
        :raises TaskFencedError: another attempt owns the task and makes no progress either.
        :raises KStreamsError: any other error that attempts could not overcome.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(resumable),
            stop=lambda _: self._attempts.fruitless >= self._settings.task_max_attempts,
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5),
            sleep=self._clock.sleep,
            before_sleep=self._say_again,
            reraise=True,
        )
        try:
            report = retrying(self._attempt)
        except TaskFencedError as error:
            report = self._done_by_another(error)
        log.info("%s", task_line(report, self._setup.topology.purposes))
        return report

    def _say_again(self, state: tenacity.RetryCallState) -> None:
        """Say that another attempt follows; the error's own text is for this process's log, since the last
        attempt may fail with it.
        """
        error = None if state.outcome is None else state.outcome.exception()
        failed = error.type_name if isinstance(error, KStreamsError) else type(error).__name__
        task = self._setup.assignment.task_id
        log.warning("task %s: attempt %d follows, after %s", task, state.attempt_number + 1, failed)
        log.info("task %s: %s", task, getattr(error, "cause", error))

    def _attempt(self) -> TaskReport:
        while True:
            try:
                with TaskAttempt(self._setup, self._work, self._attempts) as attempt:
                    return attempt.run()
            except RecordError as error:
                if not self._attempts.leaves_out(error, self._settings):
                    raise
                log.warning("%s; it is left out, and the task resumes", error.cause)

    def _done_by_another(self, fenced: TaskFencedError) -> TaskReport:
        """Watch the attempt that fenced this one; success is reported only when the stop offsets are
        committed.
        """
        patience = 2 * self._settings.transaction_timeout_ms / 1000
        progressed = self._clock.monotonic_seconds()
        seen: object = None
        while self._clock.monotonic_seconds() - progressed < patience:
            slice_, share = self._share()
            if share.processed:
                return already_done(committed_progress(slice_, share), self._setup.assignment.task_id)
            if share.committed != seen:
                seen, progressed = share.committed, self._clock.monotonic_seconds()
            self._clock.sleep(_FENCED_POLL_SECONDS)
        raise fenced

    def _share(self) -> tuple[Slice, TaskSlice]:
        cluster, group_id = self._setup.cluster, self._settings.application_id
        with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=group_id)) as reader:
            return self._work.share(self._setup, reader, admin)


class TaskAttempt:
    """One attempt; a context manager that closes its clients and aborts its open transaction.

    :param setup: the parts that the attempt is made from.
    :param work: decides which offsets the task reads, and where reading ends.
    :param attempts: counts this attempt and its outcome.
    """

    def __init__(self, setup: TaskSetup, work: Work, attempts: RetryBudget) -> None:
        attempts.begin()
        self._setup = setup
        self._topology = setup.topology
        self._task_id = setup.assignment.task_id
        self._work = work
        self._cluster = setup.cluster
        self._settings = setup.settings
        self._clock = setup.clock
        self._attempts = attempts
        self._number = attempts.number
        self._clients = ExitStack()
        #: ``max.message.bytes`` of the topics that the task writes.
        self._limits: Mapping[str, TopicLimits] = {}
        self._commit: TaskCommit | None = None
        self._loop: TaskLoop | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._attempts.end(
            commits=self._commit.commits if self._commit is not None else 0,
            grew_old=self._loop is not None and self._loop.grew_old,
        )
        try:
            if self._commit is not None and error is not None and not isinstance(error, TaskFencedError):
                self._commit.abort()
        except KStreamsError as failure:
            log.warning(
                "task %s: the abort failed too, the next attempt fences it: %s", self._task_id, failure
            )
        finally:
            self._clients.close()

    def run(self) -> TaskReport:
        """Run the five steps and return the report of all that was committed for the slice.

        :raises KStreamsError: the error that stopped it; everything uncommitted is void.
        """
        opened = self.open()
        if isinstance(opened, TaskReport):
            return opened
        return opened.run()  # step 5

    def open(self) -> OpenTask | TaskReport:
        """Take the first four steps.

        :return: the opened task; a report instead when nothing is left to do.
        :raises TaskFencedError: another driver owns the run now.
        """
        started, begun_ms = self._clock.monotonic_seconds(), self._clock.now_ms()
        own_group = self._settings.application_id
        # Made first, it connects while the others do what comes before reading.
        making = self._cluster.reader(group_id=own_group, follows=self._settings.continuous)
        reader = self._clients.enter_context(closing(making))
        admin = self._clients.enter_context(closing(self._cluster.admin()))
        refuse_unfit_timeouts(self._settings, admin)
        written = self._written_topics()
        await_leaders(admin, written)
        small = ProtocolTopics(self._settings.application_id).protocol
        self._limits = topic_limits(admin, written - {*small})
        outputs, state = self._writers()  # step 1
        fenced_ms = self._clock.now_ms()
        # Now that no older attempt can change what there is to do.
        slice_, share = self._share(reader, admin)  # steps 2 and 3
        clients = TaskClients(
            admin=admin,
            reader=reader,
            outputs=outputs,
            state=state,
            written=written,
            tables=self._table_rows(slice_),
        )
        before = committed_progress(slice_, share)
        if share.processed:
            if share.notify:
                self._only_notify(state, slice_)
            return already_done(before, self._task_id)
        task = self._stream_task(slice_, share, before, clients)
        self._clients.callback(task.close)
        state_files = TaskState(
            task,
            owner=StateOwner(
                application_id=self._settings.application_id,
                task_id=str(self._task_id),
                topology_hash=slice_.plan.topology.topology_hash,
                tasks=slice_.plan.tasks[str(self._task_id.subtopology)],
            ),
            homes=self._homes(slice_),
            admin=admin,
            settings=self._settings,
            clock=self._clock,
            scratch=self._setup.scratch,
        )
        self._clients.callback(state_files.close)
        failures = ReadFailures(
            cluster=self._cluster,
            admin=admin,
            slice_=slice_,
            task=str(self._task_id),
            settings=self._settings,
            clock=self._clock,
            end_epochs=share.end_epochs,
        )
        evidence = ChangelogEvidence(
            slice_, task, share.committed, lambda: reader.committed(sorted(share.bounds))
        )
        restoring = self._clock.monotonic_seconds()
        restored = self._restore(task, state_files, clients, failures, evidence)  # step 4
        restore_seconds = self._clock.monotonic_seconds() - restoring
        restored_ms = self._clock.now_ms()
        self._commit = TaskCommit(
            clients,
            CommitBasis(
                slice=slice_,
                share=share,
                task_id=self._task_id,
                before=before,
                restored=restored,
                attempt=self._number,
                started=started,
                meter=TaskMeter(before.metrics_so_far, restore_seconds=restore_seconds),
                changelog_ends=evidence.ends,
            ),
        )
        self._loop = TaskLoop(
            task,
            clients,
            self._commit,
            failures,
            end=self._work.end(task, admin),
            settings=self._settings,
            clock=self._clock,
        )
        self._loop.open(patient=self._attempts.patient)
        return OpenTask(
            share=share,
            loop=self._loop,
            state_files=state_files,
            commit=self._commit,
            opened_ms=(begun_ms, fenced_ms, restored_ms),
            crossing=self._cluster.crossing,
            clock=self._clock,
        )

    def _share(self, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        return self._work.share(self._setup, reader, admin)

    def _only_notify(self, state: WriterPort, slice_: Slice) -> None:
        # The last commit is made, and the driver has not found the notification.
        state.begin()
        write_done(state, slice_, self._task_id)
        state.commit()

    def _written_topics(self) -> set[str]:
        """Return the topics that take part in this task's transactions."""
        plan = self._topology.plan(self._settings.application_id)
        return written_topics(plan, settings=self._settings, subtopology=self._task_id.subtopology)

    def _restore(
        self,
        task: StreamTask,
        state_files: TaskState,
        clients: TaskClients,
        failures: ReadFailures,
        evidence: ChangelogEvidence,
    ) -> int:
        """Restore the stores. What was read is of the run's own changelogs if a look behind it finds them.

        :return: number of changelog records that were replayed.
        """
        changelogs = {*task.changelogs.values()}
        try:
            restored = restore_stores(
                task, state_files, clients.reader, clients.admin, self._settings, self._clock, evidence
            )
        except KStreamsError:
            failures.refuse_replaced(changelogs)
            raise
        failures.refuse_replaced(changelogs)
        task.restored()
        return restored

    def _homes(self, slice_: Slice) -> Homes | None:
        """Return the test for changelog entries that are this task's; None where all of them are."""
        processors = slice_.plan.processors.get(str(self._task_id.subtopology))
        plan = slice_.plan.topology.subtopology(self._task_id.subtopology)
        return None if processors is None else Homes(processors, plan.entry_keys)

    def _stream_task(
        self, slice_: Slice, share: TaskSlice, before: OffsetMetadata, clients: TaskClients
    ) -> StreamTask:
        admin = clients.admin
        plan = slice_.plan.topology.subtopology(self._task_id.subtopology)
        tables = self._global_tables(slice_, admin)
        left_out = RecordCounts() if before.task_id else left_out_of(tables, share.tables)
        counts = before.counts_so_far(plan)
        return StreamTask(
            self._topology.matched(slice_.plan.topology.sources),
            task_id=self._task_id,
            bounds=share.bounds,
            produce=clients.outputs.produce,
            settings=self._settings,
            progress=TaskProgress(
                records_in=before.records_in,
                records_out=before.records_out,
                records_dropped=before.records_dropped + left_out.by("null"),
                records_dead_lettered=before.records_dead_lettered,
                counts=None if counts is None else counts + left_out,
                partition_times={
                    partition: OffsetMetadata.decode(offset.metadata).times
                    for partition, offset in share.committed.items()
                },
                last_records={
                    partition: OffsetMetadata.decode(offset.metadata).last_record
                    for partition, offset in share.committed.items()
                },
            ),
            environment=TaskEnvironment(
                now_ms=self._clock.now_ms,
                steady_ms=steady_ms(self._clock),
                partition_count=_partition_count(slice_, admin),
                placements={topic: first for topic, (first, _) in slice_.plan.placements.items()},
                latest_allowed=_latest_allowed(slice_.plan, self._settings, self._clock),
                refused=self._attempts.refused,
                dead_letter_bytes=self._limits.get(self._settings.dead_letter_topic, BROKER_LIMITS).max_bytes,
                pause=self._clock.sleep,
                grown=slice_.plan.grown.get(str(self._task_id.subtopology), {}),
                processors=slice_.plan.processors.get(str(self._task_id.subtopology)),
                looked_at=share.looked_at,
                make_caller=self._setup.make_caller,
                topic_ids=slice_.plan.topic_ids,
                global_entries={topic: table.entries for topic, table in tables.items()},
                run_id=slice_.run_id,
                table_rows=clients.tables,
            ),
        )

    def _global_tables(self, slice_: Slice, admin: AdminPort) -> Mapping[str, ReadTable]:
        """Return the contents of the task's global tables, by topic."""
        used = slice_.plan.topology.subtopology(self._task_id.subtopology).globals
        defined = global_tables_of(self._topology.nodes)
        return self._setup.global_tables.read(
            self._cluster,
            admin,
            slice_,
            {topic: defined[topic].storage for topic in used},
            clock=self._clock,
            scratch=self._setup.scratch,
        )

    def _table_rows(self, slice_: Slice) -> dict[str, TableRows]:
        """Open what takes the task's rows, by table."""
        plan = slice_.plan.topology
        names = plan.subtopology(self._task_id.subtopology).tables
        if not names:
            return {}
        if self._setup.open_rows is None:
            raise ConfigError(
                f"task {self._task_id} writes to table {names[0]!r}, and it is not said where tables are",
                fix=SAY_WHERE_TABLES_ARE,
            )
        writer = RowsWriter(
            application_id=plan.application_id,
            run_id=slice_.run_id,
            task_id=str(self._task_id),
            attempt=self._number,
        )
        return {
            table.name: self._setup.open_rows(table, slice_.plan.targets[table.name], writer)
            for table in plan.tables
            if table.name in names
        }

    def _writers(self) -> tuple[WriterPort, WriterPort]:
        """Make the writers of outputs and of state; initialising the latter fences older attempts."""
        deciding = self._transactional_writer()
        if self._settings.exactly_once:
            return deciding, deciding
        outputs = self._cluster.writer(transactional_id=None, limits=self._limits)
        return self._clients.enter_context(closing(outputs)), deciding

    def _transactional_writer(self) -> WriterPort:
        writer = self._cluster.writer(
            transactional_id=f"{self._settings.application_id}-{self._task_id}",
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            limits=self._limits,
            # The last attempt must name what it fails for.
            bulk=self._settings.exactly_once and self._attempts.fruitless < self._settings.task_max_attempts,
        )
        self._clients.callback(writer.close)
        writer.init_transactions()
        return writer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A task that is ready to process.

    :param share: the work that is left to it.
    :param loop: does that work.
    :param state_files: local files of the task.
    :param opened_ms: times at which the attempt began, had fenced older ones, and had restored the stores,
        epoch milliseconds.
    :param crossing: how records cross between Python and the client.
    """

    share: TaskSlice
    loop: TaskLoop
    state_files: TaskState
    commit: TaskCommit
    opened_ms: tuple[int, int, int]
    crossing: str
    clock: Clock

    def run(self) -> TaskReport:
        """Read to the stop offsets, and finish.

        :return: the report of what was committed.
        """
        return self._kept(self.loop.run(self.share.bounds, self.share.kept_ms))

    def finish(self) -> TaskReport:
        """Make the last commit at the task's positions.

        :return: the report of what was committed.
        """
        return self._kept(self.loop.finish())

    def _kept(self, committed: OffsetMetadata) -> TaskReport:
        """Keep the local files for the next run, after the last commit."""
        ended_ms = self.clock.now_ms()
        self.state_files.keep(self.commit.changelog_ends)
        first_commit_ms = self.loop.first_commit_ms
        times = TaskTimes(*self.opened_ms, ended_ms if first_commit_ms is None else first_commit_ms, ended_ms)
        return msgspec.structs.replace(committed.report(), times=times, crossing=self.crossing)


def _partition_count(slice_: Slice, admin: AdminPort) -> Callable[[str], int]:
    """Return a function that gives the partition count by which keys of a topic are placed: for a topic that
    has grown the one of the run's plan, so that every attempt places them alike.
    """
    placed = slice_.plan.placements

    @cache
    def count(topic: str) -> int:
        return placed[topic][1] if topic in placed else admin.describe_topics([topic])[topic].partitions

    return count


def committed_progress(slice_: Slice, share: TaskSlice) -> OffsetMetadata:
    """Return the metadata that earlier attempts committed for this slice."""
    for offset in share.committed.values():
        metadata = OffsetMetadata.decode(offset.metadata)
        if metadata.run_id == slice_.run_id:
            return metadata
    return OffsetMetadata()


def already_done(before: OffsetMetadata, task_id: TaskId) -> TaskReport:
    """Return the report of a task that was found at its stop offsets, with the counters committed there."""
    report = before.report()
    return msgspec.structs.replace(report, task_id=str(task_id), outcome="already_done")


def _latest_allowed(
    plan: RunPlan, settings: ApplicationSettings, clock: Clock
) -> Callable[[str], LatestAllowed]:
    """Return a function from a topic's real name to the latest time at which its records may be dated."""
    ahead_ms = settings.max_timestamp_ahead_ms
    if ahead_ms < 0:
        return lambda topic: no_bound
    frozen_ms = plan.begun_ms if plan.kept_ms is None else plan.kept_ms[1]
    written = set(plan.topology.intermediates)

    def of_topic(topic: str) -> LatestAllowed:
        if settings.continuous or topic in written:
            return lambda: max(frozen_ms, clock.now_ms()) + ahead_ms
        return lambda: frozen_ms + ahead_ms

    return of_topic
