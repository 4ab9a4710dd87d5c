"""Does the first steps of every start, with an end or without: checks topics, fences old tasks, reads what
they left.

Order and why: (1) topics first, so that a missing one changes nothing; (2) fence the last run's transactional
ids, so that the offsets read next cannot move; (3) committed offsets, stable. Nothing here writes to the
protocol's topics.

Global tables: begin freezes the log start and the last stable offset of every partition of their topics. Both
stand in the run's plan, and so in both markers, beside the slice. Nothing of them is committed, and finish
asks for none. Every task and every attempt of the run reads exactly this piece.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.evidence.complete_logs import ChangelogLogs, find_lost_state, ledger_seen
from airflow_kstreams.batch.evidence.live_application import with_live_counts
from airflow_kstreams.batch.evidence.moved_offsets import member_warnings
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns, recall, with_committed
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import (
    KnownTopics,
    known_topics,
    refuse_foreign,
    refuse_output_of_another,
)
from airflow_kstreams.batch.growing.grown_groups import Bound, grown_topics, without_kinds
from airflow_kstreams.batch.growing.takeover import take_over
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss, gone, vanished
from airflow_kstreams.batch.protocol.logs.fence import fence, written_topics
from airflow_kstreams.batch.protocol.needed_permissions import naming_permissions, run_permissions
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import Parked
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.metadata_records import check_keys
from airflow_kstreams.batch.protocol.slice.slice import FrozenTable, RunPlan, Thresholds, transactional_ids
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.begin.intervals import repeated_effects
from airflow_kstreams.batch.run.begin.left_unread import dropped_inputs, refuse_unread
from airflow_kstreams.batch.run.begin.parked_before import (
    beside_offsets,
    parked_by_either,
    parked_left,
    parking_partitions,
    refuse_orphaned,
)
from airflow_kstreams.batch.run.begin.placed_keys import refuse_keys_apart
from airflow_kstreams.batch.run.begin.seen_keys import KeyLook
from airflow_kstreams.batch.run.begin.unsaid_growth import refuse_unsaid_growth
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.source_topics import SourceTopics, check_topics, ensure_topics, gone_warnings
from airflow_kstreams.streams.partitioning.partition_groups import all_partitions, described_partitions
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, TopicDescription, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.record_queue import LastRecord
from airflow_kstreams.streams.topology.topology import has_dead_letters

log = package_log(__name__)

#: Number of warnings that a plan and the ledger hold; each may name a partition, of which there may be
#: thousands.
_WARNINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """The request for a slice, or for a continuous run.

    :param generation: 1 when a driver begins it, 0 when it waits for its first driver.
    :param groups: calls the user's own partition grouper; None when the plan has none.
    :param interval_ms: the data interval of the run, epoch milliseconds; None if it has none.
    :param dag_id: the DAG that starts the run; empty if none.
    """

    run_id: str
    plan: TopologyPlan
    generation: int
    groups: AskGroups | None = None
    interval_ms: tuple[int, int] | None = None
    dag_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groundwork:
    """The facts from which a start is decided.

    :param facts: the facts that metadata topic and ledger give.
    :param topics: source topics, their partitions and groups.
    :param partitions: all partitions of the source topics.
    :param committed: committed offsets of these partitions.
    :param prior: traces of earlier runs, the committed offsets included.
    :param known: internal topics of earlier runs.
    :param changelogs: ids, starts and ends of the changelogs.
    :param parked: records that earlier runs left parked.
    :param taken_over: subtopologies that have more processors from this start on.
    :param warnings: warnings for an operator.
    :param last_alike: id of the last finished run, if it ran this topology; else empty.
    :param live: ledger of the live application if this is a backfill; else an empty one.
    :param fence: time of the fence.
    """

    facts: RunFacts
    topics: SourceTopics
    partitions: tuple[TopicPartition, ...]
    committed: Mapping[TopicPartition, CommittedOffset]
    prior: PriorRuns
    known: KnownTopics
    changelogs: ChangelogLogs
    parked: Parked
    taken_over: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()
    last_alike: str = ""
    live: Ledger = field(default_factory=Ledger)
    fence: StepTimes | None = None


def lay_groundwork(session: CoordinatorSession, *, request: SliceRequest, facts: RunFacts) -> Groundwork:
    """Check the topics, fence the tasks of the last run, and read the offsets that it has committed.

    :raises TopologyError: topics are missing or do not fit, internal ones are not the application's, or
        records are left in topics that the topology does not read any more.
    :raises DataLossError: topics or partitions that runs have read are gone, or state is.
    """
    plan, ledger, settings = request.plan, facts.ledger, session.settings
    prior = recall(plan, facts)
    parking = parking_partitions(ledger.assignment, plan.application_id)
    known = known_topics(facts)
    live = Ledger()
    if session.settings.backfill_of:
        with session.reading:
            live = session.neighbours.ledger_of(session.settings.backfill_of)

    def refuse_loss(found: Mapping[str, TopicDescription]) -> None:
        _refuse_vanished(session, request, prior, found)
        with session.reading:
            refuse_foreign(session.neighbours, plan, found, known)
            letters = settings.dead_letter_topic if has_dead_letters(plan, settings) else ""
            refuse_output_of_another(session.neighbours, plan, found, letters)
        refuse_losses(find_lost_state(plan, ledger, found), request)

    def refuse_groups(grouped: Mapping[int, GroupedPartitions], bound: Bound) -> None:
        refuse_orphaned(ledger, plan, grouped, seen)
        look = KeyLook(session, ledger, request.interval_ms)
        refuse_unsaid_growth(look, plan, grouped, bound)
        refuse_keys_apart(look, plan, grouped, ledger)

    # The offsets of open transactions are read below, once those are over.
    seen = parked_left(facts, session.committed_so_far(parking)) if parking else {}
    recorded = with_live_counts(ledger.assignment, live)
    with naming_permissions(run_permissions(plan, session.settings)):
        checked = check_topics(
            session.admin,
            plan,
            session.settings,
            groups=request.groups,
            recorded=recorded,
            refuse_loss=refuse_loss,
            refuse_groups=refuse_groups,
        )
        topics = ensure_topics(session.admin, plan, session.settings, checked, recorded=recorded)
    # The same file may run with an end or without: a key that one of the two could not use is refused for
    # both.
    check_keys(plan, topics.partitions, topics.tasks)
    fencing_ms = session.clock.now_ms()
    _fence_last_tasks(session, request, facts, prior, topics)
    fence_times = StepTimes("fence", fencing_ms, session.clock.now_ms())
    refuse_unread(session, plan, facts)
    partitions = tuple(all_partitions({topic: topics.partitions[topic] for topic in plan.sources}))
    changelogs = ChangelogLogs.read(session.admin, topics.changelog_ids, topics.tasks_of(plan.changelogs))
    refuse_losses(changelogs.find_truncated(plan, ledger), request)
    committed = session.committed(partitions)
    others = sorted({*parking} - {*partitions})
    parked: Parked = parked_left(facts, {**committed, **(session.committed(others) if others else {})})
    refuse_orphaned(ledger, plan, topics.grouped, parked)
    prior = with_committed(prior, committed, plan, topics.topic_ids, partitions=partitions)
    read = ledger.assignment.topics
    topics = dataclasses.replace(topics, grouped=without_ruled_out(plan, topics.grouped, prior, read))
    taken = take_over(session, plan, topics.grouped, topics.bound, committed)
    if taken.expansions:
        topics = dataclasses.replace(topics, grouped=taken.grouped)
        check_keys(plan, topics.partitions, topics.tasks)
        tasks = topics.tasks_of(plan.changelogs)
        changelogs = ChangelogLogs.read(session.admin, topics.changelog_ids, tasks)
        parked = parked_by_either(plan, parked, taken.expansions)
    return Groundwork(
        facts=facts,
        topics=topics,
        partitions=partitions,
        committed=committed,
        prior=prior,
        known=known,
        changelogs=changelogs,
        parked=parked,
        taken_over=frozenset(taken.expansions),
        warnings=(
            *gone_warnings(plan, ledger),
            *dropped_inputs(session, plan, facts),
            *taken.warnings,
            *(repeated_effects(plan) if session.settings.keeps_to_interval else ()),
            *member_warnings(session.admin, plan.application_id),
        ),
        last_alike=_last_alike(plan, ledger),
        live=live,
        fence=fence_times,
    )


def refuse_losses(losses: Sequence[Loss], request: SliceRequest) -> None:
    """Refuse to begin if there are losses.

    :raises DataLossError: there is at least one loss.
    """
    if losses:
        raise data_loss(losses, request.plan.application_id, run_id=request.run_id)


def without_ruled_out(
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    prior: PriorRuns,
    read: Collection[str] = (),
) -> dict[int, GroupedPartitions]:
    """Leave out the kinds of growth that keys have excluded, as tasks have written beside their offsets.

    :param read: the topics that runs have read; all of the plan's unless given.
    :raises TopologyError: no kind is left for a topic.
    """
    ruled_out: dict[str, set[GrowthKind]] = {topic: set() for topic in grown_topics(grouped.values())}
    for tp in prior.committed:
        if tp.topic in ruled_out:
            ruled_out[tp.topic].update(prior.ruled_out(tp))
    return without_kinds(plan, grouped, ruled_out, read)


def run_plan(
    session: CoordinatorSession,
    request: SliceRequest,
    ground: Groundwork,
    *,
    warnings: tuple[str, ...] = (),
) -> RunPlan:
    """Return the plan of a run, with an end or without, and log its warnings.

    :param warnings: warnings of this kind of run.
    """
    topics = ground.topics
    warnings += topics.warnings
    for warning in warnings:
        log.warning("%s", warning)
    return RunPlan(
        topology=request.plan,
        partitions=dict(topics.partitions),
        topic_ids=dict(topics.topic_ids),
        tasks={str(sub): count for sub, count in topics.tasks.items()},
        stop_hash="",
        begun_ms=session.clock.now_ms(),
        groups={str(sub): entry.groups for sub, entry in topics.grouped.items() if entry.groups},
        warnings=_first_few(warnings),
        grown={str(sub): dict(entry.grown) for sub, entry in topics.grouped.items() if entry.grown},
        processors={
            str(sub): entry.processors
            for sub, entry in topics.grouped.items()
            if entry.processors is not None
        },
        changelog_ids=topics.changelog_ids,
        output_ids=dict(topics.output_ids),
        global_tables=_frozen_tables(session.admin, request.plan),
        dag_id=request.dag_id,
        autostop_at=session.settings.autostop_at,
        thresholds=Thresholds(
            quiet_times=session.settings.suspicion_quiet_times,
            records_times=session.settings.suspicion_records_times,
            lost_share=session.settings.suspicion_lost_share,
        ),
        ledger=ledger_seen(ground.facts.ledger),
    )


def _first_few(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the warnings that are kept with the run: the first few, and the number of the others."""
    more = len(warnings) - _WARNINGS
    return warnings if more <= 0 else (*warnings[:_WARNINGS], f"{more} more: see the log of begin")


def start_offsets(
    request: SliceRequest,
    ground: Groundwork,
    starts: Mapping[TopicPartition, int],
    *,
    stop_set: str = "",
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that a start commits under the run's id, each with its partition's times, the ends
    of its task's changelogs, and the number of records that its task has parked.

    The last record that was read is kept where the offset goes no further back than it was: between the two
    lie markers and aborted records only.

    :param stop_set: stop set of the slice that starts; empty for a continuous run.
    """
    known = known_due(ground)
    prior, ours = ground.prior, OffsetMetadata(run_id=request.run_id, stop_set=stop_set)
    grown = grown_topics(ground.topics.grouped.values())
    ends = ground.changelogs.beside_offsets(request.plan, ground.topics.grouped)
    parked = beside_offsets(request.plan, ground.topics.grouped, ground.parked)
    found: dict[TopicPartition, CommittedOffset] = {}
    for tp, at in starts.items():
        last = prior.last_record(tp)
        kept = last if at >= (prior.remembered(tp) or 0) else LastRecord()
        ruled_out = prior.ruled_out(tp) if tp.topic in grown else ()
        metadata = msgspec.structs.replace(
            ours.of_partition(prior.times_of(tp), kept, ruled_out),
            changelog_ends=ends.get(tp, ()),
            next_due_ms=known.get(tp),
            parked=parked[tp],
        )
        found[tp] = CommittedOffset(at, metadata.encode())
    return found


def known_due(ground: Groundwork) -> dict[TopicPartition, int]:
    """Return by partition the time at which its task has work next, where that is known: if the last run was
    of the same topology, and none has begun since.

    It stays true where processors have been added: their keys come from one processor, which has read their
    partitions, and none of these has less time than that processor has said.
    """
    if not ground.last_alike:
        return {}
    told = {tp: ground.prior.metadata_of(tp) for tp in ground.partitions}
    return {
        tp: metadata.next_due_ms
        for tp, metadata in told.items()
        if metadata is not None and metadata.run_id == ground.last_alike and metadata.next_due_ms is not None
    }


def _last_alike(plan: TopologyPlan, ledger: Ledger) -> str:
    last = ledger.last()
    return last.run_id if last is not None and last.topology_hash == plan.topology_hash else ""


def _fence_last_tasks(
    session: CoordinatorSession,
    request: SliceRequest,
    facts: RunFacts,
    prior: PriorRuns,
    topics: SourceTopics,
) -> None:
    """Fence the tasks of the last run, so that the offsets read next cannot move.

    If it is not known which tasks these are, although records were read, the tasks of the new run are fenced.

    :raises KafkaClientError: the broker did not answer.
    """
    last = facts.last_tasks
    ids = last.transactional_ids
    if ids is None:
        read = prior.read or facts.state is RunState.RUNNING
        tasks = {str(sub): count for sub, count in topics.tasks.items()}
        ids = transactional_ids(session.application_id, tasks) if read else ()
    written = written_topics(request.plan, *last.topologies, settings=session.settings)
    fence(session.cluster, ids, admin=session.admin, topics=written)


def find_vanished(topics: Set[str], found: Mapping[str, TopicDescription], prior: PriorRuns) -> list[Loss]:
    """Return losses for topics and partitions that runs have read and that are gone, unless a person accepted
    that by setting the offset of every partition that is left.

    :param topics: source topics that the engine does not create.
    """
    losses: list[Loss] = []
    for topic in sorted(topics & prior.read.keys()):
        count = found[topic].partitions if topic in found else 0
        there = [TopicPartition(topic, number) for number in range(count)]
        missing = [TopicPartition(topic, number) for number in range(count, prior.read[topic])]
        if not missing or (there and all(map(prior.set_by_a_person, there))):
            continue
        offsets = [(tp.partition, prior.last_stops.get(tp)) for tp in missing]
        losses.append(vanished(topic, offsets, there) if there else gone(topic, offsets))
    return losses


def _refuse_vanished(
    session: CoordinatorSession,
    request: SliceRequest,
    prior: PriorRuns,
    found: Mapping[str, TopicDescription],
) -> None:
    """Refuse to go on without topics and partitions that runs have read."""
    topics = {*request.plan.sources} - {*request.plan.repartition_topics}
    losses = find_vanished(topics, found, prior)
    if losses:
        # Only now the committed offsets matter, which tell whether a person accepted it.
        there = {tp for loss in losses for tp in loss.partitions if tp.topic in found}
        losses = find_vanished(topics, found, dataclasses.replace(prior, committed=session.committed(there)))
    refuse_losses(losses, request)


def _frozen_tables(admin: AdminPort, plan: TopologyPlan) -> tuple[FrozenTable, ...]:
    """Return the bounds of the topics of a plan's global tables; the topics exist."""
    if not plan.globals:
        return ()
    found = admin.describe_topics(plan.globals)
    partitions = described_partitions(found, plan.globals)
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_committed")
    return tuple(
        FrozenTable(
            topic=topic,
            topic_id=found[topic].topic_id,
            spans=tuple((starts[tp], max(starts[tp], ends[tp])) for tp in partitions if tp.topic == topic),
        )
        for topic in plan.globals
    )
