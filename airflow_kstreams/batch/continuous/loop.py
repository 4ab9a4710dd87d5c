"""Step 5 of the task protocol in continuous mode: no stop offset, and other tasks wait for their turn.

What differs from a batch:

- A partition whose end was reached counts as finished until its next record comes, so that a quiet input
  keeps no other one waiting (``partition_group.py``).
- Commits come every ``commit.interval.ms`` if there is something to commit, cached results with them, and no
  commit is special. A task that has nothing to do commits its offsets again once in a while: the broker
  forgets those of quiet partitions, and ids of producers that never commit.
- A step ends after a share of a second, so that the tasks of a thread take turns whatever one has to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kstreams.batch.task.loop import FETCH_SECONDS, TaskLoop
from airflow_kstreams.streams.ports import Fetched, TopicPartition

#: After this much processing the next task has its turn.
_TURN_SECONDS = 0.25
#: Offsets expire after days, transactional ids too.
_REFRESH_SECONDS = 3_600.0


class ContinuousLoop(TaskLoop):
    """Runs a restored task step by step; parameters as for :class:`TaskLoop`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: Whether the last turn ended before everything that may be processed was.
        self._unfinished_turn = False
        #: Where the last commit left the partitions; None: what the processors did in init waits for one.
        self._at_commit: Mapping[TopicPartition, int] | None = None

    def step(self, wait_seconds: float = FETCH_SECONDS) -> bool:
        """Fetch once unless there is more to process, and process for one turn at most.

        :param wait_seconds: for records, if there are none yet.
        :return: whether anything was processed.
        """
        if not self._unfinished_turn:
            self._fetch(wait_seconds)
        turn_ends = self._clock.monotonic_seconds() + _TURN_SECONDS
        progressed = self._unfinished_turn = False
        while not self._unfinished_turn and self._process():
            progressed = True
            self._unfinished_turn = self._clock.monotonic_seconds() >= turn_ends
        self._balance()
        return progressed

    def commit(self) -> None:
        """Commit now, if there is anything to commit."""
        if self._dirty:
            self._commit_now(self._clock.monotonic_seconds())

    def _take(self, fetched: Fetched) -> None:
        group = self._task.group
        for partition, records in fetched.records.items():
            group.add_live(partition, records)
        for partition, end in fetched.ends.items():
            group.caught_up(partition, end)

    @property
    def _at_stop(self) -> bool:
        return False

    def _commit_due(self, now: float, *, processed: bool) -> bool:
        if self._task.commit_due(interval_elapsed=False, processed=processed):
            return True
        if now - self._committed_at >= _REFRESH_SECONDS:
            return True
        return self._interval_elapsed(now) and self._dirty

    @property
    def _dirty(self) -> bool:
        return self._open_since is not None or self._at_commit != self._task.group.positions()

    def _commit_now(self, now: float) -> None:
        super()._commit_now(now)
        self._at_commit = self._task.group.positions()

    def _unread(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (position, end of the log) of every partition: there is no stop offset."""
        ends = self._clients.admin.end_offsets(sorted(self._assigned), isolation="read_uncommitted")
        return {p: (self._positions[p], ends[p]) for p in sorted(self._assigned)}

    def _needless(self) -> set[TopicPartition]:
        return set(self._task.group.ahead(self._paused))
