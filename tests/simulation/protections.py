"""The protections of DESIGN.md sections 4 and 5, each with a way to switch it off.

A simulation that does not notice a missing protection proves nothing of it. So each is switched off in turn,
and some seed must then break a checker, or never end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from msgspec import structs

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs import log_read as logs
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.stops import frozen_at, slice_starts, to_freeze
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.intermediate_stops import frozen_upstream
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.batch.task.commit import TaskCommit
from airflow_kstreams.batch.task.loop import TaskLoop
from airflow_kstreams.batch.task.runner import TaskAttempt
from airflow_kstreams.batch.task.work import TaskAssignment, TaskSlice, task_slice
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import FaultyReader, FaultyWriter
from airflow_kstreams.testing.in_memory_kafka.writer import (
    InMemoryIdempotentWriter,
    InMemoryTransactionalWriter,
)
from tests.simulation.call_protections import CALLS
from tests.simulation.kept_protections import KEPT
from tests.simulation.landing_protections import LANDED
from tests.simulation.protection import Protection, SwitchedOff
from tests.simulation.retry_protections import RETRIES
from tests.simulation.table_protections import TABLES_KEPT


def _id_per_attempt() -> SwitchedOff:
    """Every attempt takes a transactional id of its own, so that none fences another."""
    numbers = iter(range(1 << 30))

    def writer(self: TaskAttempt) -> Any:
        made = self._cluster.writer(
            transactional_id=f"{self._settings.application_id}-{self._task_id}-{next(numbers)}",
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
        )
        self._clients.callback(made.close)
        made.init_transactions()
        return made

    return mock.patch.object(TaskAttempt, "_transactional_writer", writer)


def _offsets_before_the_fence() -> SwitchedOff:
    """An attempt reads the committed offsets, and then claims its transactional id."""
    claim = TaskAttempt._writers

    def writers(self: TaskAttempt) -> Any:
        group = self._task_id.group
        (sub,) = (s for s in self._topology.plan("sim").subtopologies if s.id == self._task_id.subtopology)
        reader = self._cluster.reader(group_id="sim", isolation="read_uncommitted")
        early = reader.committed([TopicPartition(topic, group) for topic in sub.sources])
        self._early = early  # type: ignore[attr-defined]
        return claim(self)

    def share(self: TaskAttempt, reader: Any, admin: Any) -> Any:
        early = self._early  # type: ignore[attr-defined]

        def committed(partitions: Any) -> Any:
            return {tp: early[tp] for tp in partitions if tp in early}

        with mock.patch.object(reader, "committed", committed):
            return self._work.share(self._setup, reader, admin)

    return _both(
        mock.patch.object(TaskAttempt, "_writers", writers), mock.patch.object(TaskAttempt, "_share", share)
    )


def _state_survives_an_abort() -> SwitchedOff:
    """The next attempt of a process goes on with the stores of the one that failed."""
    kept: dict[int, Any] = {}

    restore = TaskAttempt._restore

    def keeping(attempt: TaskAttempt, task: Any, *rest: Any) -> int:
        cluster = attempt._cluster
        before = kept.get(id(cluster))
        restored = restore(attempt, task, *rest)
        if before is not None and before[0] is cluster:
            for name, store in task.stores.items():
                if not isinstance(store, InMemoryKeyValueStore):
                    continue
                for attribute, left in vars(before[1].stores.get(name, store)).items():
                    if isinstance(left, dict):
                        vars(store)[attribute].update(left)
        kept[id(cluster)] = (cluster, task)
        return restored

    return mock.patch.object(TaskAttempt, "_restore", keeping)


def _idle_tasks_are_silent() -> SwitchedOff:
    """A task that reads nothing does not notify."""
    notify = TaskCommit._notify

    def only_if_busy(self: TaskCommit, writer: Any, task_id: Any) -> None:
        if any(start < stop for start, stop in self._basis.share.bounds.values()):
            notify(self, writer, task_id)

    return _both(
        mock.patch.object(TaskCommit, "_notify", only_if_busy),
        mock.patch.object(TaskAttempt, "_only_notify", lambda *_: None),
    )


def _freeze_the_stable_offset() -> SwitchedOff:
    """The stop of an intermediate partition is its last stable offset: what was written may lie behind it."""

    def frozen(session: Any, *rest: Any) -> Any:
        end_offsets = session.admin.end_offsets

        def stable(partitions: Any, *, isolation: Any) -> Any:
            return end_offsets(partitions, isolation="read_committed")

        with mock.patch.object(session.admin, "end_offsets", stable):
            return frozen_upstream(session, *rest)

    return mock.patch("airflow_kstreams.batch.run.coordinator.frozen_upstream", frozen)


def _freeze_before_looking() -> SwitchedOff:
    """The stop of an intermediate partition is where it ended before its writers were launched."""

    def early(slice_: Any, ends: Any, epochs: Any) -> Any:
        starts = slice_starts(slice_)
        return frozen_at(slice_, {tp: starts[tp] for tp in ends}, epochs)

    return mock.patch("airflow_kstreams.batch.run.intermediate_stops.frozen_at", early)


def _intermediate_stops_move() -> SwitchedOff:
    """A coordinator that finds the stops of intermediate topics frozen asks for high watermarks anew."""

    def anew(folded: Any, *rest: Any) -> Any:
        return to_freeze(dataclasses.replace(folded, intermediate_stops={}), *rest)

    return mock.patch("airflow_kstreams.batch.run.intermediate_stops.to_freeze", anew)


def _lease_is_not_looked_at() -> SwitchedOff:
    """A task goes on whatever the last lease says."""
    return mock.patch.object(TaskAssignment, "refuse_unless_in_force", lambda *_, **__: None)


def _stops_move() -> SwitchedOff:
    """A begin that finds the run under way freezes new stop offsets."""
    read = CoordinatorSession.read_fenced

    def refreshed(self: CoordinatorSession, plan: Any) -> Any:
        folded = read(self, plan)
        return dataclasses.replace(folded, state=RunState.FINISHED) if folded.slice is not None else folded

    return mock.patch.object(CoordinatorSession, "read_fenced", refreshed)


def _lease_is_ignored() -> SwitchedOff:
    """The lease of another owner stops nobody."""
    return mock.patch.object(LeaseObservation, "is_free", lambda *_: True)


def _suspects_go_on() -> SwitchedOff:
    """A writer that may have repeated a request begins another transaction."""
    return mock.patch.object(InMemoryTransactionalWriter, "suspect", property(lambda self: False))


def _finish_anywhere() -> SwitchedOff:
    """Finish does not compare committed offsets with stops, nor ask for notifications."""
    return _both(
        mock.patch("airflow_kstreams.batch.run.finish._refuse_unfinished", lambda *_: None),
        mock.patch(
            "airflow_kstreams.batch.run.finish.all_stops",
            lambda folded, slice_: {part.topic_partition: part.stop_offset for part in slice_.inputs},
        ),
    )


def _ledger_is_not_asked() -> SwitchedOff:
    """Begin does not look whether the run is finished already."""
    return mock.patch.object(Ledger, "find", lambda *_: None)


def _changelog_apart() -> SwitchedOff:
    """Changelog records do not belong to the transaction of the offsets."""

    def write_changes(self: TaskCommit, task: Any, writer: Any) -> None:
        apart = InMemoryIdempotentWriter(_innermost(writer)._broker, timeout_seconds=30)
        for changelog, _, _, changes in task.changes():
            for key, value, timestamp_ms in changes:
                apart.produce(changelog, value, key, task.task_id.group, timestamp_ms, None)
        apart.flush()

    return mock.patch.object(TaskCommit, "_write_changes", write_changes)


def _notifications_apart() -> SwitchedOff:
    """Done notifications do not belong to the transaction of the offsets."""
    notify = TaskCommit._notify

    def notify_apart(self: TaskCommit, writer: Any, task_id: Any) -> None:
        writer.flush()
        apart = InMemoryIdempotentWriter(_innermost(writer)._broker, timeout_seconds=30)
        notify(self, apart, task_id)
        apart.flush()

    return mock.patch.object(TaskCommit, "_notify", notify_apart)


def _offsets_apart() -> SwitchedOff:
    """Offsets are committed beside the transaction of the outputs."""

    def send_offsets(self: FaultyWriter, offsets: Any, reader: FaultyReader) -> None:
        reader.inner.commit(offsets)

    return mock.patch.object(FaultyWriter, "send_offsets", send_offsets)


def _decide_before_claiming() -> SwitchedOff:
    """A coordinator reads, decides, and claims its id only to write."""
    claim, write = CoordinatorSession.claim, CoordinatorSession.write

    def claim_and_write(self: CoordinatorSession, *arguments: Any, **named: Any) -> Any:
        claim(self)
        # Where to write is looked up, what to write was decided before.
        found = self.read_ledger()
        self._checkpoint, self._next_offset = found.checkpoint, found.next_offset
        return write(self, *arguments, **named)

    return _both(
        mock.patch.object(CoordinatorSession, "claim", lambda self: None),
        mock.patch.object(CoordinatorSession, "claimed", property(lambda self: False)),
        mock.patch.object(CoordinatorSession, "write", claim_and_write),
    )


def _stop_at_the_high_watermark() -> SwitchedOff:
    """Stop offsets are high watermarks, open transactions or not."""

    def log_bounds(admin: Any, partitions: Any, **_: Any) -> Any:
        starts = admin.start_offsets(partitions)
        high = admin.end_offsets(partitions, isolation="read_uncommitted")
        return {tp: logs.LogBounds(start=starts[tp], stable=high[tp], high=high[tp]) for tp in partitions}

    return mock.patch("airflow_kstreams.batch.run.begin.freeze.log_bounds", log_bounds)


def _intervals_do_not_cut() -> SwitchedOff:
    """A run that goes by its data interval stops at the end of the log, whatever lies past that interval."""

    def uncut(admin: Any, reader: Any, inputs: Any, interval: Any, *, clock: Any, ahead_ms: int) -> Any:
        return tuple(inputs), ()

    return mock.patch("airflow_kstreams.batch.run.begin.freeze.cut_by_time", uncut)


def _cut_where_the_broker_points() -> SwitchedOff:
    """An interval cuts where ``offsets_for_times`` points, be it an aborted record or a marker."""

    def cut(admin: Any, reader: Any, inputs: Any, interval: Any, *, clock: Any, ahead_ms: int) -> Any:
        hints = admin.offsets_for_times({part.topic_partition: interval.end_ms for part in inputs})
        cuts = [
            min(part.stop_offset, max(part.start_offset, hints.get(part.topic_partition, part.stop_offset)))
            for part in inputs
        ]
        return tuple(structs.replace(part, stop_offset=at) for part, at in zip(inputs, cuts, strict=True)), ()

    return mock.patch("airflow_kstreams.batch.run.begin.freeze.cut_by_time", cut)


def _others_are_dropped() -> SwitchedOff:
    """A begin that finds another run's unfinished slice drops it, whatever contradicts that."""
    resume = Coordinator._begin_claimed

    def begin(self: Coordinator, caller: Any, *rest: Any) -> Any:
        read = self.session.read_fenced

        def other_is_over(plan: Any) -> Any:
            folded = read(plan)
            other = folded.slice is not None and folded.slice.run_id != caller.run_id
            return dataclasses.replace(folded, state=RunState.FINISHED) if other else folded

        with mock.patch.object(self.session, "read_fenced", other_is_over):
            return resume(self, caller, *rest)

    return _both(
        mock.patch.object(Coordinator, "_begin_claimed", begin),
        mock.patch("airflow_kstreams.batch.evidence.run_facts.find_contradictions", lambda *_: []),
        mock.patch("airflow_kstreams.batch.run.begin.freeze.find_rolled_back", lambda *_: []),
    )


def _read_uncommitted() -> SwitchedOff:
    """Readers see what was aborted."""
    reader = InMemoryKafka.reader

    def uncommitted(self: InMemoryKafka, *, group_id: str, **_: Any) -> Any:
        return reader(self, group_id=group_id, isolation="read_uncommitted")

    return mock.patch.object(InMemoryKafka, "reader", uncommitted)


def _stops_before_the_last_commit() -> SwitchedOff:
    """A task at its stops commits them, and then makes its last commit."""
    process = TaskLoop._process

    def committing(self: TaskLoop) -> bool:
        more = process(self)
        if self._task.execution.complete and not more:
            self._commit.begin()
            self._commit.commit(self._task, now_seconds=self._clock.monotonic_seconds(), last=False)
        return more

    return mock.patch.object(TaskLoop, "_process", committing)


def _nothing_is_remembered() -> SwitchedOff:
    """Where committed offsets expired, a run starts at the beginning of the log."""

    def remembered(self: PriorRuns, partition: TopicPartition) -> int | None:
        return self.committed[partition].offset if partition in self.committed else None

    return _both(
        mock.patch.object(PriorRuns, "remembered", remembered),
        mock.patch.object(PriorRuns, "was_read", _never),
    )


def _one_more_than_processed() -> SwitchedOff:
    """A task commits the offset behind the record that it is about to process."""
    offsets_of = TaskCommit._offsets

    def one_more(self: TaskCommit, task: Any, counters: Any) -> Any:
        stops = task.group.stops()
        return {
            partition: committed._replace(
                offset=min(committed.offset + 1, max(stops[partition], committed.offset))
            )
            for partition, committed in offsets_of(self, task, counters).items()
        }

    return mock.patch.object(TaskCommit, "_offsets", one_more)


def _restore_ends_early() -> SwitchedOff:
    """A task restores all but the last record of its changelog, which a marker follows."""

    def early(reader: Any, spans: Any, **named: Any) -> Any:
        return BoundedRead(
            reader, {p: (start, max(start, end - 2)) for p, (start, end) in spans.items()}, **named
        )

    return mock.patch("airflow_kstreams.batch.task.restore.BoundedRead", early)


def _last_change_is_left_out() -> SwitchedOff:
    """A commit writes all changes of a store but one."""

    def write_changes(self: TaskCommit, task: Any, writer: Any) -> None:
        for changelog, _, _, changes in task.changes():
            for key, value, timestamp_ms in list(changes)[:-1]:
                writer.produce(changelog, value, key, task.task_id.group, timestamp_ms, None)

    return mock.patch.object(TaskCommit, "_write_changes", write_changes)


def _offsets_before_outputs() -> SwitchedOff:
    """In at_least_once, offsets are committed although outputs may still be on their way."""
    return mock.patch.object(FaultyWriter, "flush", lambda self: None)


def _starts_at_the_beginning() -> SwitchedOff:
    """A slice starts where the log does, whatever was committed."""
    return mock.patch("airflow_kstreams.batch.run.begin.freeze.start_of", lambda tp, log_of, *_: log_of.start)


def _one_past_the_stop() -> SwitchedOff:
    """A task reads up to its stop offset and the record at it, if there is one."""

    def past(slice_: Any, shipped: Any, reader: Any, admin: Any) -> TaskSlice:
        share = task_slice(slice_, shipped, reader, admin)
        ends = admin.end_offsets(sorted(share.bounds), isolation="read_committed")
        bounds = {
            tp: (start, max(stop, min(stop + 1, ends[tp]))) for tp, (start, stop) in share.bounds.items()
        }
        return dataclasses.replace(share, bounds=bounds)

    return mock.patch("airflow_kstreams.batch.task.work.task_slice", past)


def _attempts_begin_at_the_start() -> SwitchedOff:
    """An attempt reads its slice from the start, whatever an earlier one has committed of it."""

    def whole(slice_: Any, shipped: Any, reader: Any, admin: Any) -> TaskSlice:
        share = task_slice(slice_, shipped, reader, admin)
        starts = slice_starts(slice_)
        bounds = {tp: (starts.get(tp, start), stop) for tp, (start, stop) in share.bounds.items()}
        return dataclasses.replace(share, bounds=bounds)

    return mock.patch("airflow_kstreams.batch.task.work.task_slice", whole)


def _one_partition_is_left_out() -> SwitchedOff:
    """A commit of a task of several partitions leaves out one of them, but for the last commit."""
    offsets_of = TaskCommit._offsets

    def fewer(self: TaskCommit, task: Any, counters: Any) -> Any:
        offsets = offsets_of(self, task, counters)
        return offsets if task.execution.complete else dict(sorted(offsets.items())[1:] or offsets.items())

    return mock.patch.object(TaskCommit, "_offsets", fewer)


def _marker_before_summary() -> SwitchedOff:
    """Finish writes the marker, and then the summary, in two transactions."""
    write = CoordinatorSession.write

    def apart(self: CoordinatorSession, records: Any, *, ledger: Any = None, **named: Any) -> Any:
        if ledger is None or ledger.finished is None:
            return write(self, records, ledger=ledger, **named)
        write(self, records, offsets=named.get("offsets"))
        return write(self, (), ledger=ledger, lease=named.get("lease"))

    return mock.patch.object(CoordinatorSession, "write", apart)


def _never(*_: Any) -> bool:
    return False


@contextmanager
def _both(*patches: SwitchedOff) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def _innermost(writer: Any) -> Any:
    return writer.inner if isinstance(writer, FaultyWriter) else writer


PROTECTIONS: dict[str, Protection] = {
    protection.name: protection
    for protection in (
        *KEPT,
        *CALLS,
        *RETRIES,
        *TABLES_KEPT,
        *LANDED,
        Protection(name="one transactional id per task", section="5.1", off=_id_per_attempt),
        Protection(name="offsets are read after fencing", section="5.2", off=_offsets_before_the_fence),
        Protection(name="state is dropped on abort", section="5.5", off=_state_survives_an_abort),
        Protection(name="idle tasks notify", section="4", off=_idle_tasks_are_silent, first=5),
        Protection(
            name="freeze the high watermark",
            section="4",
            off=_freeze_the_stable_offset,
            scene="test_intermediate_stops.py",
        ),
        Protection(name="freeze after the notifications", section="4", off=_freeze_before_looking),
        Protection(name="intermediate stops are frozen", section="4", off=_intermediate_stops_move, first=12),
        Protection(name="stops are frozen", section="4 begin 2", off=_stops_move),
        Protection(name="live leases refuse", section="4 begin 1", off=_lease_is_ignored),
        Protection(name="suspect writers are dropped", section="5.6", off=_suspects_go_on, first=730),
        Protection(name="finish only at the stops", section="4 finish", off=_finish_anywhere),
        Protection(
            name="last commit covers the stops",
            section="4 task",
            off=_stops_before_the_last_commit,
            scene="test_closing_tasks.py",
        ),
        Protection(name="finished runs stay finished", section="4 begin 0", off=_ledger_is_not_asked),
        Protection(name="changelog in the transaction", section="5.4", off=_changelog_apart),
        Protection(name="offsets in the transaction", section="5.4", off=_offsets_apart, first=12),
        Protection(
            name="tasks look at the lease",
            section="5.1",
            off=_lease_is_not_looked_at,
            scene="test_late_tasks.py",
        ),
        Protection(
            name="notifications in the transaction",
            section="4 task",
            off=_notifications_apart,
            scene="test_closing_tasks.py",
        ),
        Protection(name="decide after claiming", section="4 begin", off=_decide_before_claiming, first=9),
        Protection(name="stop at the stable offset", section="4 stop", off=_stop_at_the_high_watermark),
        Protection(name="unfinished runs come first", section="4 begin 0", off=_others_are_dropped),
        Protection(name="ledger for expired offsets", section="4 start", off=_nothing_is_remembered, first=7),
        Protection(name="read committed", section="4 stop", off=_read_uncommitted),
        Protection(name="intervals cut the log", section="8", off=_intervals_do_not_cut),
        Protection(
            name="committed records cut the log", section="8", off=_cut_where_the_broker_points, first=33
        ),
        Protection(name="offsets of what was processed", section="5.4", off=_one_more_than_processed),
        Protection(name="restore to the changelog's end", section="5.3", off=_restore_ends_early),
        Protection(name="every change in the changelog", section="5.4", off=_last_change_is_left_out),
        Protection(name="outputs before offsets", section="5.8", off=_offsets_before_outputs, first=16),
        Protection(
            name="start where offsets were committed",
            section="4 start",
            off=_starts_at_the_beginning,
        ),
        Protection(name="stop offsets are not read", section="4 stop", off=_one_past_the_stop, first=5),
        Protection(name="resume at the committed offset", section="5.2", off=_attempts_begin_at_the_start),
        Protection(
            name="every partition in a commit", section="5.4", off=_one_partition_is_left_out, first=7
        ),
        Protection(name="marker and summary together", section="4 finish", off=_marker_before_summary),
    )
}
