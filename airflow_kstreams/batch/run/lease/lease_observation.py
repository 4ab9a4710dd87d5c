"""Judges whether the owner of a lease is alive: by its renewals, never by the clock of its machine.

Rule: a lease is free when it was released, or when no renewal was seen for as long as it lasts, measured on
one's own monotonic clock from the first look. So clocks that differ between machines, or are set while a run
goes on, neither hold a lease for ever nor take it from a driver that is alive. Kubernetes elects leaders in
the same way (``observedRecord`` and ``observedTime`` in client-go's ``leaderelection``).

What is observed is the place of the lease's record in the ledger: every renewal writes it anew, so its offset
moves, whatever stands in it. A lease that is found free so stays free only as long as that record is the last
one: a driver that claims the coordinator's id afterwards reads the ledger again, and finds a renewal that
came late.
"""

from __future__ import annotations

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

_POLL_SECONDS = 1.0


class LeaseObservation:
    """Remembers the leases of others that one process has watched, and whether they were renewed.

    :param session: session that reads the ledger; its clock waits.
    """

    def __init__(self, session: CoordinatorSession) -> None:
        self._session = session
        self._silent_offset = -1

    def is_free(self, ledger: Ledger) -> bool:
        """Whether a lease was never taken, was released, or was not renewed while :meth:`watch` waited."""
        return ledger.held_lease is None or ledger.lease_offset == self._silent_offset

    def watch(self, ledger: Ledger, *, waiting: str) -> Ledger:
        """Wait until the lease changes in any way, at most for as long as it lasts.

        :param ledger: the ledger as it was just read, which holds the record from which on a change is looked
            for.
        :param waiting: name of the caller that waits, for the log.
        :return: the ledger at the end of the wait: its lease is free, or has another record.
        :raises KafkaClientError: the broker did not answer.
        """
        lease = ledger.held_lease
        if lease is None or self.is_free(ledger):
            return ledger
        session = self._session
        clock, app = session.clock, session.application_id
        seconds = lease.lease_ms / 1000
        log.warning(
            "application %s: %s waits up to %.0f s: %s has not released its lease for run %s; a renewal "
            "of the lease will show that it is alive",
            app,
            waiting,
            seconds,
            lease.owner,
            lease.owner_run_id,
        )
        partition = TopicPartition(ProtocolTopics(app).ledger, PARTITION)
        until = clock.monotonic_seconds() + seconds
        end = -1
        while (left := until - clock.monotonic_seconds()) > 0:
            clock.sleep(min(_POLL_SECONDS, left))
            found = session.admin.end_offsets([partition], isolation="read_committed")[partition]
            if found == end:
                continue
            end, now = found, session.read_ledger(wait_ms=0)
            if now.lease_offset != ledger.lease_offset:
                return now
        # One more read for certain: a commit returns before readers see it.
        now = session.read_ledger()
        if now.lease_offset == ledger.lease_offset:
            self._silent_offset = now.lease_offset
            log.warning(
                "application %s: %s goes on: the lease of %s for run %s was not renewed for %.0f s",
                app,
                waiting,
                lease.owner,
                lease.owner_run_id,
                seconds,
            )
        return now
