"""The execution of a task without asynchronous nodes: each record is processed to its end at once.

Commit points are counted in records from the slice's start, so every attempt has the same ones; between two
of them cached results wait.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.runtime.execution import LoggedChanges, changes_of
from airflow_kstreams.streams.runtime.processor_topology import ProcessorTopology

#: Where a partition has fewer records in a row, those of several partitions are run together if they may be.
SHORT_RUN = 64


class InlineExecution:
    """Runs the records of one task.

    :param topology: bound, of one stage.
    :param group: the task's record queues.
    :param points_every: records between two commit points, 0 for none.
    :param records_in: records processed by earlier attempts.
    :param read: counts processed records by topic.
    """

    in_flight = wants_records = at_capacity = waits_for_retries = False
    may_commit = True
    parked: Mapping[str, int] = MappingProxyType({})
    parked_due_ms = None

    def __init__(
        self,
        topology: ProcessorTopology,
        group: PartitionGroup,
        *,
        points_every: int,
        records_in: int,
        read: dict[str, int],
    ) -> None:
        self._topology = topology
        self._group = group
        self._points_every = points_every
        self.records_in = records_in
        self._read = read

    @property
    def commit_requested(self) -> bool:
        """Whether user code has asked for a commit since the last one."""
        return self._topology.commit_requested

    @commit_requested.setter
    def commit_requested(self, requested: bool) -> None:
        self._topology.commit_requested = requested

    @property
    def at_point(self) -> bool:
        """Whether the record processed last is a commit point."""
        return self._points_every > 0 and self.records_in % self._points_every == 0

    @property
    def complete(self) -> bool:
        """Whether every record up to the stop offsets was processed."""
        return self._group.complete

    def open(self, time_ms: int) -> None:
        """Let the processors start."""
        self._topology.open(time_ms)

    def process(self, limit: int) -> int:
        """Run records, of one partition after the other, up to a commit point, where cached results
        are emitted.

        Where partitions alternate, few records lie in a row, and each call of this method has its price; so
        has each run.
        """
        if self._points_every:
            limit = min(limit, self._points_every - self.records_in % self._points_every)
        group, topology, processed = self._group, self._topology, 0
        while processed < limit and (chosen := group.choose(limit - processed)) is not None:
            count = topology.run(chosen)
            processed += self._ran(chosen.partition, count)
            if self._topology.commit_requested:
                break
            if count < SHORT_RUN and topology.mixes and processed < limit:
                mixed = group.mix(limit - processed)
                if mixed is not None:
                    topology.run_mixed(mixed)
                    processed += sum(itertools.starmap(self._ran, mixed.counts.items()))
        if processed and self.at_point:
            topology.flush()
        return processed

    def _ran(self, partition: TopicPartition, count: int) -> int:
        self._group.advance(partition, count)
        self.records_in += count
        self._read[partition.topic] += count
        return count

    def settle(self) -> None:
        """Do nothing: a chosen record is processed at once."""

    def punctuate(self) -> bool:
        """Let the wall-clock timers fire that are due, and say whether there were any."""
        return self._topology.wall_clock.fire()

    def pass_time(self, moment_ms: int) -> None:
        """Bring stream time to a moment, and let the timers fire that are due then."""
        clock = self._topology.clock
        clock.bring_to(moment_ms)
        clock.fire()

    def emit(self) -> None:
        """Emit cached results."""
        self._topology.flush()

    def close_processors(self, time_ms: int) -> None:
        """Let the processors close."""
        self._topology.flush()
        self._topology.close(time_ms)

    def close(self) -> None:
        """Do nothing: no call runs."""

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield nothing: a chosen record is processed at once."""
        return iter(())

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store since this was asked last."""
        return changes_of(self._topology.stores[store], changelog)

    def undrained_count(self, store: str) -> int:
        """Return how many changes of a store wait for a commit to log them."""
        count: int = self._topology.stores[store].undrained_count()
        return count

    def ask_for_commit_point(self) -> None:
        """Do nothing: a commit may come at any time."""

    def calls_ended(self) -> bool:
        """Say that no call has ended."""
        return False

    def waiting_for(self) -> str:
        """Say that no record in flight waits."""
        return "nothing"

    def call_figures(self) -> None:
        """Return None: there are no calls."""
