"""Step 5 of the task protocol: fetch, process and commit until every stop offset is reached."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.batch.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.task_commit import TaskClients, TaskCommit
from airflow_kstreams.streams.errors import ConfigError, StopOffsetUnreachableError, TransactionAbortedError
from airflow_kstreams.streams.ports import Clock, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings

_FETCH_RECORDS = 10_000
_FETCH_SECONDS = 0.1
#: Records processed between two looks at the clock; fewer when user functions are slow, so that commits come
#: in time.
_CHUNK_FIRST, _CHUNK_MAX = 10, 1_000
#: A transaction older than this share of its timeout is given up.
_TRANSACTION_SHARE = 0.9
_CHUNK_SECONDS_HIGH, _CHUNK_SECONDS_LOW = 0.2, 0.05


class TaskLoop:
    """Runs a restored task to its stop offsets.

    :param task: restored and open.
    :param clients: of the attempt.
    :param commit: commits the task.
    :param patient: whether a transaction that grows too old is blamed on the machine or the broker (a pause,
        a slow answer), so that another attempt is made; else on the task's own functions.
    :ivar grew_old: whether that happened.
    """

    def __init__(
        self,
        task: StreamTask,
        clients: TaskClients,
        commit: TaskCommit,
        *,
        settings: ApplicationSettings,
        clock: Clock,
        patient: bool = False,
    ) -> None:
        self._task = task
        self._clients = clients
        self._commit = commit
        self._settings = settings
        self._clock = clock
        self._patient = patient
        self.grew_old = False
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._chunk = _CHUNK_FIRST
        self._committed_at = self._progressed_at = clock.monotonic_seconds()
        #: Since when there may be something to commit; the broker counts from the first write.
        self._open_since: float | None = None

    def run(self, bounds: Mapping[TopicPartition, tuple[int, int]], *, run_id: str) -> OffsetMetadata:
        """Read every partition from its position to its stop offset; the last commit is made, too.

        :return: what was committed with the last offsets.
        :raises StopOffsetUnreachableError: no progress for ``run.stall.timeout.ms``.
        """
        self._assigned = set(self._task.group.unfinished())
        if self._assigned:
            self._clients.reader.assign({p: bounds[p][0] for p in sorted(self._assigned)})
        while not self._task.complete:
            self._fetch()
            while self._process():
                pass
            self._balance()
            if self._stalled():
                raise self._unreachable(run_id)
        self._commit.begin()
        self._task.close()
        return self._commit.commit(self._task, now_seconds=self._clock.monotonic_seconds(), last=True)

    def _fetch(self) -> None:
        fetched = self._clients.reader.poll(max_records=_FETCH_RECORDS, timeout_seconds=_FETCH_SECONDS)
        for partition, records in fetched.records.items():
            self._task.add(partition, records)
        for partition, end in fetched.ends.items():
            self._task.group.reached(partition, end)

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
        """Process one chunk, commit if due, and say whether there may be more to process right now."""
        self._commit.begin()
        before = self._clock.monotonic_seconds()
        punctuated = self._task.punctuate()
        count = self._task.process(self._chunk)
        now = self._clock.monotonic_seconds()
        if self._open_since is None and (count or punctuated):
            self._open_since = before
        if count:
            self._progressed_at = now
            self._chunk = next_chunk(self._chunk, now - before)
        if self._task.complete:
            # Only the last commit may cover the stop offsets: a task that dies behind another one would count
            # as done, and what its processors give in close would never come.
            return False
        interval_elapsed = (now - self._committed_at) * 1000 >= self._settings.commit_interval_ms
        if self._task.commit_due(interval_elapsed=interval_elapsed, processed=count > 0):
            self._commit.commit(self._task, now_seconds=now, last=False)
            self._committed_at = self._clock.monotonic_seconds()
            self._open_since = None
            self._refuse_suspect()
        else:
            self._refuse_long_transaction(now)
        return count > 0

    def _refuse_suspect(self) -> None:
        """Leave a writer whose commit was suspicious: a repeated request could hit a later transaction."""
        if self._clients.state.suspect:
            raise TransactionAbortedError(
                f"task {self._task.task_id}: a commit was slow or repeated, its producer is not used again",
                fix="nothing: the task resumes from its committed offsets with a new producer",
                task_id=str(self._task.task_id),
            )

    def _balance(self) -> None:
        """Pause partitions at their stop, and those ahead with a full queue.

        That bounds memory and saves fetching what belongs to the next run; it never changes the order.
        """
        group = self._task.group
        idle = self._assigned - set(group.unfinished()) | set(group.ahead())
        if idle - self._paused:
            self._clients.reader.pause(idle - self._paused)
        if self._paused - idle:
            self._clients.reader.resume(self._paused - idle)
        self._paused = idle

    def _stalled(self) -> bool:
        waited_ms = (self._clock.monotonic_seconds() - self._progressed_at) * 1000
        return waited_ms > self._settings.run_stall_timeout_ms

    def _unreachable(self, run_id: str) -> StopOffsetUnreachableError:
        group = self._task.group
        waiting = group.unfinished()
        stable = self._clients.admin.end_offsets(waiting, isolation="read_committed")
        high = self._clients.admin.end_offsets(waiting, isolation="read_uncommitted")
        stops, positions = group.stops(), group.positions()
        details = "; ".join(
            f"{p}: position {positions[p]}, last stable offset {stable[p]}, high watermark {high[p]}, "
            f"stop {stops[p]}"
            for p in waiting
        )
        return StopOffsetUnreachableError(
            f"task {self._task.task_id} of run {run_id!r} got no record for "
            f"{self._settings.run_stall_timeout_ms} ms: {details}",
            fix="check the brokers that lead these partitions and look for hanging transactions "
            "(kafka-transactions.sh --bootstrap-server <broker> find-hanging), then retry the run",
            run_id=run_id,
        )


def next_chunk(chunk: int, seconds: float) -> int:
    """Return how many records to process next, after a chunk that took so long."""
    if seconds > _CHUNK_SECONDS_HIGH:
        return max(1, chunk // 4)
    if seconds < _CHUNK_SECONDS_LOW:
        return min(_CHUNK_MAX, chunk * 2)
    return chunk
