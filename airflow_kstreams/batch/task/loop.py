"""Performs step 5 of the task protocol: fetches, processes and commits up to every stop offset.

It goes in steps, so that several tasks can take turns in a thread. The
:class:`~airflow_kstreams.batch.task.work.End` decides where the reading ends, and what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.task.commit import TaskClients, TaskCommit, lag
from airflow_kstreams.batch.task.read_failures import TOPIC_LOST, ReadFailures
from airflow_kstreams.batch.task.work import End
from airflow_kstreams.streams.bounded_read import Spans
from airflow_kstreams.streams.errors import (
    CallsStuckError,
    ConfigError,
    InvariantError,
    KafkaClientError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.ports import Clock, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings

#: Partition -> the interval in which its records are processed, epoch milliseconds.
Intervals = Mapping[TopicPartition, tuple[int, int]]

#: Records per fetch: few enough that they stay in the processor's cache while they are looked at again and
#: again, and that Python's collector, which counts objects that are still alive, does not start.
#: Python's collector, which counts records that are not dropped yet, is not woken by it.
_FETCH_RECORDS = 2_000
#: Longest wait for records when a task has nothing else to do.
FETCH_SECONDS = 0.1
#: Records processed between two looks at the clock; fewer when user functions are slow, so that commits come
#: in time.
_CHUNK_FIRST, _CHUNK_MAX = 10, 2_000
#: A transaction older than this share of its timeout is given up.
_TRANSACTION_SHARE = 0.9
#: A transaction older than this share is committed where all records that come are left out, or while stream
#: time advances.
_SKIPPING_SHARE = 0.25
_CHUNK_SECONDS_HIGH, _CHUNK_SECONDS_LOW = 0.2, 0.05
#: How often a task that gets no record looks whether those that it waits for still exist, in seconds.
_LOOK_SECONDS = 5.0
#: Shortest time between two looks at the topics before commits, in seconds, as each look is a request; the
#: last commit always looks.
_TOPIC_LOOK_SECONDS = 1.0


class TaskLoop:
    """Runs a restored task: :meth:`open`, then :meth:`run` to its stop offsets, or :meth:`start` and steps.

    :param task: the task, restored and not open yet.
    :param clients: clients of the attempt.
    :param commit: commits the task.
    :param failures: explains why the task cannot read on.
    :param end: decides at which offsets the reading ends.
    :ivar grew_old: whether a transaction was given up because it grew too old.
    """

    def __init__(
        self,
        task: StreamTask,
        clients: TaskClients,
        commit: TaskCommit,
        failures: ReadFailures,
        *,
        end: End,
        settings: ApplicationSettings,
        clock: Clock,
    ) -> None:
        self._task = task
        self._clients = clients
        self._commit = commit
        self._meter = commit.meter
        self._failures = failures
        self._end = end
        self._settings = settings
        self._clock = clock
        self._patient = False
        self.grew_old = False
        self._bounds: Spans = {}
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._chunk = _CHUNK_FIRST
        #: Time at which the first commit began, epoch milliseconds; None before it.
        self.first_commit_ms: int | None = None
        self._committed_at = self._progressed_at = self._looked_at = clock.monotonic_seconds()
        self._topics_seen_at = self._looked_at
        #: Offset to read next, by partition: the task may have processed less.
        self._positions: dict[TopicPartition, int] = {}
        #: Time since when a commit may have something to write; the broker counts from the first write.
        self._open_since: float | None = None
        #: Whether the last turn ended before all records that may be processed were.
        self._unfinished_turn = False
        #: Whether records may be read that are left out.
        self._skipping = False

    def run(self, bounds: Spans, kept_ms: Intervals | None = None) -> OffsetMetadata:
        """Read every partition from its position to its stop offset; the last commit is made, too.

        :return: the counters that were committed with the last offsets.
        :raises StopOffsetUnreachableError: no progress for ``run.stall.timeout.ms``.
        :raises DataLossError: records that are still to be read are gone.
        """
        self.start(bounds, kept_ms)
        while not self._end.at_stop():
            self.step()
            self._refuse_stall()
        return self.finish()

    def open(self, *, patient: bool = False) -> None:
        """Start the processors. What they forward then belongs to the first transaction, and opens it.

        :param patient: whether a transaction that grows too old is blamed on the machine or the broker (a
            pause, a slow answer), so that another attempt is made; else on the task's own functions.
        :raises RecordError: a processor's init failed.
        """
        self._patient = patient
        before = self._clock.monotonic_seconds()
        self._commit.begin()
        if self._task.open():
            self._open_since = before
        self._committed_at = self._progressed_at = self._looked_at = self._clock.monotonic_seconds()
        self._meter.opened(self._committed_at)

    def start(self, bounds: Spans, kept_ms: Intervals | None = None) -> None:
        """Begin to read.

        :param bounds: start and stop offset of each partition; reading begins at the start.
        :param kept_ms: partition -> the interval outside of which its records are left out, epoch
            milliseconds.
        """
        self._bounds = bounds
        self._assigned = set(self._task.group.unfinished())
        self._positions = {p: bounds[p][0] for p in self._assigned}
        for partition, interval_ms in (kept_ms or {}).items():
            self._task.group.keep_only(partition, interval_ms)
            self._skipping = True
        if self._assigned:
            self._clients.reader.assign({p: bounds[p][0] for p in sorted(self._assigned)})

    def step(self, wait_seconds: float = FETCH_SECONDS) -> bool:
        """Fetch once, unless fetched records are left to process, and process for one turn at most.

        :param wait_seconds: longest wait of the fetch, if no record is there yet.
        :return: whether any record was processed.
        """
        if not self._unfinished_turn:
            # While calls are in flight, the task waits for them.
            wait_seconds = 0.0 if self._task.execution.in_flight else wait_seconds
            if self._task.execution.at_capacity:
                self._clock.sleep(wait_seconds)  # the next parked record is not due yet
            else:
                self._fetch(wait_seconds)
        turn_ends = self._clock.monotonic_seconds() + self._end.turn_seconds
        progressed = self._unfinished_turn = False
        while not self._unfinished_turn and self._process():
            progressed = True
            if self._task.execution.wants_records:
                break
            self._unfinished_turn = self._clock.monotonic_seconds() >= turn_ends
        self._balance()
        return progressed

    def commit(self) -> None:
        """Commit now, if there is anything to commit."""
        self._task.settle()
        if self._end.anything_to_commit(opened=self._open_since is not None):
            self._commit_now(self._clock.monotonic_seconds())

    def finish(self) -> OffsetMetadata:
        """Stop the task, bring stream time to the run's moment, close the processors, make the last commit.

        :return: the counters that were committed with the last offsets; its metrics include this commit.
        """
        self._commit.begin()
        self._task.stop()
        self._end_of_run()
        self._task.close_processors()
        self._refuse_replaced_topics(last=True)
        committed = self._commit_task(self._clock.monotonic_seconds(), last=True)
        metrics = self._meter.metrics(
            self._clock.monotonic_seconds(),
            lag=lag(self._bounds, self._task),
            calls=self._task.execution.call_figures(),
        )
        return msgspec.structs.replace(committed, metrics=metrics)

    def _end_of_run(self) -> None:
        """Bring stream time to the run's moment, in as many transactions as it needs.

        No such commit says that the task is done: :mod:`airflow_kstreams.batch.protocol.slice.slice`.
        """
        if self._open_since is None:
            self._open_since = self._clock.monotonic_seconds()
        for _ in self._end.end_of_run():
            now = self._clock.monotonic_seconds()
            if self._commit_due_between_moments(now):
                self._commit_now(now)
                self._commit.begin()
                self._open_since = self._clock.monotonic_seconds()
            else:
                self._refuse_long_transaction(now)

    def _commit_due_between_moments(self, now: float) -> bool:
        """Return whether to commit between two moments."""
        elapsed = (now - self._committed_at) * 1000 >= self._settings.commit_interval_ms
        return elapsed or self._task.execution.commit_requested or self._grows_old(now)

    def _grows_old(self, now: float) -> bool:
        if self._open_since is None:
            return False
        return (now - self._open_since) * 1000 > _SKIPPING_SHARE * self._settings.transaction_timeout_ms

    def _fetch(self, wait_seconds: float) -> None:
        try:
            fetched = self._clients.reader.poll(max_records=_FETCH_RECORDS, timeout_seconds=wait_seconds)
        except KafkaClientError as error:
            raise self._failures.explain(error, self._end.unread(self._positions)) from error
        self._failures.refuse_rewritten(fetched.records, self._task.group.stops())
        self._end.take(fetched)
        if self._skipping and fetched.records:
            self._progressed_at = self._clock.monotonic_seconds()
        for partition, records in fetched.records.items():
            self._positions[partition] = records[-1].offset() + 1
        for partition, end in fetched.ends.items():
            self._positions[partition] = max(end, self._positions[partition])

    def _refuse_long_transaction(self, now: float) -> None:
        """Fail with the remedy before the broker aborts the transaction, which would look like fencing."""
        if self._open_since is None:
            return
        limit_ms = self._settings.transaction_timeout_ms
        open_ms = (now - self._open_since) * 1000
        if not self._settings.exactly_once or open_ms <= _TRANSACTION_SHARE * limit_ms:
            return
        cause = (
            f"task {self._task.task_id}: no commit point for {open_ms / 1000:.0f} s, and the broker aborts "
            f"its transaction after {limit_ms / 1000:.0f} s (transaction.timeout.ms)"
        )
        fix = (
            "set commit.every.records lower, so that the task's functions need less time between two commit "
            "points, or transaction.timeout.ms higher, then retry the run: its slice is kept"
        )
        self.grew_old = True
        if self._patient:
            raise TransactionAbortedError(cause, fix=fix, task_id=str(self._task.task_id))
        raise ConfigError(cause, fix=fix)

    def _process(self) -> bool:
        """Process one chunk, commit if due, and return whether more may be processed right now."""
        self._commit.begin()
        before = self._clock.monotonic_seconds()
        punctuated = self._task.punctuate()
        started = self._clock.monotonic_seconds() if punctuated else before
        count = self._task.process(self._chunk)
        now = self._clock.monotonic_seconds()
        if self._open_since is None and (count or punctuated):
            self._open_since = before
        if count:
            self._chunk = next_chunk(self._chunk, now - before)
            self._meter.processed(count, now - started)
        if count or self._task.execution.calls_ended():
            self._progressed_at = now
        if self._end.at_stop():
            return False
        if self._commit_due(now, processed=count > 0) or self._only_skips(now, count):
            self._commit_now(now)
        else:
            self._refuse_long_transaction(now)
        return count > 0

    def _commit_due(self, now: float, *, processed: bool) -> bool:
        since_seconds = now - self._committed_at
        return self._end.commit_due(
            processed=processed,
            interval_elapsed=since_seconds * 1000 >= self._settings.commit_interval_ms,
            since_seconds=since_seconds,
            opened=self._open_since is not None,
        )

    def _only_skips(self, now: float, count: int) -> bool:
        """Whether a transaction grows old while records are read that are all left out: they bring no commit
        point, however many they are.
        """
        return self._skipping and not count and self._task.execution.may_commit and self._grows_old(now)

    def _commit_now(self, now: float) -> None:
        self._refuse_replaced_topics(last=False)
        self._commit_task(now, last=False)
        self._committed_at = self._clock.monotonic_seconds()
        self._open_since = None
        self._refuse_suspect()
        self._end.committed()

    def _commit_task(self, now: float, *, last: bool) -> OffsetMetadata:
        began = self._clock.monotonic_seconds()
        if self.first_commit_ms is None:
            self.first_commit_ms = self._clock.now_ms()
        try:
            committed = self._commit.commit(self._task, now_seconds=now, last=last)
        except KafkaClientError as error:
            if error.kafka_code in TOPIC_LOST:
                self._refuse_replaced_topics(last=True)
            raise
        except InvariantError:
            self._refuse_replaced_topics(last=True)  # then it is no mistake of the engine
            raise
        self._meter.committed(self._clock.monotonic_seconds() - began)
        return committed

    def _refuse_suspect(self) -> None:
        """Raise if the writer's commit was suspicious: a repeated request could hit a later transaction."""
        if self._clients.state.suspect:
            raise TransactionAbortedError(
                f"task {self._task.task_id}: a commit was slow or repeated, so its producer is not used "
                "again",
                fix="nothing: the task resumes from its committed offsets with a new producer",
                task_id=str(self._task.task_id),
            )

    def _balance(self) -> None:
        """Pause partitions at their stop, and those far ahead of another one.

        That bounds memory and saves fetching what belongs to the next run; it never changes the order.
        """
        idle = set(self._end.needless(self._assigned, self._paused))
        if idle - self._paused:
            self._clients.reader.pause(idle - self._paused)
        if self._paused - idle:
            self._clients.reader.resume(self._paused - idle)
        self._paused = idle

    def _refuse_replaced_topics(self, *, last: bool) -> None:
        """Commit no record that may come from a topic created again meanwhile, or whose state was kept in
        one: the client knows a topic by its name only. Records fetched before the look are the old topic's if
        the look finds that topic.
        """
        now = self._clock.monotonic_seconds()
        if last or now - self._topics_seen_at >= _TOPIC_LOOK_SECONDS:
            sources = {partition.topic for partition in self._assigned}
            self._failures.refuse_replaced(sources | {*self._task.changelogs.values()})
            self._topics_seen_at = now

    def _refuse_stall(self) -> None:
        """Check, now and then while no records come, that they still can; fail after the stall timeout."""
        now = self._clock.monotonic_seconds()
        if now - max(self._progressed_at, self._looked_at) > _LOOK_SECONDS:
            self._failures.refuse_loss(self._end.unread(self._positions))
            self._looked_at = now
        if (now - self._progressed_at) * 1000 > self._settings.run_stall_timeout_ms:
            if self._task.execution.in_flight:
                raise self._stuck_calls()
            raise self._failures.unreachable(self._end.unread(self._positions))

    def _stuck_calls(self) -> CallsStuckError:
        return CallsStuckError(
            f"task {self._task.task_id} released no record, and no call of it ended, for "
            f"{self._settings.run_stall_timeout_ms} ms (run.stall.timeout.ms): "
            f"{self._task.execution.waiting_for()}",
            fix="see whether the service answers that the functions call, then retry the run",
            task_id=str(self._task.task_id),
        )


def next_chunk(chunk: int, seconds: float) -> int:
    """Return the number of records to process next, after a chunk that took ``seconds``."""
    if seconds > _CHUNK_SECONDS_HIGH:
        return max(1, chunk // 4)
    if seconds < _CHUNK_SECONDS_LOW:
        return min(_CHUNK_MAX, chunk * 2)
    return chunk
