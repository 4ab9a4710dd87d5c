"""Defines the slice that begin froze, the plan that travels with it, and the moment to which the end of the
run brings stream time.

A run that stops at the end of its data interval has read what is dated before. The interval's windows need no
further record; but stream time is that of records, so their results would come with the first record dated
past them, hours later, or never on a quiet partition. So at the end of a run each task advances its stream
time to a moment.

Rule:

1. Begin freezes the moment with the slice: the end of the data interval, or its own. For each subtopology it
   is less what may still come to it (:mod:`airflow_kstreams.streams.topology.time_limits`).
2. A task that is at its stop offsets brings stream time from one moment at which a timer is due to the next,
   up to the run's moment: windows close, joins give up waiting, punctuations come, each as if a record dated
   then had come on every topic. What that does not close, ``at_run_end`` decides on after it, when the
   processors close.
3. Its last commit says so (``complete``). With a moment frozen, its driver, the readers of what it writes,
   and finish take no task for done before.
4. A task none of whose topics has a stream time never saw a record, or has nothing that goes by it: it is not
   advanced. One with records parked in a retry topic is not, either, unless the user asks for it by name; nor
   one that reads a topic of which partitions wait for others, or lies below such. Nothing is advanced in a
   run whose stop offsets another program has frozen (KIP-95's bare records).
5. Every commit says beside the offsets when the task has something to do next. A run starts the tasks that
   have something to read, or to do before the moment; without such tasks it starts no Spark. For a task that
   does not run, finish advances the stream time beside its offsets, with the finished marker: nothing was
   due. Where it is not known when a task is next due (another topology, moved state, an offset that an
   operator set), it counts as due.

Invariant: the stream time beside the offsets is how far the end of the run has come. Every moment at or
before it has passed, with all that follows from it in stores and outputs; none behind it has.

Crash argument: what a moment brings about, and the stream time that says that it has passed, are of one
transaction, as with a record. The end of the run may take several: each ends between two moments, at the stop
offsets, and is not complete. An attempt that dies leaves the last one; the next attempt finds the offsets at
the stops and no mark, restores stores and stream time as of that commit, and goes on with the first moment
behind it. So each window closes once, after any crash. The mark and the last moments are of one transaction,
together with what the processors give in close and the done notification: a reader that sees one sees all.
The moment is part of the completed marker, so an attempt days later advances no further.

Downstream: the stop offsets of a topic between subtopologies are frozen when all its writers have notified,
so behind what the end of the run gave. Its readers read that first, and end their run after it.

Over runs: stream time starts where the last run left it, so what a run has closed stays closed, and a record
dated before the moment that comes later is late by its window's own grace.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic
from airflow_kstreams.streams.plan import (
    Moment,
    PartitionCount,
    PartitionName,
    SubtopologyNumber,
    TopologyPlan,
    refuse_too_many,
)
from airflow_kstreams.streams.ports import TopicPartition


class EndOfRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The moment to which the end of a run brings stream time.

    :param moment_ms: the moment, epoch milliseconds.
    :param subtopologies: subtopology id as text -> its moment, epoch milliseconds: the run's, less the time
        by which records may still come late to it; a subtopology that is not advanced is absent.
    :param also: nodes whose parked records do not keep their tasks from being advanced.
    """

    moment_ms: int
    subtopologies: dict[str, int] = {}
    also: tuple[str, ...] = ()

    def moment_of(self, subtopology: int) -> int | None:
        """Return the moment to which it brings a subtopology's stream time; None if it does not."""
        return self.subtopologies.get(str(subtopology))


#: Digits that are kept of the hash of a stop set; enough to tell the slices of one run id apart.
_STOP_SET_DIGITS = 12


def partition_named(name: str) -> TopicPartition:
    """Return the partition that ``topic-partition`` names."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def transactional_ids(application_id: str, tasks: Mapping[str, int]) -> tuple[str, ...]:
    """Return the transactional ids that tasks use: ``<app>-<subtopology>_<group>``.

    :param tasks: subtopology id as text -> its number of tasks.
    """
    return tuple(f"{application_id}-{sub}_{group}" for sub, count in tasks.items() for group in range(count))


class FrozenPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition's share of a slice: ``[start_offset, stop_offset)``, frozen once.

    :param end_epoch: leader epoch at the log's end when the stop was frozen, -1 when it is not known: no
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

    :param spans: (first offset, stop offset) of each partition, in the order of their numbers.
    """

    topic: str
    topic_id: str
    spans: tuple[tuple[int, int], ...]


class FrozenTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table that a run writes to, as its begin found it.

    :param table_id: id of the table.
    :param schema_id: number of the schema that files are written with; -1 where schemas have none.
    :param spec_id: number of the partitioning; -1 where partitionings have none.
    :param sequence: number of the run's commit to the table: the mark that it leaves there.
    :param target_bytes: size of files that the table asks for, bytes; 0 if it does not say.
    :param sort_by: columns by which rows of a file are sorted.
    :param column_ids: dotted name of each column of the rows, and of their parts -> the id that files carry
        for it; empty where columns have none.
    :param replaces_ms: the interval whose rows the run's rows replace, ``[from, to)``, epoch milliseconds;
        None to add them.
    :param replaced: digest of the files that the table had of it.
    """

    table_id: str
    sequence: int
    schema_id: int = -1
    spec_id: int = -1
    target_bytes: int = 0
    sort_by: tuple[str, ...] = ()
    column_ids: dict[str, int] = {}
    replaces_ms: tuple[Moment, Moment] | None = None
    replaced: str = ""


class BehindCut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records that lie behind the cut of a data interval and are dated before it: they are the next run's.

    :param records: topic -> number of such records when the run began; topics without any are absent.
    :param whole: whether begin read the logs to their ends; otherwise there may be more.
    """

    records: dict[str, int] = {}
    whole: bool = True

    @property
    def total(self) -> int:
        """The number of records in all topics, at least."""
        return sum(self.records.values())


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The bounds beyond which looks call a run odd: the settings ``suspicion.*`` that it began with.

    :param quiet_times: ``suspicion.quiet.times``.
    :param records_times: ``suspicion.records.times``.
    :param lost_share: ``suspicion.lost.share``.
    """

    quiet_times: float
    records_times: float
    lost_share: float


class LedgerSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger's id and end when a run began.

    :param topic_id: id of the ledger's topic.
    :param end: high watermark of its log.
    """

    topic_id: str
    end: int


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that begin froze; it travels with both markers: compaction may keep only one of them.

    :param topology: the topology's plan.
    :param partitions: source topic -> its partition count, inputs and intermediates.
    :param topic_ids: source topic -> its id.
    :param tasks: number of tasks of each subtopology (subtopology id as text -> count).
    :param stop_hash: hash over the stop set, so that a torn stop set is noticed.
    :param begun_ms: time at which the slice was frozen, epoch milliseconds.
    :param empty: whether there was nothing new, so that no task ever runs.
    :param groups: partition groups of each subtopology whose partitions are grouped in another way than by
        equal ids (subtopology id as text -> groups).
    :param intermediate_starts: ``topic-partition`` of every intermediate partition -> the offset at which the
        slice starts. Begin commits these and the inputs' starts, so that a partition without a committed
        offset is one whose progress was lost.
    :param warnings: the first few warnings for an operator, one line each.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param kept_ms: the interval ``[from, to)`` in which a record of an input topic must be dated to be
        processed, epoch milliseconds; None for every record. Topics that the topology writes are read whole.
    :param changelog_ids: changelog topic -> its id.
    :param output_ids: topic that takes results -> its id.
    :param dag_id: the DAG that starts the run; empty if none.
    :param autostop_at: setting by which the stop offsets were frozen; empty in a continuous run.
    :param ledger: id and end of the ledger when the run began.
    :param moved_starts: ``topic-partition`` of input partitions that an operator or a continuous run has
        moved, so that they start elsewhere than the ledger has -> the ledger's offset, at which the last run,
        or a reset, left them.
    :param grown: subtopology id as text -> topic -> its growth, for topics that have grown and whose keys the
        subtopology's state depends on.
    :param placements: topic that the topology both writes and reads and that has grown -> (first partition
        count, count over which the run places keys by linear hashing).
    :param blocked: ``topic-partition`` of a partition that waits for its ancestors -> the offset up to which
        it may be looked at meanwhile; its start is its stop.
    :param processors: subtopology id as text -> assignment of keys to tasks, where there are more tasks than
        there were partitions at first.
    :param global_tables: the piece of each global table that every task sees.
    :param behind_cut: number of records behind the cut that are dated before it; None where no cut was made.
    :param end_of_run: the moment to which the end of the run brings stream time; None without one.
    :param begin_steps: times of the steps of begin.
    :param thresholds: bounds beyond which looks call the run odd; None where they are not known.
    :param targets: name of a table's sink -> the table; none in a run that has nothing to do.
    """

    topology: TopologyPlan
    partitions: dict[str, PartitionCount]
    topic_ids: dict[str, str]
    tasks: dict[SubtopologyNumber, PartitionCount]
    stop_hash: str
    begun_ms: Moment
    ledger: LedgerSeen
    empty: bool = False
    groups: dict[SubtopologyNumber, Groups] = {}
    intermediate_starts: dict[PartitionName, int] = {}
    warnings: tuple[str, ...] = ()
    interval_ms: tuple[Moment, Moment] | None = None
    kept_ms: tuple[int, int] | None = None
    changelog_ids: dict[str, str] = {}
    output_ids: dict[str, str] = {}
    dag_id: str = ""
    autostop_at: str = ""
    moved_starts: dict[PartitionName, int] = {}
    grown: dict[SubtopologyNumber, dict[str, GrownTopic]] = {}
    placements: dict[str, tuple[int, int]] = {}
    blocked: dict[PartitionName, int] = {}
    processors: dict[SubtopologyNumber, Processors] = {}
    global_tables: tuple[FrozenTable, ...] = ()
    behind_cut: BehindCut | None = None
    end_of_run: EndOfRun | None = None
    begin_steps: tuple[StepTimes, ...] = ()
    thresholds: Thresholds | None = None
    targets: dict[str, FrozenTarget] = {}

    def __post_init__(self) -> None:
        refuse_too_many(self.partitions.values())
        refuse_too_many(self.tasks.values())

    def moment_of(self, subtopology: int) -> int | None:
        """Return the moment to which the run's end brings a subtopology's stream time; None without one."""
        return None if self.end_of_run is None else self.end_of_run.moment_of(subtopology)

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Every transactional id that tasks of this run may use."""
        return transactional_ids(self.topology.application_id, self.tasks)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The bounded piece of the log that one run processes.

    :param run_id: id of the run that owns it.
    :param generation: grows by one each time a driver claims the slice.
    :param plan: the facts that begin froze.
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
