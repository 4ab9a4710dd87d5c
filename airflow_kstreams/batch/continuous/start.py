"""Continuous runs: where one starts, where its tasks go on (KIP-95, "Switching between Streaming
and Batch mode").

A continuous run has no slice. What its tasks must know stands in the ledger, under ``__continuous__``: the
plan, and a generation. Its start writes, in one transaction of the coordinator,

    the lease - that record - the start offset of every partition, as a committed offset - partition groups

and then deletes the metadata topic.

Rule: a record under ``__continuous__`` makes void what the metadata topic holds; the begin of a batch
reads it so, and marks the record as over in the transaction of its completed marker.

Nothing is lost or doubled, whichever line is the last one that runs: before that transaction nothing has
changed. After it every partition has a committed offset, of inputs and of intermediate topics, and both modes
start there. The metadata topic that a crash may leave behind is void, and the next start deletes it.

Where a partition starts: at its committed offset; else as begin says. The begin of a batch commits the start
of every partition, so what an unfinished batch has left to do, on inputs and in between, is done by the
continuous run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.protocol.ledger import Ledger
from airflow_kstreams.batch.protocol.log_bounds import log_bounds
from airflow_kstreams.batch.protocol.metadata import Folded
from airflow_kstreams.batch.protocol.model import Assignment, ContinuousRun, RunState, Slice
from airflow_kstreams.batch.protocol.stops import slice_starts
from airflow_kstreams.batch.run.assignment import given_up, next_assignment
from airflow_kstreams.batch.run.groundwork import lay_groundwork, run_plan, start_offsets
from airflow_kstreams.batch.run.offsets import find_losses, start_of
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.batch.run.slice_request import SliceRequest, refuse_losses
from airflow_kstreams.batch.task.task_slice import refuse_lost_progress
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.record_queue import UNBOUNDED

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewContinuousRun:
    """A continuous run that is ready to be written.

    :param run: the run.
    :param offsets: where every source partition starts.
    :param assignment: the partition groups to record in the same transaction; None when they are already.
    """

    run: ContinuousRun
    offsets: Mapping[TopicPartition, CommittedOffset]
    assignment: Assignment | None


def build_continuous_run(
    session: CoordinatorSession, *, request: SliceRequest, folded: Folded, ledger: Ledger
) -> NewContinuousRun:
    """Check the topics, fence the tasks of the last run, and work out where to start.

    :param folded: of a slice that no driver works on any more.
    :raises TopologyError: topics are missing or do not fit.
    :raises DataLossError: what a partition would start at is gone.
    """
    plan = request.plan
    ground = lay_groundwork(session, request=request, folded=folded, ledger=ledger)
    topics, prior = ground.topics, ground.prior
    if folded.state is RunState.RUNNING and folded.slice is not None:
        _refuse_lost_batch(folded.slice, ground.committed)
    # Nothing is frozen, so nothing needs to settle.
    bounds = log_bounds(session.admin, ground.partitions, settle_ms=0, clock=session.clock)
    refuse_losses(find_losses(bounds, prior, topics.topic_ids), request)
    starts = {
        tp: _capped(start_of(tp, log_of, prior, session.settings), tp, folded)
        for tp, log_of in bounds.items()
        if tp not in prior.committed
    }
    offsets = {tp: prior.committed[tp] for tp in bounds if tp in prior.committed}
    warnings = given_up(ledger.assignment, plan, topics.changelog_ids)
    for warning in warnings:
        log.warning("%s", warning)
    run = ContinuousRun(
        run_id=request.run_id,
        generation=request.generation,
        plan=run_plan(session, request, topics, warnings=warnings),
    )
    assignment = next_assignment(ledger.assignment, topics.grouped, run_id=request.run_id)
    return NewContinuousRun(
        run=run, offsets=offsets | start_offsets(request, prior, starts), assignment=assignment
    )


def _refuse_lost_batch(slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Take over what an unfinished batch has left to do, unless it cannot be known what that is.

    :raises DataLossError: a committed offset of the batch is gone.
    """
    starts = slice_starts(slice_)
    # An intermediate partition has no stop yet; what is in its log may have been read in part.
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    bounds = {tp: (start, stops.get(tp, UNBOUNDED)) for tp, start in starts.items()}
    refuse_lost_progress(slice_, bounds, committed)
    log.warning(
        "batch run %s is not finished: the continuous run does what is left of it, and it gets no finished "
        "marker",
        slice_.run_id,
    )


def _capped(start: int, tp: TopicPartition, folded: Folded) -> int:
    """Return no later a start than the stop of a batch that a foreign writer began in the bare format."""
    running = folded.state is RunState.RUNNING and tp in folded.foreign_stops
    return min(start, folded.foreign_stops[tp]) if running else start
