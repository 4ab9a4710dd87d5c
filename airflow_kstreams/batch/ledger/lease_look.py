"""Shows a task what there is of its driver: the last lease in the ledger, found from the ledger's end.

Rule: a task goes on only if the last lease is in force for its run and generation. It looks after it has
claimed its transactional id, and before it reads its committed offsets. The lease is renewed all the time, so
it stands among the last records; a look takes the last few offsets, and twice as many until it finds one.

Races: a driver that claims the slice, another start, and a reset first write another lease, let this one
go, or take it away, and then fence the tasks. So of a task that claims its id before that fence, the claim is
void, and nothing that it writes is seen; one that claims it afterwards looks after that write. What the
write's transaction still hides is waited for, longer than the broker lets a dead coordinator's transaction
stay open. The next run of batches begins only when this one is finished: its tasks are at their stops then,
or find offsets that another run has committed, and stop (:mod:`airflow_kstreams.batch.task.task_slice`).

Should a task see a lease that is out of date all the same (the wait was too short), that does no harm: its id
is the task's, so that the newer driver's own attempt fences it, its offsets were read after it had claimed
that id, and its stops are those that were frozen for the run, which never move. What it can still commit is
what the newer attempt would have committed.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.records import LEASE_KEY, decode_lease
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_part
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, Record, TopicPartition

#: How many offsets of the ledger's end are looked at first.
WINDOW = 16


class Standing(enum.Enum):
    """What a lease is to a task, or to a driver's launch of one."""

    IN_FORCE = "in force"
    LET_GO = "let go"
    OTHER = "another's"


class LeaseOf(NamedTuple):
    """Whose lease a task works under.

    :param run_id: of the slice, or of the continuous run.
    :param generation: of either.
    :param continuous: which of the two.
    """

    run_id: str
    generation: int
    continuous: bool

    def standing(self, lease: Lease | None) -> Standing:
        """Return what a lease is to this one."""
        if lease is None:
            return Standing.OTHER
        if LeaseOf(lease.works_on, lease.generation, lease.continuous) != self:
            return Standing.OTHER
        return Standing.IN_FORCE if lease.expires_ms else Standing.LET_GO


def is_about_lease(record: Record) -> bool:
    """Whether a record of the ledger gives the lease, or takes it away."""
    return record.key() == LEASE_KEY.encode()


def last_lease(application_id: str, *, admin: AdminPort, reader: ReaderPort, clock: Clock) -> Lease | None:
    """Return the last lease of an application's ledger; None if there is none, or it was taken away.

    What an open transaction hides at the end is waited for, bounded; then the last lease that can be seen
    counts.

    :param reader: what it was assigned before is lost.
    """
    ledger = TopicPartition(ProtocolTopics(application_id).ledger, 0)
    if ledger.topic not in admin.describe_topics([ledger.topic]):
        return None
    end = admin.end_offsets([ledger], isolation="read_uncommitted")[ledger]
    start = admin.start_offsets([ledger])[ledger]
    window, upto = WINDOW, end
    while upto > start:
        first = max(start, end - window)
        span = (first, upto)
        if upto == end:
            records, _ = read_part(reader, ledger, span, wait_ms=OPEN_TRANSACTION_TIMEOUT_MS, clock=clock)
        else:
            records = _further_back(reader, ledger, span, clock)
        found = [record for record in records if is_about_lease(record)]
        if found:
            return decode_lease(found[-1])
        window, upto = 2 * window, first
    return None


def _further_back(
    reader: ReaderPort, ledger: TopicPartition, span: tuple[int, int], clock: Clock
) -> tuple[Record, ...]:
    read = BoundedRead(reader, {ledger: span}, clock=clock, max_records=span[1] - span[0])
    return tuple(record for fetched in read for record in fetched.get(ledger, ()))
