"""Makes the documents of ``expand``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from airflow_kstreams.batch.expand.growth import GrowthPlan
from airflow_kstreams.batch.expand.processor_plan import CopiedSource, ProcessorPlan
from airflow_kstreams.batch.report.growing import growth_notes


class AddedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that a topic gains.

    :param partition: its number.
    :param task: task that reads it.
    :param keys_come_from: numbers of the partitions in which its keys lie until it exists.
    :param waits_for: partitions that it would wait for if a run began now.
    """

    partition: int
    task: str
    keys_come_from: Sequence[int]
    waits_for: Sequence[str]


class PartitionsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of a topic, or the plan of it.

    :param application_id: the application.
    :param dry_run: whether nothing was done.
    :param topic: the topic.
    :param before: number of its partitions before.
    :param count: number of its partitions after.
    :param subtopology: subtopology that reads it.
    :param tasks: number of tasks of that subtopology.
    :param partition_counts: partition counts of the topic so far; null where no state depends on its keys.
    :param kinds: kinds of growth that are possible; null where no state depends on its keys.
    :param new: the new partitions, where state depends on keys.
    :param continuous: whether the application runs continuously, and reads them once it is started again.
    :param notes: what producers must do.
    """

    application_id: str
    dry_run: bool
    topic: str
    before: int
    count: int
    subtopology: int
    tasks: int
    partition_counts: Sequence[int] | None
    kinds: Sequence[str] | None
    new: Sequence[AddedPartition]
    continuous: bool
    notes: Sequence[str]


class CopiedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the copy of one changelog partition.

    :param changelog: the changelog partition.
    :param processors: numbers of the new processors that take keys from it.
    :param copied: offset up to which it is copied; null before the first step.
    :param end: end of the partition.
    :param entries: entries copied.
    :param bytes: bytes copied.
    """

    changelog: str
    processors: Sequence[int]
    copied: int | None
    end: int
    entries: int
    bytes: int


class ProcessorGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """More processors of a subtopology.

    :param subtopology: the subtopology.
    :param before: number of its processors now.
    :param count: number that it is to have.
    :param partitions: source topic -> number of its partitions.
    :param reads: partitions that the new processors will read.
    :param sources: how far the copy of their state is.
    """

    subtopology: int
    before: int
    count: int
    partitions: Mapping[str, int]
    reads: Sequence[str]
    sources: Sequence[CopiedState]


class ProcessorsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """More processors on their way, or the end of them.

    :param application_id: the application.
    :param dry_run: whether nothing was done.
    :param expansions: the subtopologies that grow; by abort, those that are given up.
    """

    application_id: str
    dry_run: bool
    expansions: Sequence[ProcessorGrowth]


def partitions_document(plan: GrowthPlan, *, dry_run: bool) -> PartitionsDocument:
    """Make the document of ``expand partitions``."""
    waits = {each.partition: [*map(str, each.waits_for)] for each in plan.waits}
    return PartitionsDocument(
        application_id=plan.application_id,
        dry_run=dry_run,
        topic=plan.topic,
        before=plan.before,
        count=plan.count,
        subtopology=plan.subtopology,
        tasks=plan.tasks,
        partition_counts=None if plan.grown is None else plan.grown.history,
        kinds=None if plan.grown is None else plan.grown.kinds,
        new=[
            AddedPartition(
                partition=new.partition.partition,
                task=f"{plan.subtopology}_{new.group}",
                keys_come_from=new.ancestors,
                waits_for=waits.get(new.partition, ()),
            )
            for new in plan.new
        ],
        continuous=plan.continuous,
        notes=[*growth_notes(plan)],
    )


def processors_document(
    application_id: str, plans: Sequence[ProcessorPlan], *, dry_run: bool
) -> ProcessorsDocument:
    """Make the document of ``expand processors`` and ``expand abort``."""
    return ProcessorsDocument(
        application_id=application_id, dry_run=dry_run, expansions=[*map(processor_growth, plans)]
    )


def processor_growth(plan: ProcessorPlan) -> ProcessorGrowth:
    """Make the part of a document that describes more processors of one subtopology."""
    return ProcessorGrowth(
        subtopology=plan.sub.id,
        before=plan.before,
        count=plan.before if plan.after is None else plan.after.count,
        partitions=plan.entry.partitions,
        reads=[*map(str, plan.reads)],
        sources=[*map(_copied, plan.sources)],
    )


def _copied(source: CopiedSource) -> CopiedState:
    return CopiedState(
        changelog=str(source.changelog),
        processors=source.added,
        copied=source.position,
        end=source.end,
        entries=source.told.copied,
        bytes=source.told.copied_bytes,
    )
