"""Holds the ledger's facts of an application beside its finished runs: one record each, the last counts.

======================  =======================================  ========================
record                  says                                     written by
======================  =======================================  ========================
:class:`Lease`          who works on the application             begin, and each renewal
:class:`Assignment`     on which partition groups state depends  begin
:class:`OwnTopics`      which topics are the application's       begin
:class:`ChangelogEnds`  where changelogs ended                   finish
:class:`ContinuousRun`  what a run without an end works on       the start of that run
:class:`ResetRecord`    how far the last reset has come          reset
:class:`Acceptance`     where an operator has reading go on      reset --accept
======================  =======================================  ========================
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Annotated

import msgspec

from airflow_kstreams.batch.protocol.slice.slice import RunPlan, Slice, partition_named
from airflow_kstreams.streams.partitioning.partition_groups import Groups, equal_ids
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic
from airflow_kstreams.streams.plan import (
    GivenWindows,
    MadeOf,
    Moment,
    PartitionCount,
    PartitionName,
    SubtopologyNumber,
    refuse_too_many,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.settings import LONGEST_LEASE_MS


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's claim to work on an application; one record in the ledger topic, which it renews.

    :param owner_run_id: the run the owner was started for.
    :param order: (clear number, try number) of the owner.
    :param owner: the owner's name for messages.
    :param generation: generation of the slice, or of the continuous run, that the owner works on.
    :param expires_ms: time at which the lease ends unless renewed, epoch milliseconds by the owner's clock; 0
        = released. Other programs, whose clocks may differ, go by this 0 only.
    :param continuous: whether the owner runs the application continuously.
    :param stopping: whether the tasks of a continuous run are to end cleanly.
    :param lease_ms: milliseconds from a renewal to the lease's end, the owner's setting ``lease.ms``.
    :param slice_run_id: the run whose slice the owner works on; empty when that has no slice.
    :param checkpoint: offsets of the last checkpoint in the ledger, ``[from, to)``; None if none is known.
    :param history: offset of the last record of the histories of runs that have not finished, see
        :mod:`airflow_kstreams.batch.ledger.history`; -1 without one.
    """

    owner_run_id: str
    order: tuple[int, int]
    owner: str
    generation: int
    expires_ms: int
    lease_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_LEASE_MS)]
    continuous: bool = False
    stopping: bool = False
    slice_run_id: str = ""
    checkpoint: tuple[int, int] | None = None
    history: int = -1

    @property
    def works_on(self) -> str:
        """The run that the owner works on: that of the slice, or its own continuous one."""
        return self.slice_run_id or self.owner_run_id

    def is_silent(self, renewed_ms: int, now_ms: int) -> bool:
        """Whether a look takes the owner for dead: it has not renewed the lease for longer than that lasts.

        The time of the renewal is by the owner's clock, so this chooses only what is shown. A begin watches
        the lease itself.

        :param renewed_ms: time of the last renewal, epoch milliseconds.
        """
        return now_ms - renewed_ms > self.lease_ms


class GroupedPartitions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The partition groups of one subtopology, and the state that depends on them.

    :param partitions: partition count per source topic.
    :param groups: topic -> its partitions, for each group in the order of ids; empty when each group holds
        the partitions of its own number.
    :param changelogs: topic id of each changelog whose partition ``n`` holds the state of group ``n``.
    :param state_kinds: changelog topic -> the meaning of its entries (kind of store, windows), see
        ``SubtopologyPlan``.
    :param given_windows: changelog topic -> the moments at which readers get its windows.
    :param store_serdes: changelog topic -> the serdes that encode its keys and values.
    :param made_of: store -> operator and inputs that it is made of, with and without changelog.
    :param grown: the source topics that have gained partitions since their producers began.
    :param boundaries: ``topic-partition`` -> number of an ancestor partition -> the offset up to which the
        ancestor must be committed before the partition may be read.
    :param found_empty: ``topic-partition`` of partitions that topics have gained and in which no run has
        found a record yet.
    :param processors: assignment of keys to groups once there are more groups than there were partitions at
        first; None before that.
    :param moved_from: changelogs that still hold entries of keys that have moved to another group.
    """

    partitions: dict[str, PartitionCount]
    groups: Groups = ()
    changelogs: dict[str, str] = {}
    state_kinds: dict[str, str] = {}
    given_windows: dict[str, GivenWindows] = {}
    store_serdes: dict[str, str] = {}
    made_of: dict[str, MadeOf] = {}
    grown: dict[str, GrownTopic] = {}
    boundaries: dict[PartitionName, dict[int, int]] = {}
    found_empty: tuple[PartitionName, ...] = ()
    processors: Processors | None = None
    moved_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_too_many(self.partitions.values())

    @property
    def by_group(self) -> Groups:
        """The groups, written out."""
        return self.groups or equal_ids(self.partitions)


class CountedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A source topic as the last run that read it found it, whatever state there was.

    :param id: id of the topic.
    :param growth: partition counts since its producers began, oldest first; one count if it has not grown.
    """

    id: str
    growth: GrownTopic


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The partition groups of all subtopologies; one record in the ledger topic, written by begin.

    :param version: grows by one with every change; 0: nothing is recorded.
    :param run_id: the run that made the last change.
    :param subtopologies: subtopology id as text -> its groups.
    :param former: groups of changelogs that the topology does not have any more, in case they come back.
    :param topics: topic -> the partition counts of each source topic that runs have read. They outlive all
        state: where the keys of a topic lie depends on its producers, not on what reads it.
    """

    version: int = 0
    run_id: str = ""
    subtopologies: dict[SubtopologyNumber, GroupedPartitions] = {}
    former: tuple[GroupedPartitions, ...] = ()
    topics: dict[str, CountedTopic] = {}

    @property
    def current(self) -> tuple[GroupedPartitions, ...]:
        """The groups of the subtopologies that there are."""
        return tuple(self.subtopologies.values())

    @property
    def entries(self) -> tuple[GroupedPartitions, ...]:
        """The current groups, then the former ones."""
        return (*self.current, *self.former)

    def groups_of(self, subtopology: int, changelogs: Collection[str]) -> GroupedPartitions | None:
        """Return the recorded groups of the subtopology that has these changelogs.

        A subtopology has its number from its place in the file, so it may have been recorded under another.

        :param subtopology: number of the subtopology; finds the entry of one without changelogs.
        """
        for entry in self.current:
            if not entry.changelogs.keys().isdisjoint(changelogs):
                return entry
        entry_by_number = self.subtopologies.get(str(subtopology))
        unbound = entry_by_number is not None and not entry_by_number.changelogs
        return entry_by_number if unbound else None


#: Before the first run with records.
NOTHING_RECORDED = Assignment()


class OwnTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic of the engine's own, as this application made it or took it over.

    :param id: id of the topic.
    :param fed_by: of a repartition topic, the topics that its records are made of, by the last run that used
        it; empty where that is not known.
    """

    id: str
    fed_by: tuple[str, ...] = ()


class OwnTopics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that are this application's own; one record in the ledger topic, written by begin.

    :param topics: the topics by name, those of dropped stores included.
    """

    topics: dict[str, OwnTopic] = {}

    @property
    def ids(self) -> dict[str, str]:
        """Topic id by topic."""
        return {topic: own.id for topic, own in self.topics.items()}


class LoggedState(msgspec.Struct, frozen=True, array_like=True):
    """A changelog as a finished run left it.

    :param id: id of the changelog topic.
    :param ends: high watermark of each partition, in the order of the partitions.
    """

    id: str
    ends: tuple[int, ...]


class ChangelogEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of the changelogs when a run with records was last finished; one record in the ledger topic,
    written by finish.

    :param changelogs: changelog topic -> its id and ends.
    """

    changelogs: dict[str, LoggedState]


class ContinuousRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last continuous run; one record in the ledger topic.

    :param run_id: id of the continuous run.
    :param generation: grows by one with every start, so that tasks of an earlier start stop.
    :param plan: plan that the start froze; ``stop_hash`` and ``empty`` mean nothing here.
    :param over: whether a batch has begun since.
    :param starts: ``topic-partition`` -> the offset at which the run started.
    """

    run_id: str
    generation: int
    plan: RunPlan
    over: bool = False
    starts: dict[PartitionName, int] = {}

    @property
    def slice(self) -> Slice:
        """The run in the form that tasks know, without any stop offset."""
        return Slice(run_id=self.run_id, generation=self.generation, plan=self.plan, inputs=())


class Acceptance(msgspec.Struct, frozen=True, array_like=True):
    """The offset at which an operator has reading go on in one partition, whatever the run before had read;
    one record in the ledger topic for all partitions, until a run that reads them finishes.

    :param offset: offset from which reading goes on.
    :param topic_id: id that the topic had when the offset was accepted.
    :param times: the partition's times at that offset.
    """

    offset: int
    topic_id: str
    times: PartitionTimes = PartitionTimes()


class AcceptedState(msgspec.Struct, frozen=True, array_like=True):
    """The state in which a person has accepted a table (``tables ... accept``).

    :param sequence: number of the application's last commit then: rows of commits up to it may be missing.
    :param snapshot: id of the table's newest snapshot then, or the version; empty if it had none.
    """

    sequence: int
    snapshot: str


class LandedTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last commit of an application to a table.

    :param table_id: id of the table.
    :param sequence: number of the commit. No reset takes it back: the mark in the table stays, too.
    :param snapshot: id of the snapshot that it made, or the version.
    :param run_id: the run that made it.
    :param rows: number of rows that it added.
    :param files: number of files that it added.
    :param rewritten_bytes: bytes of the table's files that an upsert has rewritten; None where it is not
        known, because the commit's answer was lost.
    :param format: format of the table.
    :param location: the table's identifier in its catalogue, or its URI.
    :param accepted: the state in which this table was accepted last; None if it never was.
    """

    table_id: str
    sequence: int
    snapshot: str = ""
    run_id: str = ""
    rows: int = 0
    files: int = 0
    rewritten_bytes: int | None = 0
    format: str = ""
    location: str = ""
    accepted: AcceptedState | None = None


class DroppedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that was dropped, and whose rows are in tables.

    :param read: ``topic-partition`` of each input partition of which its tasks have processed something ->
        the offsets, ``[from, to)``.
    :param topic_ids: topic of these partitions -> its id.
    :param tables: name of a table's sink -> its commit.
    """

    run_id: str
    read: dict[PartitionName, tuple[int, int]]
    topic_ids: dict[str, str]
    tables: dict[str, LandedTable]


class RemovedRows(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a table that a reset takes out.

    :param sequence: number of the commit that does so.
    :param runs: the runs whose rows go -> the commits that added them.
    """

    sequence: int
    runs: dict[str, LandedTable]

    @property
    def table(self) -> LandedTable:
        """One of the commits, which says which table it is."""
        return next(iter(self.runs.values()))


class DroppedSlice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slice that a reset drops, whose tasks have written files for tables.

    :param slice: the slice.
    :param list_stop: end of the list of its files, if it was frozen; -1 for the log's end once all tasks are
        fenced.
    """

    slice: Slice
    list_stop: int = -1


class ResetStage(enum.Enum):
    """The stage of a reset: ``STOPPING -> DELETING -> DONE``, or at once ``STOPPING -> DONE`` when no topic
    is to be deleted, and no row to be taken out. Until it is done, no run begins.
    """

    STOPPING = "stopping"
    DELETING = "deleting"
    DONE = "done"


class ResetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The application's last reset; one record in the ledger topic.

    :param stage: the step that it has reached.
    :param begun_ms: time at which the reset began, epoch milliseconds.
    :param command: command line of the reset: for messages, and to recognize a repetition.
    :param positions: ``topic-partition`` -> the offset at which the next run starts if the partition has no
        committed offset. Takes the place of the last run's stop offsets.
    :param topic_ids: topic -> the id that the last run knew, for topics that the reset did not accept as they
        are.
    :param read: topic -> the number of partitions that the last run knew, for the same topics: where
        reading ended in one that has no position is not known.
    :param transactional_ids: transactional ids of tasks that may still be at work when the stage is STOPPING.
    :param deleting: internal topics to delete, with their partition counts.
    :param reset_id: name of the reset; empty if it has none.
    :param written_to: ``topic-partition`` -> the end of what runs have written to the user's own topics
        between subtopologies, where records may be unread; None while tasks may still write.
    :param dropping: the slice that is dropped, until its files have landed in their tables.
    :param removing: name of a table's sink -> rows to take out when the stage is DELETING.
    """

    stage: ResetStage
    begun_ms: Moment
    command: str
    positions: dict[PartitionName, int] = {}
    topic_ids: dict[str, str] = {}
    read: dict[str, PartitionCount] = {}
    transactional_ids: tuple[str, ...] = ()
    deleting: dict[str, PartitionCount] = {}
    reset_id: str = ""
    written_to: dict[PartitionName, int | None] = {}
    dropping: DroppedSlice | None = None
    removing: dict[str, RemovedRows] = {}

    def __post_init__(self) -> None:
        refuse_too_many(self.deleting.values())

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """The offsets at which the next run starts, in every partition that the reset knows."""
        return {partition_named(name): offset for name, offset in self.positions.items()}
