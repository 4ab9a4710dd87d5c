"""Makes the commits of a task, in numbered steps.

exactly_once, one transaction:

1. Emit cached results (outputs). Close the files that were written for tables, and list them.
2. Write one changelog record per changed key.
3. Last commit only: the done notification of a task that writes intermediate topics. It becomes visible with
   everything that this task has written for the slice, and only the last commit commits the stop offsets: so
   it says all that the readers of those topics wait for (:mod:`airflow_kstreams.batch.protocol.slice.stops`).
4. Unless nothing was written to changelogs, flush and read their ends. What lies below is this task's own,
   because a later attempt would fence this commit before it writes: local files are kept under these ends,
   and a later restore compares the changelogs with them.
5. Check that the commit keeps every invariant (:mod:`airflow_kstreams.batch.invariants`).
6. Add the offsets, with the metadata that carries time, counters and those ends.
7. Commit the transaction.

at_least_once: 1 outside any transaction, flush; then 2 to 7 in a transaction of its own. A crash between the
two repeats records, never skips one. The transaction is there for its fence: a zombie must not overwrite
newer state, nor take offsets back, nor move the stop of an intermediate topic that others have reached.

``loop.py`` decides when to commit; ``runner.py`` says how an attempt fences the ones before it.
"""

from __future__ import annotations

import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.invariants import TaskInvariants
from airflow_kstreams.batch.metrics import TaskMeter
from airflow_kstreams.batch.protocol.file_list import ListedFile, list_file
from airflow_kstreams.batch.protocol.logs.fence import await_leaders
from airflow_kstreams.batch.protocol.offsets.offset_metadata import NOTHING_DUE, OffsetMetadata, PackedCounts
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION, done_record
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.task.work import TaskSlice
from airflow_kstreams.streams.bounded_read import Spans
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.naming.commands import leaving_out
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, ReaderPort, TopicPartition, WriterPort
from airflow_kstreams.streams.records.dead_letter_format import Produce
from airflow_kstreams.streams.records.record_queue import UNBOUNDED
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import TableRows


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClients:
    """The clients of one attempt.

    :param outputs: writes the task's outputs.
    :param state: writes changelogs, notifications and offsets in transactions; the same writer in
        exactly_once.
    :param written: topics that take part in the transactions.
    :param tables: name of a table's sink -> what takes the task's rows for it.
    """

    admin: AdminPort
    reader: ReaderPort
    outputs: WriterPort
    state: WriterPort
    written: Collection[str]
    tables: Mapping[str, TableRows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBasis:
    """The facts that the commits of one attempt start from.

    :param slice: the slice that the task belongs to.
    :param share: the work that is left to the task.
    :param task_id: id of the task.
    :param before: the metadata that earlier attempts committed for this slice.
    :param restored: changelog records replayed by this attempt.
    :param attempt: number of the attempt.
    :param started: time at which the attempt started, monotonic seconds.
    :param changelog_ends: end of every changelog partition of the task when its stores were restored.
    :param meter: measures this attempt.
    """

    slice: Slice
    share: TaskSlice
    task_id: TaskId
    before: OffsetMetadata
    restored: int
    attempt: int
    started: float
    meter: TaskMeter
    changelog_ends: Mapping[TopicPartition, int] = field(default_factory=dict)


def write_done(writer: WriterPort, slice_: Slice, task_id: TaskId) -> None:
    """Write a task's done notification."""
    record = done_record(slice_, task_id.subtopology, task_id.group)
    writer.produce(record.topic, record.value, record.key, PARTITION, None, record.headers)


def lag(bounds: Spans, task: StreamTask) -> int | None:
    """Return the number of offsets between a task's positions and its stops; None if it has no stops.

    :param bounds: start and stop offset of each partition of the task. Its queues have a passing stop where
        an endless log ends for now.
    """
    positions = task.group.positions()
    if any(stop == UNBOUNDED for _, stop in bounds.values()):
        return None
    return sum(max(0, stop - positions[partition]) for partition, (_, stop) in bounds.items())


class TaskCommit:
    """Commits a task.

    :ivar commits: the number of commits made.
    :ivar meter: measures the attempt; the loop reports to it.
    :ivar changelog_ends: end of every changelog partition of the task, behind all that it has written.
    """

    def __init__(self, clients: TaskClients, basis: CommitBasis) -> None:
        self._clients = clients
        self._basis = basis
        self._open = False
        self.meter = basis.meter
        self._input_stops = {part.topic_partition: part.stop_offset for part in basis.slice.inputs}
        self.changelog_ends: Mapping[TopicPartition, int] = basis.changelog_ends
        self.commits = 0
        #: Files in the list of the open transaction, by table.
        self._listed: dict[str, list[FileFacts]] = {}
        #: True while it is not known whether a commit has come through.
        self._doubtful = False
        self._invariants = TaskInvariants(
            basis.slice,
            basis.share.bounds,
            task_id=str(basis.task_id),
            changelog_ends=basis.changelog_ends,
        )
        self._committed = {partition: start for partition, (start, _) in basis.share.bounds.items()}

    def begin(self) -> None:
        """Open the transaction that the next outputs belong to, unless it is open."""
        if self._clients.state is self._clients.outputs:
            self._begin()

    def commit(self, task: StreamTask, *, now_seconds: float, last: bool) -> OffsetMetadata:
        """Commit everything processed so far.

        :param last: whether the task is at its stop offsets, so that it notifies.
        :return: the counters that were committed with the offsets.
        :raises RecordError: the client or the broker refused a record for what it is.
        """
        try:
            counters = self._commit(task, now_seconds=now_seconds, last=last)
        except RecordError as error:
            if error.offset >= 0 or error.node:
                raise
            raise self._placed(error, task) from error
        self._committed = dict(task.group.positions())
        self.commits += 1
        return counters

    def _commit(self, task: StreamTask, *, now_seconds: float, last: bool) -> OffsetMetadata:
        outputs, state = self._clients.outputs, self._clients.state
        # Step 1. Emit cached results.
        self.begin()
        task.flush()
        self._list_files(state)
        if outputs is not state:
            outputs.flush()
        counters = self._counters(task, now_seconds, last=last)
        # Step 2. Write the changes of the stores.
        self._begin()
        changed = self._write_changes(task, state)
        # Step 3. Write the done notification.
        if last:
            self._notify(state, task.task_id)
        # Step 4. Read where the changelogs end.
        if changed:
            self._read_changelog_ends(state)
        # Step 5. Check the invariants.
        offsets = self._offsets(task, counters)
        self._invariants.check(task, offsets, last=last)
        # Step 6. Add the offsets.
        state.send_offsets(offsets, self._clients.reader)
        # Step 7. Commit.
        self._doubtful = True
        state.commit()
        self._open = self._doubtful = False
        self._listed = {}
        self._invariants.committed(offsets)
        return counters

    def _placed(self, error: RecordError, task: StreamTask) -> RecordError:
        """Return the error of a refused record, with the offsets that it may come from: all since the last
        commit.
        """
        positions = task.group.positions()
        spans = [
            f"{partition}@[{start}, {positions[partition]})"
            for partition, start in sorted(self._committed.items())
            if positions.get(partition, start) > start
        ]
        fix = error.fix
        if error.contents and task.holds_results(error.topic):
            fix = f"{fix}; or {leaving_out('production')}"
        return RecordError(
            f"task {task.task_id}: {error.cause}; it comes from {' or '.join(spans) or 'no record'}",
            fix=fix,
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
            node=error.node,
            contents=error.contents,
        )

    def abort(self) -> None:
        """Abort the open transaction, as far as that works; the fence of the next attempt aborts it in any
        case.
        """
        if self._open:
            self._open = False
            await_leaders(self._clients.admin, self._clients.written)
            self._clients.state.abort()
            if not self._doubtful:
                # No list can name these files.
                for name, rows in self._clients.tables.items():
                    rows.abandon(self._listed.get(name, ()))

    def _list_files(self, writer: WriterPort) -> None:
        """Close the files that were written for tables since the last commit, and list them."""
        slice_, task_id = self._basis.slice, str(self._basis.task_id)
        commit = self._basis.before.commits + self.commits + 1
        for name, rows in self._clients.tables.items():
            self._listed[name] = files = rows.take()
            for file in files:
                listed = ListedFile(slice_.run_id, task_id, commit, file)
                list_file(writer, slice_.plan.topology.application_id, name, listed)

    def _begin(self) -> None:
        if not self._open:
            self._clients.state.begin()
            self._open = True

    def _counters(self, task: StreamTask, now_seconds: float, *, last: bool) -> OffsetMetadata:
        progress = task.progress
        return OffsetMetadata(
            run_id=self._basis.slice.run_id,
            stop_set=self._basis.slice.stop_set,
            task_id=str(task.task_id),
            records_in=progress.records_in,
            records_out=progress.records_out,
            records_dropped=progress.records_dropped,
            records_dead_lettered=progress.records_dead_lettered,
            records_skipped=self._basis.before.records_skipped + task.group.skipped,
            records_misdated=self._basis.before.records_misdated + task.group.misdated,
            counts=self._packed(task, progress.counts),
            restored=self._basis.restored,
            commits=self._basis.before.commits + self.commits + 1,
            attempts=self._basis.attempt,
            seconds=round(now_seconds - self._basis.started, 3),
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            complete=last,
            metrics=self.meter.metrics(
                now_seconds, lag=lag(self._basis.share.bounds, task), calls=task.execution.call_figures()
            ),
            parked=dict(progress.parked),
            parked_due_ms=progress.parked_due_ms,
            next_due_ms=NOTHING_DUE if task.next_due_ms is None else max(0, task.next_due_ms),
        )

    def _packed(self, task: StreamTask, counts: RecordCounts | None) -> PackedCounts | None:
        if counts is None:
            return None
        plan = self._basis.slice.plan.topology.subtopology(task.task_id.subtopology)
        return PackedCounts.of(counts, plan, next(iter(task.unbalanced(counts)), None))

    def _offsets(self, task: StreamTask, counters: OffsetMetadata) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to commit. One that an operator set beyond an input's stop stays as it is, so
        that finish sees it.
        """
        progress, stops = task.progress, self._input_stops
        times, last = progress.partition_times, progress.last_records
        ends = tuple(end for _, end in sorted(self.changelog_ends.items()))
        counters = msgspec.structs.replace(counters, changelog_ends=ends)
        return {
            partition: CommittedOffset(
                position,
                counters.of_partition(
                    times[partition], last[partition], task.ruled_out(partition.topic)
                ).encode(),
            )
            for partition, position in task.group.positions().items()
            if position <= stops.get(partition, position)
        }

    def _write_changes(self, task: StreamTask, writer: WriterPort) -> bool:
        """Write the changes of the stores, and return whether there were any."""
        produce, changed = writer.produce, False
        group = task.task_id.group
        for logged in task.changes():
            written = _written(logged, produce, group, f"changelog {logged.changelog!r}")
            self._invariants.logged(logged, TopicPartition(logged.changelog, group), written)
            changed = changed or written > 0
        return changed

    def _notify(self, writer: WriterPort, task_id: TaskId) -> None:
        if self._basis.share.notify:
            write_done(writer, self._basis.slice, task_id)

    def _read_changelog_ends(self, writer: WriterPort) -> None:
        writer.flush()
        self.changelog_ends = self._clients.admin.end_offsets(
            self._basis.changelog_ends, isolation="read_uncommitted"
        )
        self._invariants.delivered(self.changelog_ends)


def _written(logged: LoggedChanges, produce: Produce, group: int, _serde_of: str) -> int:
    """Write the changes of a store, and return how many there were."""
    written = 0
    for key, value, timestamp_ms in logged.changes:
        produce(logged.changelog, value, key, group, timestamp_ms, None)
        written += 1
    return written
