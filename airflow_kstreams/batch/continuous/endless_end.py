"""Gives step 5 of the task protocol an end for continuous mode: no stop offset, and tasks that take turns.

It differs from a batch:

- A partition whose end was reached counts as finished until its next record comes, so that a quiet input
  keeps no other one waiting (``partition_group.py``).
- Commits come every ``commit.interval.ms`` if there is something to commit, cached results with them, and no
  commit is special. A task that has nothing to do commits its offsets again once in a while: the broker
  forgets those of quiet partitions, and ids of producers that never commit.
- A step ends after a share of a second, so that the tasks of a thread take turns however much one has to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from airflow_kstreams.batch.task.end import Unread, at_commit_point
from airflow_kstreams.streams.ports import AdminPort, Fetched, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask

#: Offsets expire after days, transactional ids too.
_REFRESH_SECONDS = 3_600.0


class EndlessEnd:
    """No end: a continuous run is stopped from outside.

    :param task: reads on.
    :param admin: asked for the ends of logs, when something is explained.
    """

    turn_seconds = 0.25

    def __init__(self, task: StreamTask, admin: AdminPort) -> None:
        self._task = task
        self._admin = admin
        #: Where the last commit left the partitions; None: what the processors did in init waits for one.
        self._at_commit: Mapping[TopicPartition, int] | None = None

    def take(self, fetched: Fetched) -> None:
        """Give the task what was fetched; a partition at its end keeps no other one waiting."""
        group = self._task.group
        for partition, records in fetched.records.items():
            group.add_live(partition, records)
        for partition, end in fetched.ends.items():
            group.caught_up(partition, end)

    def at_stop(self) -> bool:
        """Say that there is always more to come."""
        return False

    def end_of_run(self) -> Iterator[None]:
        """Bring stream time nowhere: there is no end to do it at."""
        return iter(())

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Say whether to commit: at the task's own commit points, by the interval, and now and then."""
        if self._task.commit_due(interval_elapsed=False, processed=processed):
            return True
        if since_seconds >= _REFRESH_SECONDS and self._task.may_commit:
            return True
        return interval_elapsed and self.anything_to_commit(opened=opened) and at_commit_point(self._task)

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Say whether something was written, or read past without writing."""
        return opened or self._at_commit != self._task.group.positions()

    def committed(self) -> None:
        """Keep where the commit left the partitions."""
        self._at_commit = self._task.group.positions()

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return (position, end of the log) of every partition: there is no stop offset."""
        ends = self._admin.end_offsets(sorted(positions), isolation="read_uncommitted")
        return {p: (positions[p], ends[p]) for p in sorted(positions)}

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that are far ahead of others."""
        return set(self._task.group.ahead(paused))
