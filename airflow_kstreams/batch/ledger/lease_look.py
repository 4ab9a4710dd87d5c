"""Shows a task the lease of its driver: it reads the last one in the ledger, from the ledger's end.

Rule: a task goes on only if the last lease is in force for its run and generation. It looks after it has
claimed its transactional id, and before it reads its committed offsets. The driver keeps renewing the lease,
so it is among the last records; a look reads the last few offsets, and twice as many until it finds one.

Races: a driver that claims the slice, another start, and a reset first write another lease, or release or
delete this one, and then fence the tasks. The fence makes an earlier claim of a task's id void, and nothing
that the task writes is seen; a task that claims its id afterwards looks after that write. It waits for what
the write's transaction still hides, longer than the broker lets a dead coordinator's transaction stay open.
The next run of batches begins only when this one is finished: its tasks are at their stops then, or find
offsets that another run has committed, and stop (:mod:`airflow_kstreams.batch.task.work`).

Should a task still see a lease that is out of date (the transaction stayed open), that does no harm: it uses
the task's own id, so that the newer driver's attempt fences it, it read its offsets after it had claimed that
id, and its stops are those that were frozen for the run, which never move. What it can still commit is what
the newer attempt would have committed.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import LEASE_KEY, decode_lease
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_part
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, Record, TopicPartition

#: How many offsets of the ledger's end are looked at first.
WINDOW = 16


class LeaseState(enum.Enum):
    """The validity of a lease for a task, or for a driver's launch of one."""

    IN_FORCE = "in force"
    RELEASED = "released"
    OTHER = "another's"


class LeaseOf(NamedTuple):
    """The run whose lease a task works under.

    :param run_id: of the slice, or of the continuous run.
    :param generation: of either.
    :param continuous: whether it is a continuous run.
    """

    run_id: str
    generation: int
    continuous: bool

    def state_of(self, lease: Lease | None) -> LeaseState:
        """Return what a lease is to this one."""
        if lease is None:
            return LeaseState.OTHER
        if LeaseOf(lease.works_on, lease.generation, lease.continuous) != self:
            return LeaseState.OTHER
        return LeaseState.IN_FORCE if lease.expires_ms else LeaseState.RELEASED


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
