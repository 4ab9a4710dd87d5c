"""Starts a continuous run (KIP-95, "Switching between Streaming and Batch mode").

A continuous run has no slice. The ledger has what its tasks must know under ``__continuous__``: the plan, and
a generation. Its start writes, in one transaction of the coordinator,

    the lease - that record - the start offset of every partition, as a committed offset - partition groups

and then deletes the metadata topic, as the holder of the lease, and before any task may start. What comes
before that transaction (a wait for the lease, the claim, another look, the end of a dead owner's lease before
its tasks are fenced) is the same for every run: see :mod:`airflow_kstreams.batch.run.coordinator`.

Rule: a record under ``__continuous__`` makes void what the metadata topic holds; the begin of a batch
reads it so, and marks the record as over in the transaction of its completed marker.

Nothing is lost or doubled, whichever line is the last one that runs: before that transaction nothing has
changed. After it every partition has a committed offset, of inputs and of intermediate topics, and both modes
start there. The metadata topic that a crash may leave behind is void, and the next start deletes it.

A partition starts at its committed offset; else as begin says. The begin of a batch commits the start of
every partition, so the continuous run does what an unfinished batch has left to do, on inputs and in between.

As long as the run lasts, its driver purges repartition topics and looks for new partitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.evidence.contradictions import refuse_unfit_progress
from airflow_kstreams.batch.evidence.prior_runs import find_rewritten
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import next_own_topics, refuse_shared
from airflow_kstreams.batch.growing.grown_groups import blocked, placements, with_counts
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.fold import check_run_id
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import partitions_of, slice_starts
from airflow_kstreams.batch.protocol.topics import ensure_ledger_topic, refuse_other_topics
from airflow_kstreams.batch.run.assignment import AskGroups, next_assignment
from airflow_kstreams.batch.run.begin.freeze import (
    boundaries_ahead,
    find_ahead,
    find_losses,
    find_unfit,
    read_bounds,
    start_of,
)
from airflow_kstreams.batch.run.begin.groundwork import (
    Groundwork,
    SliceRequest,
    lay_groundwork,
    refuse_losses,
    run_plan,
    start_offsets,
)
from airflow_kstreams.batch.run.begin.new_slice import begin_steps
from airflow_kstreams.batch.run.begin.stream_time import refuse_unfit_end_of_run
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease import Claimant, refuse_other_application, refuse_other_topology
from airflow_kstreams.batch.run.source_topics import with_matches
from airflow_kstreams.batch.run.tables.targets import refuse_unfit_run
from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import named
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.record_queue import UNBOUNDED

#: Seconds between two looks at topics that grow: records of repartition topics, partitions of inputs.
_PAUSE_SECONDS = 30.0


class Housekeeping:
    """Purges repartition topics of a continuous run, and warns of partitions that were added.

    :param session: session of the coordinator that began the run.
    """

    def __init__(self, run: ContinuousRun, session: CoordinatorSession) -> None:
        self._run = run
        self._session = session
        self._next_at = session.clock.monotonic_seconds() + _PAUSE_SECONDS
        self._warned_of: set[str] = set()

    def keep(self) -> None:
        """Do the work that is due; a failure is logged, and left to the next time."""
        now = self._session.clock.monotonic_seconds()
        if now < self._next_at:
            return
        self._next_at = now + _PAUSE_SECONDS
        try:
            self.purge_processed()
            for topic, (read, there) in self.grown_topics().items():
                if topic not in self._warned_of:
                    self._warned_of.add(topic)
                    log.warning(
                        "%s has %s by now, %d of them read: restart the application to read "
                        "the others, from their beginning",
                        topic,
                        counted(there, "partition"),
                        read,
                    )
        except KStreamsError as error:
            log.warning("repartition topics could not be purged, trying again: %s", error.cause)

    def purge_processed(self) -> None:
        """Delete the records of repartition topics that the run has processed; only saves space.

        :raises KafkaClientError: the broker did not answer.
        """
        topics = self._run.plan.topology.repartition_topics
        partitions = partitions_of(self._run.slice, topics)
        committed = self._session.committed(partitions)
        self._session.admin.delete_records(
            {tp: found.offset for tp, found in committed.items() if found.offset}
        )

    def grown_topics(self) -> dict[str, tuple[int, int]]:
        """Return source topics with more partitions than the run reads: topic -> (partitions that it reads,
        partitions that exist).

        :raises KafkaClientError: the broker did not answer.
        """
        found = self._session.admin.describe_topics(self._run.plan.topology.sources)
        return {
            topic: (read, found[topic].partitions)
            for topic, read in self._run.plan.partitions.items()
            if topic in found and found[topic].partitions > read
        }


log = package_log(__name__)


def begin_continuous(
    coordinator: Coordinator,
    run_id: str,
    plan: TopologyPlan,
    *,
    order: tuple[int, int] = (0, 0),
    owner: str = "",
    groups: AskGroups | None = None,
) -> ContinuousRun:
    """Begin to run continuously, and take the lease. :func:`delete_metadata` must follow before any task.

    :param order: (clear number, try number); a higher one of the same run claims it.
    :param owner: name of the caller for messages.
    :param groups: calls the topology's own partition grouper, see :meth:`Coordinator.begin`.
    :raises ConfigError: transactions could not last as long as the settings say, the run id cannot be used,
        or it writes to tables.
    :raises RunBusyError: another owner is alive, as its renewals show, or won a race.
    :raises TopologyError: topics or partition groups do not fit, internal topics are another application's,
        or an unfinished batch belongs to another topology.
    :raises DataLossError: records at which a partition would start are gone.
    """
    session = coordinator.session
    check_run_id(run_id)
    refuse_unfit_end_of_run(session.settings, plan)
    refuse_other_application(plan, session.application_id)
    _refuse_global_tables(plan)
    if plan.tables:
        refuse_unfit_run(session.settings, plan, bounded=False)
    caller = Claimant(run_id=run_id, order=order, owner=owner or run_id, hold_lease=True, continuous=True)
    with coordinator.claim.keeping_failures(caller, "continuous"):
        run = coordinator.lease.taking_over(caller)(_begin, coordinator, caller, plan, groups)
        with session.reading:
            refuse_shared(session.neighbours, run.plan)
    return run


def _refuse_global_tables(plan: TopologyPlan) -> None:
    """Refuse tables that a run sees as they were when it began: this one would see them so for ever."""
    if plan.globals:
        raise TopologyError(
            f"a run without an end reads the global table of {', '.join(map(repr, plan.globals))}, which it "
            "would see for ever as it was when the run began",
            fix="run it in batches (autostop.at=eol), or use builder.table(topic) and repartition the stream",
        )


def delete_metadata(coordinator: Coordinator) -> None:
    """Delete the metadata topic, which a continuous run has made void, and wait until it is gone.

    :raises RunSupersededError: the lease is not held any more.
    :raises KafkaClientError: the broker did not delete it in time.
    """
    coordinator.lease.renew()
    session = coordinator.session
    session.admin.delete_topics([ProtocolTopics(session.application_id).metadata])


def _begin(
    coordinator: Coordinator, caller: Claimant, plan: TopologyPlan, groups: AskGroups | None
) -> ContinuousRun:
    before = coordinator.session.read_ledger(wait_ms=0)
    coordinator.session.refuse_others_topic(before, plan)
    with coordinator.claim.beginning(caller, before, ensure_topics=ensure_ledger_topic) as ledger:
        coordinator.lease.refuse_busy(ledger, caller)
        coordinator.attempt.look(ledger, free=coordinator.lease.is_free(ledger))
        coordinator.attempt.works_on(caller.run_id)
        last = ledger.continuous.generation if ledger.continuous is not None else 0
        request = SliceRequest(run_id=caller.run_id, plan=plan, generation=last + 1, groups=groups)
        return _begin_claimed(coordinator, caller, request, ledger)


def _begin_claimed(
    coordinator: Coordinator, caller: Claimant, request: SliceRequest, ledger: Ledger
) -> ContinuousRun:
    """Check the topics, fence the tasks of the last run, work out the starts, and write them with the run."""
    session, plan = coordinator.session, request.plan
    app = session.application_id
    facts = RunFacts(app, ledger, session.read_fenced(plan))
    coordinator.attempt.take_reported(facts.reported, finished=ledger.is_finished)
    if (batch := facts.under_way) is not None:
        refuse_other_topology(batch, plan)
        refuse_other_topics(session.admin, batch, {*batch.plan.topology.sources, *batch.plan.changelog_ids})
    refuse_losses(facts.disagreements(metadata_topic_kept=False), request)
    coordinator.lease.end_former(ledger)
    plan = with_matches(plan, session.admin, session.settings, ledger)
    request = dataclasses.replace(request, plan=plan)
    asked_ms = session.clock.now_ms()
    ground = lay_groundwork(session, request=request, facts=facts)
    offsets = _starts(session, request, ground)
    run = ContinuousRun(
        run_id=request.run_id,
        generation=request.generation,
        plan=msgspec.structs.replace(
            run_plan(session, request, ground, warnings=ground.warnings),
            placements=placements(plan, ground.topics.grouped),
            begin_steps=begin_steps(session, ground, asked_ms),
        ),
        starts={str(tp): at.offset for tp, at in sorted(offsets.items())},
    )
    lease = coordinator.lease.new(caller, run.generation)
    assignment = next_assignment(ledger.assignment, ground.topics.grouped, run_id=request.run_id)
    # Without the metadata topic, which is deleted next.
    own = next_own_topics(ledger, ground.known, ground.topics.internal_ids(plan), plan)
    after = dataclasses.replace(
        ledger.with_continuous(run),
        assignment=with_counts(assignment, plan, ground.topics.grouped.values(), ground.topics.topic_ids),
        own_topics=own or ledger.own_topics,
    )
    session.write(
        (),
        offsets=offsets,
        ledger=LedgerChange(ledger=after),
        lease=lease,
        histories=coordinator.attempt.begun(run.slice),
    )
    coordinator.lease.take(lease)
    coordinator.attempt.opened()
    log.info("application %s: continuous run %s began", app, caller.run_id)
    return run


def _starts(
    session: CoordinatorSession, request: SliceRequest, ground: Groundwork
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit: the start of every source partition.

    :param ground: facts of the start; where a slice is under way, no driver works on it any more.
    :raises DataLossError: records at which a partition would start are gone.
    """
    facts, prior = ground.facts, ground.prior
    if facts.under_way is not None:
        _refuse_lost_batch(session, facts.under_way, ground.committed)
    # Nothing is frozen, so nothing needs to settle.
    bounds = read_bounds(session, ground, settle_ms=0)
    _refuse_blocked(session, request, ground, bounds)
    ids = ground.topics.topic_ids
    ahead = find_ahead(session, ground)
    if facts.under_way is not None:
        losses = [*ahead, *find_losses(bounds, prior, ids)]
    else:
        losses = find_unfit(facts, bounds, prior, ids, ahead=ahead)
    refuse_losses(losses, request)
    with session.reading:
        others = find_rewritten(session.admin, session.reader, bounds, prior, clock=session.clock)
    refuse_losses(others, request)
    starts = {
        tp: _capped(start_of(tp, log_of, prior, session.settings), tp, facts)
        for tp, log_of in bounds.items()
        if tp not in prior.committed
    }
    # An offset that a person set gets metadata of ours, so that a task can tell it from one that another
    # program sets later.
    starts |= {tp: prior.committed[tp].offset for tp in bounds if prior.set_by_a_person(tp)}
    offsets = {tp: prior.committed[tp] for tp in bounds if tp in prior.committed}
    return offsets | start_offsets(request, ground, starts)


def _refuse_blocked(
    session: CoordinatorSession,
    request: SliceRequest,
    ground: Groundwork,
    bounds: Mapping[TopicPartition, LogBounds],
) -> None:
    """Refuse to begin while partitions that came later must wait for their ancestors: a run without an end
    reads all of its partitions from the beginning.

    :raises TopologyError: there are such partitions.
    """
    if behind := blocked(boundaries_ahead(ground, bounds, session.settings).values()):
        raise TopologyError(
            f"topics of application {request.plan.application_id!r} have gained partitions, and "
            f"{named(behind)} must not be read before the partitions that their keys came from",
            fix="let one batch run, with autostop.at=eol, read those, then start again",
        )


def _refuse_lost_batch(
    session: CoordinatorSession, slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Claim the rest of an unfinished batch, unless it cannot be known what is left of it.

    :raises DataLossError: a committed offset of the batch is gone, or is not of the batch.
    """
    starts = slice_starts(slice_)
    # An intermediate partition has no stop yet; some records in its log may have been read.
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    bounds = {tp: (start, stops.get(tp, UNBOUNDED)) for tp, start in starts.items()}
    to_read = {tp: (start, stop) for tp, (start, stop) in bounds.items() if start < stop}
    of_slice = {tp: at for tp, at in committed.items() if tp in starts}
    refuse_unfit_progress(slice_, to_read, of_slice, session.admin)
    log.warning(
        "batch run %s is not finished: the continuous run does what is left of it, and it gets no finished "
        "marker",
        slice_.run_id,
    )


def _capped(start: int, tp: TopicPartition, facts: RunFacts) -> int:
    """Return no later a start than the stop of a batch that a foreign writer began in the bare format."""
    return min(start, facts.metadata.foreign_stops.get(tp, start)) if facts.foreign_run else start
