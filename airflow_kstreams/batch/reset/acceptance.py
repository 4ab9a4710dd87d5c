"""Lets reading go on at other offsets in single partitions: ``airflow-kstreams reset --accept``.

An operator accepts by it that records are missing, or undoes changes of another program to the group's
offsets. It leaves state, topics, the slice and all other offsets alone.
:mod:`airflow_kstreams.batch.evidence.moved_offsets` has the rule that the ledger's record serves, and says
why no crash separates the record from the offsets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from airflow_kstreams.batch.ledger.facts import Acceptance
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.log_read import where_readable
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.reset.reset_plan import OffsetChange, ResetPlan, ResetRequest, Survey
from airflow_kstreams.batch.reset.rows_again import rows_again, taken_back
from airflow_kstreams.batch.reset.scenario import KeptOffsets, Logs, spans_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.record_queue import LastRecord, PartitionTimes, last_of

#: Offsets before the accepted one in which its record before it is looked for.
_LOOKED_AT = 100


def partitions_in(given: Iterable[str] | None) -> tuple[TopicPartition, ...]:
    """Return the partitions that texts of the form ``topic:0,1`` name.

    :raises ConfigError: a text has another form.
    """
    found: list[TopicPartition] = []
    for text in given or ():
        topic, _, numbers = text.strip().rpartition(":")
        parts = [part.strip() for part in numbers.split(",")]
        if not topic or not all(part.isdecimal() for part in parts):
            raise ConfigError(
                f"--accept {text!r} names no partitions", fix="write topic:0,1; --accept may be repeated"
            )
        found += [TopicPartition(topic, int(part)) for part in parts]
    return tuple(sorted(set(found)))


def plan_acceptance(session: CoordinatorSession, request: ResetRequest, seen: Survey) -> ResetPlan:
    """Work out the offsets at which reading goes on.

    :raises ConfigError: a partition does not exist, or a reset is not complete.
    """
    if (pending := seen.ledger.unfinished_reset) is not None:
        raise ConfigError(
            f"a reset of application {request.application_id!r} was interrupted, and sets offsets itself",
            fix=f"complete it first: {pending.command}",
        )
    for tp in request.accept:
        if tp.partition >= seen.described[tp.topic].partitions:
            raise ConfigError(f"there is no partition {tp}", fix="correct --accept")
    spans = spans_of(session.admin, request.accept)
    asked = request.scenario.targets(
        Logs(spans=spans, positions=seen.positions, admin=session.admin, now_ms=seen.now_ms)
    )
    after = {tp: span.clamp(asked[tp]) for tp, span in spans.items()}
    return ResetPlan(
        request=request,
        offsets=tuple(
            OffsetChange(partition=tp, before=seen.positions.get(tp), asked=asked[tp], after=at)
            for tp, at in sorted(after.items())
        ),
        rows_again=tuple(rows_again(seen.ledger, taken_back(seen.ledger, after), after, seen.ids)),
        lease=seen.ledger.held_lease,
        members=seen.members,
    )


def write_acceptance(session: CoordinatorSession, plan: ResetPlan, seen: Survey) -> None:
    """Write the ledger's record and the offsets, in one transaction.

    :param seen: state of the application, read after the coordinator's id was claimed and every task fenced.
    """
    after = {change.partition: change.after for change in plan.offsets}
    spans = spans_of(session.admin, after)
    last = _last_records(session, after, spans)
    accepted = {
        tp: Acceptance(at, seen.described[tp.topic].topic_id, _times(tp, at, seen, log_end=spans[tp].end))
        for tp, at in after.items()
    }
    text = OffsetMetadata(accepted=True)
    ledger = dataclasses.replace(seen.ledger, accepted={**seen.ledger.accepted, **accepted})
    offsets = {
        tp: CommittedOffset(at, text.of_partition(accepted[tp].times, last.get(tp, LastRecord())).encode())
        for tp, at in after.items()
    }
    session.write((), ledger=LedgerChange(ledger=ledger), offsets=offsets)


def _last_records(
    session: CoordinatorSession,
    after: Mapping[TopicPartition, int],
    spans: Mapping[TopicPartition, KeptOffsets],
) -> dict[TopicPartition, LastRecord]:
    """Return the records before the offsets at which reading goes on, by which a log that is truncated later
    and grows again is known. Where none is near, it is not known, nor where it cannot be read: an acceptance
    leads past a batch that cannot be unpacked.
    """
    stable = session.admin.end_offsets(after, isolation="read_committed")
    looked_at = {tp: (max(spans[tp].start, at - _LOOKED_AT), min(at, stable[tp])) for tp, at in after.items()}

    def last_in(spans: Spans) -> dict[TopicPartition, LastRecord]:
        found: dict[TopicPartition, LastRecord] = {}
        for fetched in BoundedRead(session.reader, spans, clock=session.clock):
            found |= {tp: last_of(records[-1]) for tp, records in fetched.items() if records}
        return found

    with session.reading:
        return where_readable(session.reader, looked_at, last_in)


def _times(tp: TopicPartition, at: int, seen: Survey, *, log_end: int) -> PartitionTimes:
    """Return a partition's times at the offset at which reading goes on: records read before are still the
    past, unless they are read again. At the end of a log that was truncated none is.
    """
    held = seen.committed.get(tp)
    found = None if held is None else OffsetMetadata.decode(held.metadata)
    if held is not None and found is not None and not found.foreign:
        return found.times if at >= min(held.offset, log_end) else PartitionTimes()
    reset = seen.ledger.reset
    if reset is not None and tp.topic not in reset.topic_ids and reset.stops.get(tp) == at:
        # Where a reset has set the offset, whose times begin anew.
        return PartitionTimes()
    left = seen.ledger.left([tp.topic]).get(tp.topic)
    known = None if left is None else left.times_of(tp)
    if left is None or known is None or at < min(left.stops_of(tp.topic).get(tp, 0), log_end):
        return PartitionTimes()
    return known
