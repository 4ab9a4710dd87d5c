"""Purges repartition topics, and looks for new partitions, as long as a continuous run lasts."""

from __future__ import annotations

import logging

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.slice.stops import partitions_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import KStreamsError

log = logging.getLogger(__name__)

#: Between two looks at what grows: processed records of repartition topics, partitions of inputs.
_PAUSE_SECONDS = 30.0


class Housekeeping:
    """Purges repartition topics of a continuous run, and warns of partitions that were added.

    :param session: of the coordinator that began the run.
    """

    def __init__(self, run: ContinuousRun, session: CoordinatorSession) -> None:
        self._run = run
        self._session = session
        self._next_at = session.clock.monotonic_seconds() + _PAUSE_SECONDS
        self._warned_of: set[str] = set()

    def keep(self) -> None:
        """Do what is due; a failure is logged, and left to the next time."""
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
                        "%s has %d partitions by now, %d of them are read: restart the application to read "
                        "the others, from their beginning",
                        topic,
                        there,
                        read,
                    )
        except KStreamsError as error:
            log.warning("repartition topics could not be purged, trying again: %s", error.cause)

    def purge_processed(self) -> None:
        """Delete the records of repartition topics that the run has processed; only saves space.

        :raises KafkaClientError: the broker did not answer.
        """
        topics = self._run.plan.topology.repartition_topics
        partitions = [tp for topic in topics for tp in partitions_of(self._run.slice, topic)]
        committed = self._session.committed(partitions)
        self._session.admin.delete_records(
            {tp: found.offset for tp, found in committed.items() if found.offset}
        )

    def grown_topics(self) -> dict[str, tuple[int, int]]:
        """Return source topics with more partitions than the run reads: how many it reads, and how many there
        are.

        :raises KafkaClientError: the broker did not answer.
        """
        found = self._session.admin.describe_topics(self._run.plan.topology.sources)
        return {
            topic: (read, found[topic].partitions)
            for topic, read in self._run.plan.partitions.items()
            if topic in found and found[topic].partitions > read
        }
