"""Defines what a run processes: the slice that begin froze, and the plan that travels with it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.protocol.slice.end_of_run import EndOfRun
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition

#: Of the hash of a stop set; enough to tell the slices of one run id apart.
_STOP_SET_DIGITS = 12


def partition_named(name: str) -> TopicPartition:
    """Return the partition that ``topic-partition`` names."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def transactional_ids(application_id: str, tasks: Mapping[str, int]) -> tuple[str, ...]:
    """Return the transactional ids that tasks use: ``<app>-<subtopology>_<group>``.

    :param tasks: number of tasks per subtopology id, which is text.
    """
    return tuple(f"{application_id}-{sub}_{group}" for sub, count in tasks.items() for group in range(count))


class FrozenPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition's share of a slice: ``[start_offset, stop_offset)``, frozen once.

    :param end_epoch: the leader epoch at the log's end when the stop was frozen, -1 when it is not known: no
        record below the stop is of a later one, unless the log is another one since.
    """

    topic: str
    partition: int
    start_offset: int
    stop_offset: int
    end_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class FrozenTable(msgspec.Struct, frozen=True, kw_only=True):
    """The piece of a global table's topic that every task of a run reads, frozen once.

    :param spans: (first offset, stop offset) of each partition, in their order.
    """

    topic: str
    topic_id: str
    spans: tuple[tuple[int, int], ...]


class BehindCut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records that lie behind the cut of a data interval and are dated before it: they are the next run's.

    :param records: topic -> how many lay there when the run began; topics without such are absent.
    :param whole: whether begin read the logs to their ends; else there may be more.
    """

    records: dict[str, int] = {}
    whole: bool = True

    @property
    def total(self) -> int:
        """How many there are in all topics, at least."""
        return sum(self.records.values())


class LedgerSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger's id and end when a run began.

    :param topic_id: of its topic.
    :param end: its high watermark.
    """

    topic_id: str
    end: int


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that begin froze; it travels with both markers: compaction may keep only one of them.

    :param topology: the topology's plan.
    :param partitions: partition count of every source topic, inputs and intermediates.
    :param topic_ids: topic id of every source topic.
    :param tasks: number of tasks of each subtopology (subtopology id as text -> count).
    :param stop_hash: hash over the stop set, so that a torn stop set is noticed.
    :param begun_ms: when the slice was frozen, epoch milliseconds.
    :param empty: whether there was nothing new, so that no task ever runs.
    :param groups: partition groups of each subtopology whose partitions are grouped in another way than by
        equal ids (subtopology id as text -> groups).
    :param intermediate_starts: where the slice starts in every intermediate partition: ``topic-partition`` ->
        offset. Begin commits these and the inputs' starts, so that a partition without a committed offset is
        one whose progress was lost.
    :param warnings: what an operator should look at, one line each, the first few.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param kept_ms: the interval ``[from, to)`` in which a record of an input topic must be dated to be
        processed, epoch milliseconds; None for every record. Topics that the topology writes are read whole.
    :param changelog_ids: topic id of every changelog.
    :param dag_id: the DAG whose run it is; empty if none.
    :param autostop_at: the setting by which the stop offsets were frozen; empty in a continuous run.
    :param ledger: the ledger that the run began with.
    :param moved_starts: input partitions that do not start where the ledger says that the last run, or a
        reset, left them, because an operator or a continuous run has moved them: ``topic-partition`` -> where
        that was.
    :param grown: topics that have grown, of each subtopology whose state depends on their keys (subtopology
        id as text -> topic -> how).
    :param placements: topics that the topology both writes and reads and that have grown: how many partitions
        they had first, and among how many the run places keys, by linear hashing.
    :param blocked: partitions that wait for their ancestors, so that their start is their stop: the end of
        what may be looked at meanwhile, ``topic-partition`` -> offset.
    :param processors: subtopology id as text -> how keys find their task, where there are more tasks than
        there were partitions at first.
    :param global_tables: what every task sees of global tables.
    :param behind_cut: what lies behind the cut and is dated before it; None where no cut was made.
    :param end_of_run: to where the end of the run brings stream time; None if nowhere.
    """

    topology: TopologyPlan
    partitions: dict[str, int]
    topic_ids: dict[str, str]
    tasks: dict[str, int]
    stop_hash: str
    begun_ms: int
    ledger: LedgerSeen
    empty: bool = False
    groups: dict[str, Groups] = {}
    intermediate_starts: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    interval_ms: tuple[int, int] | None = None
    kept_ms: tuple[int, int] | None = None
    changelog_ids: dict[str, str] = {}
    dag_id: str = ""
    autostop_at: str = ""
    moved_starts: dict[str, int] = {}
    grown: dict[str, dict[str, GrownTopic]] = {}
    placements: dict[str, tuple[int, int]] = {}
    blocked: dict[str, int] = {}
    processors: dict[str, Processors] = {}
    global_tables: tuple[FrozenTable, ...] = ()
    behind_cut: BehindCut | None = None
    end_of_run: EndOfRun | None = None

    def moment_of(self, subtopology: int) -> int | None:
        """Return to where the end of the run brings a subtopology's stream time; None if nowhere."""
        return None if self.end_of_run is None else self.end_of_run.moment_of(subtopology)

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Every transactional id that tasks of this run may use."""
        return transactional_ids(self.topology.application_id, self.tasks)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The bounded piece of the log that one run processes.

    :param run_id: the run that owns it.
    :param generation: grows by one each time a driver claims the slice.
    :param plan: what begin froze.
    :param inputs: every input partition's start and stop.
    """

    run_id: str
    generation: int
    plan: RunPlan
    inputs: tuple[FrozenPartition, ...]

    @property
    def stop_set(self) -> str:
        """Name of its stop set, part of the metadata of every offset that is committed for it; empty when it
        has none, as in a continuous run.
        """
        return self.plan.stop_hash[:_STOP_SET_DIGITS]

    @property
    def record_span(self) -> int:
        """Sum of stop - start over the inputs: an upper bound of the records to read."""
        return sum(p.stop_offset - p.start_offset for p in self.inputs)
