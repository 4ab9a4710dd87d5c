"""Defines where a task's reading ends, and what depends on it: one loop has a bounded or an endless end.

The bounded end is that of a batch: every partition has a stop offset, and the last commit covers them. No
other one may, but of a task whose stream time advances behind them in several transactions
(:mod:`airflow_kstreams.batch.protocol.slice.end_of_run`), and of a task with retry topics, which stays at its
stops, or waits for room in such a topic, and commits meanwhile what has become of parked records: a commit at
the stops does not say that it is done (:mod:`airflow_kstreams.batch.protocol.offsets.parked`). The endless
end is in :mod:`airflow_kstreams.batch.continuous.endless_end`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from typing import Protocol

from airflow_kstreams.batch.protocol.slice.end_of_run import EndOfRun
from airflow_kstreams.streams.ports import Fetched, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask

#: Partition -> (offset to read next, stop offset or end of the log).
Unread = dict[TopicPartition, tuple[int, int]]


class End(Protocol):
    """The questions that the loop asks its end."""

    @property
    def turn_seconds(self) -> float:
        """After this much processing the next task of the thread has its turn."""
        ...

    def take(self, fetched: Fetched) -> None:
        """Give the task what was fetched."""
        ...

    def at_stop(self) -> bool:
        """Say whether only the last commit is left to do."""
        ...

    def end_of_run(self) -> Iterator[None]:
        """Bring stream time to where the end does; yields where the task may be committed."""
        ...

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Say whether to commit now.

        :param processed: whether records were processed since this was asked last.
        :param interval_elapsed: whether the last commit is ``commit.interval.ms`` ago.
        :param since_seconds: how long it is ago.
        :param opened: whether something may have been written since.
        """
        ...

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Say whether a commit would change anything."""
        ...

    def committed(self) -> None:
        """Update the end after a commit."""
        ...

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return what is still to be read."""
        ...

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions of which nothing needs to be fetched for now."""
        ...


def at_commit_point(task: StreamTask) -> bool:
    """Say whether a commit may come now; if not, have a commit point come soon."""
    if task.may_commit:
        return True
    task.ask_for_commit_point()
    return False


class BoundedEnd:
    """The stop offsets of a slice, and the moment to which its end brings stream time.

    :param task: knows the offsets.
    :param end_of_run: to which moment; None if to none.
    """

    turn_seconds = math.inf

    def __init__(self, task: StreamTask, end_of_run: EndOfRun | None = None) -> None:
        self._task = task
        self._end_of_run = end_of_run

    def take(self, fetched: Fetched) -> None:
        """Give the task what was fetched; an end of partition may be its stop."""
        for partition, records in fetched.records.items():
            self._task.add(partition, records)
        for partition, end in fetched.ends.items():
            self._task.group.reached(partition, end)

    def at_stop(self) -> bool:
        """Say whether only the last commit is left to do.

        No other may cover the stop offsets of a task without retry topics: if it dies behind one, it counts
        as done, and what its processors give in close never comes.
        """
        return self._task.complete

    def end_of_run(self) -> Iterator[None]:
        """Bring stream time to the run's moment, unless records are parked that may be dated before it."""
        task, end_of_run = self._task, self._end_of_run
        moment_ms = None if end_of_run is None else end_of_run.moment_of(task.task_id.subtopology)
        if end_of_run is None or moment_ms is None:
            return iter(())
        return task.end_of_run(moment_ms, end_of_run.also)

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Say whether the task is at a commit point that is due, or waits for parked records with a
        transaction open.
        """
        task = self._task
        if not task.waits_for_retries:
            return not task.group.complete and task.commit_due(
                interval_elapsed=interval_elapsed, processed=processed
            )
        if task.commit_due(interval_elapsed=False, processed=processed):
            return True
        return opened and interval_elapsed and at_commit_point(task)

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Say whether something was written."""
        return opened

    def committed(self) -> None:
        """Do nothing: a bounded end does not depend on commits."""

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return the partitions that are not read to their stop."""
        stops = self._task.group.stops()
        return {p: (positions[p], stops[p]) for p in self._task.group.unfinished()}

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that are at their stop, and those that are far ahead of others."""
        group = self._task.group
        return assigned - set(group.unfinished()) | set(group.ahead(paused))
