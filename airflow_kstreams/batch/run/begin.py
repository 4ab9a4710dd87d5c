"""Builds a new slice: checks, fences, freezes. Nothing here writes to the protocol's topics.

Order and why: (1) topics first, so that a missing one changes nothing; (2) fence the previous run's
transactional ids, so that the offsets read next cannot move; (3) committed offsets, stable; (4) log bounds;
(5) loss checks; (6) freeze. What happens in Kafka after (4) belongs to the next run. (4) to (6) are in
``freeze.py``.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.protocol.ledger import Ledger
from airflow_kstreams.batch.protocol.metadata import Folded
from airflow_kstreams.batch.protocol.metadata_records import check_keys, stop_hash
from airflow_kstreams.batch.protocol.model import Assignment, RunPlan, RunState, Slice
from airflow_kstreams.batch.protocol.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.open_transactions import warnings_of
from airflow_kstreams.batch.protocol.partition_leaders import written_topics
from airflow_kstreams.batch.run.assignment import given_up, next_assignment
from airflow_kstreams.batch.run.fence import fence, last_tasks, transactional_ids
from airflow_kstreams.batch.run.freeze import SliceRequest, freeze, refuse_losses
from airflow_kstreams.batch.run.intervals import refuse_backwards
from airflow_kstreams.batch.run.offsets import find_vanished
from airflow_kstreams.batch.run.prior_runs import Known, known_now, recall
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.batch.run.topics import SourceTopics, ensure_topics
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, CommittedOffset, TopicDescription, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlice:
    """A slice that is ready to be written.

    :param slice: the slice.
    :param offsets: what to commit in the same transaction: all stops when the slice is empty, else the starts
        of intermediate partitions that tasks could not know.
    :param assignment: the partition groups to record in the same transaction; None when they are recorded
        already, or no task will run.
    """

    slice: Slice
    offsets: Mapping[TopicPartition, CommittedOffset]
    assignment: Assignment | None = None


def build_slice(
    session: CoordinatorSession,
    settings: ApplicationSettings,
    clock: Clock,
    *,
    request: SliceRequest,
    folded: Folded,
    ledger: Ledger,
) -> NewSlice:
    """Freeze a new slice.

    :param folded: state NEW or FINISHED, or a foreign writer's RUNNING, whose stop offsets are then kept.
    :raises ConfigError: the application keeps state of a later data interval.
    :raises TopologyError: topics are missing or do not fit.
    :raises DataLossError: what the new slice would start at is gone.
    """
    plan = request.plan
    refuse_backwards(plan, settings, request.interval_ms, ledger)
    known = recall(plan, folded, ledger)
    topics = ensure_topics(
        session.admin,
        plan,
        settings,
        groups=request.groups,
        recorded=ledger.assignment,
        refuse_loss=lambda found: refuse_vanished(session, request, known, found),
    )
    check_keys(plan, topics.partitions)
    partitions = [TopicPartition(topic, n) for topic in plan.sources for n in range(topics.partitions[topic])]
    fence_earlier(session, settings, folded, ledger, known, topics, plan)
    known = known_now(known, committed_offsets(session, partitions), plan, topics.topic_ids)
    frozen = freeze(session, settings, clock, request=request, folded=folded, known=known, topics=topics)
    inputs, empty, begun = frozen.inputs, frozen.empty, frozen.begun
    warnings = warnings_of(
        session.cluster,
        frozen.held,
        group_id=plan.application_id,
        clock=clock,
        comes_again=frozen.kept_ms is None,
    )
    lost = given_up(ledger.assignment, plan, topics.changelog_ids)
    for warning in (warnings := (*warnings, *frozen.warnings, *_expired(known, begun), *lost)):
        log.warning("%s", warning)
    slice_ = Slice(
        run_id=request.run_id,
        generation=request.generation,
        plan=RunPlan(
            topology=plan,
            partitions=dict(topics.partitions),
            topic_ids=dict(topics.topic_ids),
            tasks={str(sub): count for sub, count in topics.tasks.items()},
            stop_hash=stop_hash(inputs),
            transactional_ids=transactional_ids(settings.application_id, topics.tasks),
            begun_ms=clock.now_ms(),
            empty=empty,
            groups={str(sub): entry.groups for sub, entry in topics.grouped.items() if entry.groups},
            intermediate_starts={str(tp): at for tp, at in begun.items() if tp.topic in plan.intermediates},
            warnings=warnings,
            interval_ms=request.interval_ms,
            kept_ms=frozen.kept_ms,
            changelog_ids=topics.changelog_ids,
        ),
        inputs=inputs,
    )
    assignment = None if empty else next_assignment(ledger.assignment, topics.grouped, run_id=request.run_id)
    ours = OffsetMetadata(run_id=request.run_id)
    offsets = {
        tp: CommittedOffset(at, ours.at_times(known.times_of(tp)).encode()) for tp, at in begun.items()
    }
    return NewSlice(slice=slice_, offsets=offsets, assignment=assignment)


def fence_earlier(
    session: CoordinatorSession,
    settings: ApplicationSettings,
    folded: Folded,
    ledger: Ledger,
    known: Known,
    topics: SourceTopics,
    plan: TopologyPlan,
) -> None:
    """Fence the tasks of the last run, so that the offsets read next cannot move.

    When nothing tells which they are, although something was read, they are taken to be those of the new run.

    :raises KafkaClientError: the broker did not answer.
    """
    last = last_tasks(settings.application_id, folded, ledger)
    ids = last.transactional_ids
    if ids is None:
        read = known.read or folded.state is RunState.RUNNING
        ids = transactional_ids(settings.application_id, topics.tasks) if read else ()
    written = written_topics(plan, *last.topologies, settings=settings)
    fence(session.cluster, ids, admin=session.admin, topics=written)


def committed_offsets(
    session: CoordinatorSession, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the group's stable committed offsets."""
    with session.reading:
        return session.reader.committed(partitions)


def refuse_vanished(
    session: CoordinatorSession, request: SliceRequest, known: Known, found: Mapping[str, TopicDescription]
) -> None:
    """Refuse to go on without topics and partitions that runs have read."""
    topics = {*request.plan.sources} - {*request.plan.repartition_topics}
    losses = find_vanished(topics, found, known)
    if losses:
        # Only now it matters what a person accepted.
        there = {tp for loss in losses for tp in loss.partitions if tp.topic in found}
        losses = find_vanished(
            topics, found, dataclasses.replace(known, committed=committed_offsets(session, there))
        )
    refuse_losses(losses, request)


def _expired(known: Known, begun: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """Tell that committed offsets were gone and that the last run's stops took their place."""
    gone = sorted(tp for tp in begun if tp not in known.committed and known.remembered(tp) is not None)
    if not gone:
        return ()
    return (
        f"the committed offsets of {len(gone)} partitions were gone ({gone[0]} is the first; "
        "offsets.retention.minutes?): the run goes on where the last one stopped, so nothing is lost or read "
        "twice",
    )
