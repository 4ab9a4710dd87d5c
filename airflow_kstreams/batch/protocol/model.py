"""What the run protocol knows about a run, as plain data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from airflow_kstreams.batch.protocol.totals import Totals, totals
from airflow_kstreams.streams.partitioning.partition_groups import Groups, equal_ids
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.record_counts import RecordCounts
from airflow_kstreams.streams.records.record_queue import PartitionTimes

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


class RunState(enum.Enum):
    """State of an application, folded from its metadata topic (KIP-95).

    ``NEW -> RUNNING -> FINISHED -> RUNNING -> ...``: begin enters RUNNING, finish enters FINISHED.
    """

    NEW = "new"
    RUNNING = "running"
    FINISHED = "finished"


class FrozenPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One input partition's share of a slice: ``[start_offset, stop_offset)``, frozen by begin."""

    topic: str
    partition: int
    start_offset: int
    stop_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class LedgerSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ledger was when a run began.

    :param topic_id: of its topic.
    :param end: its high watermark.
    """

    topic_id: str
    end: int


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What begin froze; travels with both markers, because compaction may keep only one of them.

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
    :param warnings: what a person should look at, one line each, the first few.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param kept_ms: the interval ``[from, to)`` in which a record of an input topic must be dated to be
        processed, epoch milliseconds; None for every record. Topics that the topology writes are read whole.
    :param changelog_ids: topic id of every changelog; empty in plans of earlier versions.
    :param dag_id: the DAG whose run it is; empty if none, and in plans of earlier versions.
    :param autostop_at: the setting by which the stop offsets were frozen; empty in plans of earlier versions.
    :param ledger: the ledger that the run began with; None in plans of earlier versions.
    :param moved_starts: input partitions that do not start where the ledger says that the last run, or a
        reset, left them, because a person or a run without an end has moved them: ``topic-partition`` ->
        where that was; None in plans of earlier versions.
    :param transactional_ids: of plans of earlier versions, which had them written out.
    """

    topology: TopologyPlan
    partitions: dict[str, int]
    topic_ids: dict[str, str]
    tasks: dict[str, int]
    stop_hash: str
    begun_ms: int
    empty: bool = False
    groups: dict[str, Groups] = {}
    intermediate_starts: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    interval_ms: tuple[int, int] | None = None
    kept_ms: tuple[int, int] | None = None
    changelog_ids: dict[str, str] = {}
    dag_id: str = ""
    autostop_at: str = ""
    ledger: LedgerSeen | None = None
    moved_starts: dict[str, int] | None = None
    transactional_ids: tuple[str, ...] = ()

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Every transactional id that tasks of this run may use."""
        return self.transactional_ids or transactional_ids(self.topology.application_id, self.tasks)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The bounded piece of the log that one run processes.

    :param run_id: the run that owns it.
    :param generation: grows by one each time a driver takes the slice over.
    :param plan: what begin froze.
    :param inputs: every input partition's start and stop.
    """

    run_id: str
    generation: int
    plan: RunPlan
    inputs: tuple[FrozenPartition, ...]

    @property
    def stop_set(self) -> str:
        """Name of its stop set, which stands beside every offset that is committed for it; empty when it has
        none, as in a continuous run.
        """
        return self.plan.stop_hash[:_STOP_SET_DIGITS]

    @property
    def record_span(self) -> int:
        """Sum of stop - start over the inputs: an upper bound of the records to read."""
        return sum(p.stop_offset - p.start_offset for p in self.inputs)


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did for its slice; survives crashes because it travels in the offset metadata.

    :param task_id: ``<subtopology>_<group>``.
    :param records_in: records consumed.
    :param records_out: records sent, changelog and notifications excluded.
    :param records_dropped: records dropped by rule (null keys under a group, late records), and those
        an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param records_skipped: records of input topics read and left out, because they are dated outside the
        interval that the run keeps to.
    :param restored: changelog records read at start.
    :param commits: transactions committed.
    :param seconds: wall time of the attempt that finished it.
    :param attempts: attempts within the Spark task attempt that finished it.
    :param outcome: ``done``, ``already_done`` when it found its stop reached, or ``stopped`` when it belongs
        to a continuous run.
    :param peak_memory_bytes: of the Python worker.
    :param records_ahead: records dated later than ``max.timestamp.ahead.ms`` allows that were processed,
        because nothing in the task goes by stream time; None in entries of earlier versions: unknown.
    """

    task_id: str
    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_skipped: int = 0
    restored: int = 0
    commits: int = 0
    seconds: float = 0.0
    attempts: int = 1
    outcome: str = "done"
    peak_memory_bytes: int = 0
    records_ahead: int | None = None


def ahead_in_all(reports: Iterable[TaskReport | SubtopologyTotals]) -> int | None:
    """Add up the records dated too far ahead; None when a report does not say."""
    counts = [report.records_ahead for report in reports]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class SubtopologyTopics(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one subtopology of a finished run read and wrote.

    :param id: of the subtopology.
    :param sources: topics it read.
    :param sinks: topics it wrote, changelogs excluded.
    """

    id: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


class TopicRead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a run read of an input topic, its partitions added up.

    :param topic: its name.
    :param partitions: how many it had.
    :param start: sum of their start offsets.
    :param stop: sum of their stop offsets.
    """

    topic: str
    partitions: int
    start: int
    stop: int


class SubtopologyTotals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the tasks of one subtopology did, added up; see ``TaskReport``.

    :param id: of the subtopology.
    :param tasks: how many there were.
    """

    id: int
    tasks: int
    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_skipped: int = 0
    records_ahead: int | None = None

    @property
    def task_id(self) -> str:
        """What the ids of its tasks begin with."""
        return f"{self.id}_"

    @classmethod
    def of(cls, subtopology_id: int, reports: Sequence[TaskReport]) -> SubtopologyTotals:
        """Add up."""
        return cls(
            id=subtopology_id,
            tasks=len(reports),
            records_in=sum(report.records_in for report in reports),
            records_out=sum(report.records_out for report in reports),
            records_dropped=sum(report.records_dropped for report in reports),
            records_dead_lettered=sum(report.records_dead_lettered for report in reports),
            records_skipped=sum(report.records_skipped for report in reports),
            records_ahead=ahead_in_all(reports),
        )


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a finished run did. The ledger's entry, kept under the run id, has what identifies it and its
    totals; what it has per task and partition is kept apart, and for a while only, see
    :mod:`airflow_kstreams.batch.ledger.details`. Entries of earlier versions have everything.

    :param run_id: the run.
    :param application_id: the application.
    :param begun_ms: when the slice was frozen, epoch milliseconds.
    :param finished_ms: when the finished marker was written, epoch milliseconds.
    :param generation: of the slice at the end: 1 + number of takeovers.
    :param empty: whether there was nothing new.
    :param inputs: every input partition's start and stop; a detail.
    :param intermediate_stops: stop offset of every intermediate partition, past the transaction markers that
        follow it: ``topic-partition`` -> offset; a detail.
    :param tasks: what each task did; a detail.
    :param topology_hash: of the topology that ran.
    :param topic_ids: topic id of every source topic, so that a topic that is created again is noticed even
        when the metadata topic is gone; a detail.
    :param partition_times: what of each source partition's time survives: ``topic-partition`` -> partition
        time, largest timestamp, stream time; a detail. They travel with the committed offsets, too, which may
        expire.
    :param warnings: what a person should look at, one line each, the first few.
    :param taken_back_ms: when a reset took back what it processed, epoch milliseconds; 0 = never. Such
        a run is not finished any more: it may run again under its id.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param topics: what each subtopology read and wrote; empty in entries of earlier versions.
    :param dag_id: the DAG whose run it was; empty if none, and in entries of earlier versions.
    :param autostop_at: the setting by which the stop offsets were frozen; empty in entries of earlier
        versions.
    :param counts: what became of the records, by topic and node; None if an earlier version counted a part of
        it: unknown.
    :param read: what it read of each input topic; empty in entries of earlier versions.
    :param totals: what the tasks of each subtopology did; empty of an empty run, and in entries of earlier
        versions.
    :param previous: offset of the entry of the run that finished before it, -1 if none did; None in entries
        of earlier versions.
    :param details: where in the ledger its details were written, from and to offset; None in entries of
        earlier versions.
    """

    run_id: str
    application_id: str
    begun_ms: int
    finished_ms: int
    generation: int
    empty: bool
    inputs: tuple[FrozenPartition, ...]
    intermediate_stops: dict[str, int] = {}
    tasks: tuple[TaskReport, ...] = ()
    topology_hash: str = ""
    topic_ids: dict[str, str] = {}
    partition_times: dict[str, PartitionTimes] = {}
    warnings: tuple[str, ...] = ()
    taken_back_ms: int = 0
    interval_ms: tuple[int, int] | None = None
    topics: tuple[SubtopologyTopics, ...] = ()
    dag_id: str = ""
    autostop_at: str = ""
    counts: RecordCounts | None = msgspec.field(default=None, name="record_counts")
    read: tuple[TopicRead, ...] = ()
    totals: tuple[SubtopologyTotals, ...] = ()
    previous: int | None = None
    details: tuple[int, int] | None = None

    @property
    def without_details(self) -> bool:
        """Whether its details are not here: they are kept apart, or have expired."""
        return bool(self.read) and not self.inputs

    @property
    def reads(self) -> tuple[TopicRead, ...]:
        """What it read of each input topic, sorted."""
        if self.read:
            return self.read
        parts: dict[str, list[FrozenPartition]] = {}
        for part in self.inputs:
            parts.setdefault(part.topic, []).append(part)
        return tuple(
            TopicRead(
                topic=topic,
                partitions=len(of_topic),
                start=sum(part.start_offset for part in of_topic),
                stop=sum(part.stop_offset for part in of_topic),
            )
            for topic, of_topic in sorted(parts.items())
        )

    @property
    def input_topics(self) -> set[str]:
        """Topics that it read and did not write."""
        return {read.topic for read in self.reads}

    @property
    def source_topics(self) -> set[str]:
        """Topics that it read, as far as the entry says."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return self.input_topics | read | {partition_named(name).topic for name in self.intermediate_stops}

    @property
    def task_count(self) -> int:
        """How many tasks it had."""
        return sum(sub.tasks for sub in self.totals) if self.totals else len(self.tasks)

    @property
    def outputs(self) -> set[str]:
        """Topics that it wrote and did not read; empty where the entry does not say."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return {topic for sub in self.topics for topic in sub.sinks} - read

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the next run starts: the stop offset of every partition, inputs and intermediates."""
        stops = {part.topic_partition: part.stop_offset for part in self.inputs}
        return stops | {partition_named(name): stop for name, stop in self.intermediate_stops.items()}

    def totals_of(self, subtopology_id: int) -> SubtopologyTotals:
        """Return what the tasks of a subtopology did; nothing if it had none."""
        for sub in self.totals:
            if sub.id == subtopology_id:
                return sub
        reports = [task for task in self.tasks if task.task_id.startswith(f"{subtopology_id}_")]
        return SubtopologyTotals.of(subtopology_id, reports)

    @property
    def _counted(self) -> Sequence[SubtopologyTotals | TaskReport]:
        return self.totals or self.tasks

    @property
    def records_in(self) -> int | None:
        """Records consumed from input topics; None if an earlier version's entry does not say."""
        return self._totals.records_in

    @property
    def records_out(self) -> int | None:
        """Records written to topics that the run did not read; None if an earlier version's entry does not
        say.
        """
        return self._totals.records_out

    @property
    def _totals(self) -> Totals:
        if self.topics or self.counts is not None:
            return totals(self.topics, self.counts, self._counted)
        if self.intermediate_stops:
            return Totals(None, None)
        return Totals(
            sum(counted.records_in for counted in self._counted),
            sum(counted.records_out for counted in self._counted),
        )

    @property
    def records_skipped(self) -> int:
        """Records left out because they are dated outside the interval that the run kept to."""
        return sum(counted.records_skipped for counted in self._counted)

    @property
    def records_ahead(self) -> int | None:
        """Records dated too far ahead that were processed; None when an earlier version ran a task."""
        return ahead_in_all(self._counted)


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on an application now; one record in the ledger topic, renewed by the driver.

    :param owner_run_id: the run the owner was started for.
    :param order: (clear number, try number) of the owner.
    :param owner: text naming it in messages.
    :param generation: of the slice, or of the continuous run, that the owner works on.
    :param expires_ms: when it ends unless renewed, epoch milliseconds by the owner's clock; 0 = released.
        To others, whose clocks may differ, only this 0 means anything.
    :param continuous: whether the owner runs the application continuously.
    :param stopping: whether the tasks of a continuous run are to end cleanly.
    :param lease_ms: milliseconds that it lasts from a renewal, the owner's ``lease.ms``; 0 in leases of
        earlier versions: not known.
    :param slice_run_id: the run whose slice the owner works on; empty when that has no slice, and in leases
        of earlier versions.
    :param checkpoint: where in the ledger the last checkpoint is, from and to offset; None if none is known,
        and in leases of earlier versions.
    """

    owner_run_id: str
    order: tuple[int, int]
    owner: str
    generation: int
    expires_ms: int
    continuous: bool = False
    stopping: bool = False
    lease_ms: int = 0
    slice_run_id: str = ""
    checkpoint: tuple[int, int] | None = None

    @property
    def works_on(self) -> str:
        """The run that the owner works on; where the lease does not say, as earlier ones, the owner's own."""
        return self.slice_run_id or self.owner_run_id


class ContinuousRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the last continuous run works on; one record in the ledger topic.

    :param run_id: names it.
    :param generation: grows by one with every start, so that tasks of an earlier one know that they are.
    :param plan: what the start froze; ``stop_hash`` and ``empty`` mean nothing here.
    :param over: whether a batch has begun since.
    """

    run_id: str
    generation: int
    plan: RunPlan
    over: bool = False

    @property
    def slice(self) -> Slice:
        """The same in the form that tasks know, without any stop offset."""
        return Slice(run_id=self.run_id, generation=self.generation, plan=self.plan, inputs=())


class GroupedPartitions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the partitions of one subtopology are grouped, and which state depends on it.

    :param partitions: partition count per source topic.
    :param groups: by group id; empty when equal ids are together.
    :param changelogs: topic id of each changelog whose partition ``n`` holds the state of group ``n``.
    :param state_kinds: what the entries of each changelog mean, see ``SubtopologyPlan``.
    :param store_serdes: by which serdes they are written; empty in entries of earlier versions.
    """

    partitions: dict[str, int]
    groups: Groups = ()
    changelogs: dict[str, str] = {}
    state_kinds: dict[str, str] = {}
    store_serdes: dict[str, str] = {}

    @property
    def by_group(self) -> Groups:
        """The groups, written out."""
        return self.groups or equal_ids(self.partitions)


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which partition group each partition is in; one record in the ledger topic, written by begin.

    :param version: grows by one with every change.
    :param run_id: the run that made the last change.
    :param subtopologies: subtopology id as text -> its groups.
    :param former: groups of changelogs that the topology does not have any more, in case they come back.
    """

    version: int
    run_id: str
    subtopologies: dict[str, GroupedPartitions]
    former: tuple[GroupedPartitions, ...] = ()


class OwnTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic of the engine's own, as this application made it or took it over.

    :param id: its topic id.
    """

    id: str


class OwnTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Which topics are this application's; one record in the ledger topic, written by begin.

    :param topics: by name, those of stores that were dropped included.
    """

    topics: dict[str, OwnTopic] = {}

    @property
    def ids(self) -> dict[str, str]:
        """Topic id by topic."""
        return {topic: own.id for topic, own in self.topics.items()}


class LoggedState(msgspec.Struct, frozen=True, array_like=True):
    """A changelog as a finished run left it.

    :param id: its topic id.
    :param ends: its high watermark, by partition.
    """

    id: str
    ends: tuple[int, ...]


class ChangelogEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Where the changelogs ended when a run with records was last finished; one record in the ledger topic,
    written by finish.

    :param changelogs: by topic.
    """

    changelogs: dict[str, LoggedState]


class ResetStage(enum.Enum):
    """How far a reset has come: ``STOPPING -> DELETING -> DONE``, or at once ``STOPPING -> DONE`` when there
    is no topic to delete. Until it is done, no run begins.
    """

    STOPPING = "stopping"
    DELETING = "deleting"
    DONE = "done"


class ResetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The application's last reset; one record in the ledger topic.

    :param stage: how far it has come.
    :param begun_ms: when it began, epoch milliseconds.
    :param command: what was asked for, as a command line: for messages, and to know a repetition.
    :param positions: where the next run starts in each partition that has no committed offset:
        ``topic-partition`` -> offset. Takes the place of the last run's stop offsets.
    :param topic_ids: topic ids that the last run knew, of topics that the reset did not accept as they are.
    :param transactional_ids: of tasks that may still be at work when the stage is STOPPING.
    :param deleting: internal topics to delete, with their partition counts.
    :param reset_id: its name; empty if it has none.
    """

    stage: ResetStage
    begun_ms: int
    command: str
    positions: dict[str, int] = {}
    topic_ids: dict[str, str] = {}
    transactional_ids: tuple[str, ...] = ()
    deleting: dict[str, int] = {}
    reset_id: str = ""

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the next run starts: the position of every partition that it knows."""
        return {partition_named(name): offset for name, offset in self.positions.items()}


class BeginResult(msgspec.Struct, frozen=True, kw_only=True):
    """What begin found or made.

    Exactly one of ``finished`` and ``slice`` is set. ``slice.run_id`` differs from the run asked for when
    another run's unfinished slice must be finished first.
    """

    slice: Slice | None = None
    finished: RunSummary | None = None
    created: bool = False
