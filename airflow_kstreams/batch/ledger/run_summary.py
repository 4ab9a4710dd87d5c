"""Defines the summary of a finished run: its entry in the ledger."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.protocol.offsets.parked import sum_parked
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import (
    BehindCut,
    FrozenPartition,
    FrozenTable,
    partition_named,
)
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes


def completed(parked: Mapping[str, int | None]) -> str:
    """Return how a run ended: with records parked, by node, or with none."""
    if not parked:
        return "completed"
    number = sum_parked(parked)
    return f"completed_with_parked({'unknown' if number is None else number})"


class SubtopologyTopics(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The topics that one subtopology of a finished run read and wrote.

    :param id: of the subtopology.
    :param sources: topics it read.
    :param sinks: topics it wrote, changelogs excluded.
    """

    id: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


class TopicRead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The offsets that a run read of an input topic, its partitions added up.

    :param topic: its name.
    :param partitions: how many it had.
    :param start: sum of their start offsets.
    :param stop: sum of their stop offsets.
    """

    topic: str
    partitions: int
    start: int
    stop: int


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of a finished run. The ledger's entry, kept under the run id, has what identifies it and
    its totals; what it has per task and partition is kept apart, and for a while only, see
    :mod:`airflow_kstreams.batch.ledger.details`.

    :param run_id: the run.
    :param application_id: the application.
    :param begun_ms: when the slice was frozen, epoch milliseconds.
    :param finished_ms: when the finished marker was written, epoch milliseconds.
    :param generation: of the slice at the end: how many drivers have claimed it.
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
    :param warnings: what an operator should look at, one line each, the first few.
    :param taken_back_ms: when a reset took back what it processed, epoch milliseconds; 0 = never. Such
        a run is not finished any more: it may run again under its id.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param topics: what each subtopology read and wrote.
    :param dag_id: the DAG whose run it was; empty if none.
    :param autostop_at: the setting by which the stop offsets were frozen.
    :param counts: what became of the records, by topic and node; None if there was no room for those of a
        task beside its offsets: unknown.
    :param read: what it read of each input topic.
    :param task_count: how many tasks it had.
    :param records_skipped: records left out because they are dated outside the interval that the run kept to.
    :param records_ahead: records dated too far ahead that were processed.
    :param previous: offset of the entry of the run that finished before it, -1 if none did.
    :param details: where in the ledger its details were written, from and to offset; None before they are.
    :param parked: node -> how many records it left parked, None where that is not known; nodes without such
        are absent.
    :param parked_due_ms: when the first of them is due, epoch milliseconds; None when none is, or that is not
        known.
    :param behind_cut: records behind its cut that are dated before it, when it began; None where no cut by
        time was made.
    :param global_tables: what it saw of global tables.
    :param advanced_to_ms: to which moment its end brought stream time, epoch milliseconds; None if to none.
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
    task_count: int = 0
    records_skipped: int = 0
    records_ahead: int = 0
    previous: int = -1
    details: tuple[int, int] | None = None
    parked: dict[str, int | None] = {}
    parked_due_ms: int | None = None
    behind_cut: BehindCut | None = None
    global_tables: tuple[FrozenTable, ...] = ()
    advanced_to_ms: int | None = None

    @property
    def state(self) -> str:
        """How it ended: ``completed``, or ``completed_with_parked(n)`` when records wait for their next
        attempt.
        """
        return completed(self.parked)

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
        """Topics that it read."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return self.input_topics | read | {partition_named(name).topic for name in self.intermediate_stops}

    @property
    def outputs(self) -> set[str]:
        """Topics that it wrote and did not read."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return {topic for sub in self.topics for topic in sub.sinks} - read

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the next run starts: the stop offset of every partition, inputs and intermediates."""
        stops = {part.topic_partition: part.stop_offset for part in self.inputs}
        return stops | {partition_named(name): stop for name, stop in self.intermediate_stops.items()}

    @property
    def records_in(self) -> int | None:
        """Records consumed from input topics; None where the counts are not known."""
        return None if self.counts is None else self.counts.consumed(self.topics)

    @property
    def records_out(self) -> int | None:
        """Records written to topics that the run did not read; None where the counts are not known."""
        return None if self.counts is None else self.counts.produced(self.topics)
