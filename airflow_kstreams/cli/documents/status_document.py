"""Makes the document of ``status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from airflow_kstreams.batch.growing.grown_groups import BlockedPartition
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion
from airflow_kstreams.batch.inspect.status import RunStatus
from airflow_kstreams.batch.inspect.tables.listed_files import LandedRows, WaitingRows, landed_by
from airflow_kstreams.batch.ledger.history import Attempt
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.metrics import figures, node_figures
from airflow_kstreams.batch.protocol.offsets.parked import retry_topic
from airflow_kstreams.batch.report.counts import count_rows
from airflow_kstreams.cli.documents.growth_documents import ProcessorGrowth, processor_growth


class WorkingRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that goes on, or the last one.

    :param run_id: its id.
    :param generation: how often it has changed hands.
    :param begun_ms: time at which its slice was frozen, epoch milliseconds.
    :param continuous: whether it is a run without an end.
    """

    run_id: str
    generation: int
    begun_ms: int
    continuous: bool


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that was not released; whether its owner is alive, one look cannot say.

    :param owner: the driver.
    :param run_id: run that the driver was started for.
    :param renewed_ms: time at which it was renewed last, epoch milliseconds by the owner's clock.
    """

    owner: str
    run_id: str
    renewed_ms: int


class LastReset(msgspec.Struct, frozen=True, kw_only=True):
    """The last reset, where no run has finished since.

    :param stage: step that it has reached.
    :param begun_ms: time at which it began, epoch milliseconds.
    :param command: its command line.
    """

    stage: str
    begun_ms: int
    command: str


class PartitionOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of an input partition.

    :param topic: the topic.
    :param partition: the partition.
    :param committed: committed offset; null if there is none.
    :param stop: stop offset of the slice; null outside of it.
    :param end: last stable offset; null for a partition that does not exist.
    :param lag: offsets that the next run would find; null for a partition that does not exist.
    """

    topic: str
    partition: int
    committed: int | None
    stop: int | None
    end: int | None
    lag: int | None


class TopicUnderState(msgspec.Struct, frozen=True, kw_only=True):
    """A topic whose partitions decide where state is.

    :param subtopology: subtopology that reads it.
    :param topic: the topic.
    :param partition_counts: its partition counts so far.
    :param kinds: kinds of growth that are possible; empty for a topic that has not grown.
    :param count_now: its partition count now; null if it does not exist.
    :param tasks: tasks of the subtopology.
    """

    subtopology: int
    topic: str
    partition_counts: Sequence[int]
    kinds: Sequence[str]
    count_now: int | None
    tasks: int


class WaitingPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that waits for those that its keys came from.

    :param partition: the partition.
    :param task: task that reads it.
    :param waits_for: partitions that are to be read first.
    :param offsets_to_go: offsets of these that are still to be read, at most.
    """

    partition: str
    task: str
    waits_for: Sequence[str]
    offsets_to_go: int


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a task, by the names of docs/explanation/metrics.md; null where they are unknown.

    :param task: the task.
    :param figures: its figures.
    :param calls: asynchronous node -> the figures of its calls.
    """

    task: str
    figures: Mapping[str, float | None]
    calls: Mapping[str, Mapping[str, float | None]]


class ParkedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records that wait to be called again.

    :param node: the node.
    :param topic: its retry topic.
    :param partition: partition of the retry topic.
    :param records: number of records; null where it is not known.
    """

    node: str
    topic: str
    partition: int
    records: int | None


class RunCount(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a run that had the same fate at one place.

    :param place: a topic or a node.
    :param what: what became of the records.
    :param records: number of the records.
    """

    place: str
    what: str
    records: int


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run.

    :param run_id: its id.
    :param begun_ms: time at which its slice was frozen, epoch milliseconds.
    :param finished_ms: time at which it was finished.
    :param empty: whether there was nothing new.
    :param taken_back: whether a reset has taken back what it processed.
    :param records_in: records read; null if unknown.
    :param records_out: records written; null if unknown.
    :param parked: node -> the records that it left parked; null where that is not known.
    :param counts: records by place and fate; empty where they are not kept.
    :param tables: the snapshots that it has made of tables.
    """

    run_id: str
    begun_ms: int
    finished_ms: int
    empty: bool
    taken_back: bool
    records_in: int | None
    records_out: int | None
    parked: Mapping[str, int | None]
    counts: Sequence[RunCount]
    tables: Sequence[LandedRows]


class RunStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the run that is under way, or that a driver has to go on with.

    :param run_id: the run.
    :param text: one line: how it stands, and since when.
    :param attempt: its last attempt; null if none is kept.
    :param command: command that goes on with it; empty if none is needed.
    :param waiting: one line on a run that comes after it and has failed since; empty without one.
    """

    run_id: str
    text: str
    attempt: Attempt | None
    command: str
    waiting: str


class StatusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of an application.

    :param application_id: the application.
    :param state: state of its batch runs.
    :param run: run that goes on, or the last one; null if none has begun.
    :param standing: state of the run that is under way, or that a driver has to go on with; null without one.
    :param lease: lease that was not released; null without one.
    :param last_reset: last reset; null if a run has finished since, or there was none.
    :param offsets: offsets of the input partitions.
    :param under_state: topics whose partitions decide where state is.
    :param waiting: partitions that wait for those that their keys came from.
    :param expansions: processors on their way; null if this user may not see them.
    :param tasks: figures of the run's tasks.
    :param parked: records that wait to be called again.
    :param parked_due_ms: time at which the first of them is due, epoch milliseconds; null if none is.
    :param rows_waiting: rows that the run under way has listed for tables and that are in no snapshot yet;
        null if this user may not read the list.
    :param not_seen: what of that list could not be read, and why.
    :param runs: finished runs, oldest first, as many as --runs says.
    :param metadata: records of the metadata topic with --records; else empty.
    :param suspicions: what is odd about the last run, and about what waits or does not come.
    """

    application_id: str
    state: str
    run: WorkingRun | None
    standing: RunStanding | None
    lease: HeldLease | None
    last_reset: LastReset | None
    offsets: Sequence[PartitionOffsets]
    under_state: Sequence[TopicUnderState]
    waiting: Sequence[WaitingPartition]
    expansions: Sequence[ProcessorGrowth] | None
    tasks: Sequence[TaskFigures]
    parked: Sequence[ParkedRecords]
    parked_due_ms: int | None
    rows_waiting: Sequence[WaitingRows] | None
    not_seen: Sequence[str]
    runs: Sequence[PastRun]
    metadata: Sequence[str]
    suspicions: Sequence[Suspicion]


def status_document(
    found: RunStatus, *, runs: int, records: bool, suspicions: Sequence[Suspicion] = ()
) -> StatusDocument:
    """Make the document of ``status``.

    :param runs: number of finished runs.
    :param records: whether to show the records of the metadata topic.
    :param suspicions: what is odd about the application.
    """
    run = found.continuous or found.slice
    return StatusDocument(
        application_id=found.application_id,
        state=found.state.value,
        run=None
        if run is None
        else WorkingRun(
            run_id=run.run_id,
            generation=run.generation,
            begun_ms=run.plan.begun_ms,
            continuous=found.continuous is not None,
        ),
        standing=None
        if found.standing is None
        else RunStanding(
            run_id=found.standing.run_id,
            text=found.standing.text,
            attempt=found.standing.attempt,
            command=found.standing.command,
            waiting=found.standing.waiting,
        ),
        lease=None
        if found.lease is None
        else HeldLease(
            owner=found.lease.owner, run_id=found.lease.owner_run_id, renewed_ms=found.lease_renewed_ms
        ),
        last_reset=None
        if found.reset is None
        else LastReset(
            stage=found.reset.stage.value, begun_ms=found.reset.begun_ms, command=found.reset.command
        ),
        offsets=[*_offsets(found)],
        under_state=[*_under_state(found)],
        waiting=[*map(_waiting, found.blocked)],
        expansions=None if found.expansions is None else [*map(processor_growth, found.expansions)],
        tasks=[
            TaskFigures(task=report.task_id, figures=figures([report]), calls=node_figures([report]))
            for report in found.tasks
        ],
        parked=[
            ParkedRecords(
                node=node, topic=retry_topic(found.application_id, node), partition=group, records=count
            )
            for node, by_group in sorted(found.parked.items())
            for group, count in sorted(by_group.items())
        ],
        parked_due_ms=found.parked_due_ms,
        rows_waiting=found.waiting,
        not_seen=found.not_seen,
        runs=[*map(_finished, last_runs(found, runs))],
        metadata=found.metadata if records else (),
        suspicions=suspicions,
    )


def last_runs(found: RunStatus, number: int) -> list[RunSummary]:
    """Return the last finished runs, and those that were taken back, oldest first."""
    shown = sorted((*found.runs, *found.taken_back), key=lambda run: run.finished_ms)
    return shown[max(0, len(shown) - number) :]


def _offsets(found: RunStatus) -> Iterator[PartitionOffsets]:
    stops = {} if found.slice is None else {part.topic_partition: part for part in found.slice.inputs}
    for tp in sorted(found.positions):
        yield PartitionOffsets(
            topic=tp.topic,
            partition=tp.partition,
            committed=found.committed[tp].offset if tp in found.committed else None,
            stop=stops[tp].stop_offset if tp in stops else None,
            end=found.ends.get(tp),
            lag=found.lag.get(tp),
        )


def _under_state(found: RunStatus) -> Iterator[TopicUnderState]:
    for sub, entry in sorted(found.grouped.items()):
        for topic, count in sorted(entry.partitions.items()):
            grown = entry.grown.get(topic)
            yield TopicUnderState(
                subtopology=sub,
                topic=topic,
                partition_counts=(count,) if grown is None else grown.history,
                kinds=() if grown is None else grown.kinds,
                count_now=found.counts.get(topic),
                tasks=len(entry.by_group),
            )


def _waiting(each: BlockedPartition) -> WaitingPartition:
    return WaitingPartition(
        partition=str(each.partition),
        task=f"{each.subtopology}_{each.group}",
        waits_for=[*map(str, each.waits_for)],
        offsets_to_go=each.ahead,
    )


def _finished(run: RunSummary) -> PastRun:
    return PastRun(
        run_id=run.run_id,
        begun_ms=run.begun_ms,
        finished_ms=run.finished_ms,
        empty=run.empty,
        taken_back=bool(run.taken_back_ms),
        records_in=run.records_in,
        records_out=run.records_out,
        parked=run.parked,
        tables=landed_by(run),
        counts=[RunCount(place=row.place, what=row.what, records=row.records) for row in count_rows(run)],
    )
