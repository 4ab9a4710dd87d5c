"""Finds the blocked partitions, which wait for their ancestors, and says how far those are.

Why they wait stands in :mod:`airflow_kstreams.batch.growing.grown_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.streams.partitioning.partition_groups import group_of_partition
from airflow_kstreams.streams.ports import TopicPartition

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A partition that another one waits for.

    :param partition: the partition.
    :param position: up to where it is read; None if nothing says.
    :param boundary: up to where it must be read first.
    """

    partition: TopicPartition
    position: int | None
    boundary: int

    @property
    def ahead(self) -> int:
        """Offsets that are still to be read, at most."""
        return max(0, self.boundary - (self.position or 0))

    def __str__(self) -> str:
        """Return e.g. ``orders-0 (at 100 of 120)``."""
        return f"{self.partition} (at {self.position or 0} of {self.boundary})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition that waits for its ancestors.

    :param partition: the partition.
    :param subtopology: that reads it.
    :param group: its partition group, the number of its task.
    :param ancestors: what it waits for, or waited for when that was last looked at.
    """

    partition: TopicPartition
    subtopology: int
    group: int
    ancestors: tuple[Ancestor, ...]

    @property
    def ahead(self) -> int:
        """Offsets of all ancestors that are still to be read, at most; 0: the next run reads it."""
        return sum(ancestor.ahead for ancestor in self.ancestors)

    @property
    def waits_for(self) -> tuple[Ancestor, ...]:
        """The ancestors that are not at their boundaries yet."""
        return tuple(ancestor for ancestor in self.ancestors if ancestor.ahead)


def blocked_partitions(
    grouped: Mapping[int, GroupedPartitions], position: Callable[[TopicPartition], int | None]
) -> list[BlockedPartition]:
    """Return the blocked partitions, sorted.

    :param grouped: by subtopology id, with boundaries.
    :param position: where a partition is read up to; None if nothing says.
    """
    found: list[BlockedPartition] = []
    for sub, entry in sorted(grouped.items()):
        at = group_of_partition(entry.by_group) if entry.boundaries else {}
        for name, boundaries in entry.boundaries.items():
            tp = partition_named(name)
            parents = {TopicPartition(tp.topic, number): to for number, to in boundaries.items()}
            ancestors = tuple(
                Ancestor(partition=parent, position=position(parent), boundary=to)
                for parent, to in sorted(parents.items())
            )
            found.append(BlockedPartition(partition=tp, subtopology=sub, group=at[tp], ancestors=ancestors))
    return sorted(found, key=lambda each: each.partition)


def blocked_text(waits: Sequence[BlockedPartition]) -> str:
    """Return which partitions wait for what, the first few by name."""
    named = [f"{each.partition} waits for {', '.join(map(str, each.waits_for))}" for each in waits[:_NAMED]]
    more = [f"{len(waits) - _NAMED} more wait"] if len(waits) > _NAMED else []
    return "; ".join(named + more)


def blocked_warnings(
    waits: Sequence[BlockedPartition], stops: Mapping[TopicPartition, int]
) -> tuple[str, ...]:
    """Say of a run which partitions it leaves to a later one.

    :param waits: as its begin found them.
    :param stops: of the input partitions; topics that the application writes itself are read whole.
    """
    if not waits:
        return ()
    reached = all(
        stops.get(ancestor.partition, ancestor.boundary) >= ancestor.boundary
        for each in waits
        for ancestor in each.waits_for
    )
    when = "the next run reads them" if reached else "this run stops before that, so they wait longer"
    return (
        "partitions that topics have gained are read after what their keys came from: "
        f"{blocked_text(waits)}: {when}",
    )
