"""Builds a new slice: checks, fences, freezes. Nothing here writes to the protocol's topics.

Order and why: (1) to (3) are the groundwork of every start, in ``groundwork.py``: topics, fence, committed
offsets; (4) to (6) are in ``freeze.py``: log bounds, loss checks, freeze. What happens in Kafka after (4)
belongs to the next run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import next_own_topics
from airflow_kstreams.batch.growing.grown_groups import placements, with_counts
from airflow_kstreams.batch.ledger.facts import Assignment, OwnTopics
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.log_read import warnings_of
from airflow_kstreams.batch.protocol.offsets.parked import parked_total
from airflow_kstreams.batch.protocol.slice.metadata_records import stop_hash
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.batch.run.assignment import next_assignment
from airflow_kstreams.batch.run.begin.freeze import freeze
from airflow_kstreams.batch.run.begin.groundwork import (
    Groundwork,
    SliceRequest,
    lay_groundwork,
    run_plan,
    start_offsets,
)
from airflow_kstreams.batch.run.begin.intervals import refuse_backwards
from airflow_kstreams.batch.run.begin.stream_time import (
    closes_any,
    early_warnings,
    frozen_end_of_run,
    held_by_blocked,
    held_warnings,
    refuse_unfit_end_of_run,
)
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.tables.targets import frozen_targets
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.tables.table_port import TablesPort


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlice:
    """A slice that is ready to be written.

    :param slice: the slice to write.
    :param offsets: partition -> the offset to commit in the same transaction: the stop of every partition
        when the slice is empty, else the start of intermediate partitions that tasks could not know.
    :param assignment: partition groups to record in the same transaction, or as they are recorded already.
    :param own_topics: topics of the application's own, to record in the same transaction; None when they are
        recorded already.
    :param parked: node -> number of records that earlier runs left parked, None where it is not known.
    """

    slice: Slice
    offsets: Mapping[TopicPartition, CommittedOffset]
    assignment: Assignment
    own_topics: OwnTopics | None = None
    parked: Mapping[str, int | None] = field(default_factory=dict)


def build_slice(
    session: CoordinatorSession,
    *,
    request: SliceRequest,
    facts: RunFacts,
    tables: TablesPort | None = None,
) -> NewSlice:
    """Freeze a new slice. A run that has nothing to do contacts no catalogue of tables.

    :param tables: opens the tables that the run writes to.
    :param facts: facts of the last run: no slice of ours is under way; the stop offsets of another program's
        slice are kept.
    :raises ConfigError: the application keeps state of a later data interval.
    :raises TopologyError: topics are missing or do not fit.
    :raises DataLossError: records at which the new slice would start are gone.
    """
    plan, ledger = request.plan, facts.ledger
    asked_ms = session.clock.now_ms()
    refuse_unfit_end_of_run(session.settings, plan)
    refuse_backwards(plan, session.settings, request.interval_ms, ledger)
    ground = lay_groundwork(session, request=request, facts=facts)
    topics, prior = ground.topics, ground.prior
    own = topics.internal_ids(plan) | {
        ProtocolTopics(plan.application_id).metadata: facts.metadata.log.topic_id
    }
    begun_ms = session.clock.now_ms()
    # Another program's stops are no cut by time: records behind them may be dated before any moment.
    end_of_run = None
    if not facts.foreign_run:
        end_of_run = frozen_end_of_run(
            session.settings, plan, begun_ms=begun_ms, interval_ms=request.interval_ms
        )
    frozen = freeze(session, request=request, ground=ground, end_of_run=end_of_run)
    inputs, empty, begun, end_of_run = frozen.inputs, frozen.empty, frozen.begun, frozen.end_of_run
    held_back = warnings_of(
        session.cluster,
        frozen.held,
        group_id=plan.application_id,
        clock=session.clock,
        comes_again=frozen.kept_ms is None,
        advanced=closes_any(end_of_run, plan),
    )
    warnings = (*held_back, *frozen.warnings, *ground.warnings, *_expired(prior, begun))
    warnings += _set_back(plan, prior, begun)
    warnings += held_warnings(session.settings, plan, foreign_stops=facts.foreign_run)
    warnings += early_warnings(plan, end_of_run, begun_ms)
    slice_ = Slice(
        run_id=request.run_id,
        generation=request.generation,
        plan=msgspec.structs.replace(
            run_plan(session, request, ground, warnings=warnings),
            # The clock was read before the freeze: a record that the freeze takes as dated too far ahead to
            # cut anything is dated too far ahead for the tasks, too.
            begun_ms=begun_ms,
            stop_hash=stop_hash(inputs),
            empty=empty,
            intermediate_starts={str(tp): at for tp, at in begun.items() if tp.topic in plan.intermediates},
            interval_ms=request.interval_ms,
            kept_ms=frozen.kept_ms,
            moved_starts=_moved(inputs, ledger),
            placements=placements(plan, frozen.grouped),
            blocked={str(tp): end for tp, end in sorted(frozen.blocked.items())},
            behind_cut=frozen.behind_cut,
            end_of_run=held_by_blocked(end_of_run, plan, {tp.topic for tp in frozen.blocked}),
            targets=frozen_targets(
                tables,
                plan,
                ledger,
                replaces_ms=frozen.kept_ms if session.settings.backfill_replace else None,
            )
            if plan.tables and not empty
            else {},
            begin_steps=begin_steps(session, ground, asked_ms),
        ),
        inputs=inputs,
    )
    assignment = ledger.assignment
    if not empty or ground.taken_over:
        assignment = next_assignment(assignment, frozen.grouped, run_id=request.run_id)
    return NewSlice(
        slice=slice_,
        offsets=start_offsets(request, ground, begun, stop_set=slice_.stop_set),
        assignment=with_counts(assignment, plan, frozen.grouped.values(), ground.topics.topic_ids),
        own_topics=next_own_topics(ledger, ground.known, own, plan),
        parked=parked_total(ground.parked),
    )


def begin_steps(session: CoordinatorSession, ground: Groundwork, asked_ms: int) -> tuple[StepTimes, ...]:
    """Return the times of the steps of a begin that is about to be written.

    :param asked_ms: time at which it began, epoch milliseconds.
    """
    freeze_times = StepTimes("freeze", asked_ms, session.clock.now_ms())
    return (freeze_times,) if ground.fence is None else (ground.fence, freeze_times)


def _moved(inputs: Iterable[FrozenPartition], ledger: Ledger) -> dict[str, int]:
    """Return the inputs that start at another offset than the ledger has, with the ledger's offset."""
    inputs = tuple(inputs)
    left_at = ledger.left_at({part.topic for part in inputs})
    return {
        str(part.topic_partition): left_at[part.topic_partition]
        for part in inputs
        if left_at.get(part.topic_partition, part.start_offset) != part.start_offset
    }


def _set_back(plan: TopologyPlan, prior: PriorRuns, begun: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """Return a warning that an operator set offsets back, so that records are processed again."""
    back = [
        f"{tp} from {prior.last_stops[tp]} to {prior.committed[tp].offset}"
        for tp in sorted(begun)
        if prior.set_by_a_person(tp) and prior.committed[tp].offset < prior.last_stops.get(tp, 0)
    ]
    if not back:
        return ()
    state = ", and what they have added to stores is added once more" if plan.changelogs else ""
    return (
        f"committed offsets were set back since the last run, by a person or another program: "
        f"{first_few(back)}; the records in between are processed again{state}",
    )


def _expired(prior: PriorRuns, begun: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """Return a warning that committed offsets were gone and that the last run's stops took their place."""
    gone = sorted(tp for tp in begun if tp not in prior.committed and prior.remembered(tp) is not None)
    if not gone:
        return ()
    return (
        f"the committed offsets of {counted(len(gone), 'partition')} were gone ({gone[0]} is the first; "
        "offsets.retention.minutes?): the run goes on where the last one stopped, so nothing is lost or read "
        "twice",
    )
