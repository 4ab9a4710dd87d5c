"""Holds the coordinator's clients, and reads and writes with them: one admin, one reader of the group, one
writer under ``<app>-coordinator``.

Only the coordinator that has initialised that transactional id last can write markers, slices and leases: the
id is the mutual exclusion of coordinators. So between :meth:`CoordinatorSession.claim` and another
coordinator's claim, no other one writes, and a decision that is written in between stands on facts that still
hold. Another claim makes the write fail, and no record of it is seen.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.metadata_owner import refuse_others_metadata
from airflow_kstreams.batch.evidence.topic_owners import Neighbours
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import history_record, lease_record
from airflow_kstreams.batch.ledger.history import Histories
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger, salvage_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.salvage import Salvage
from airflow_kstreams.batch.ledger.writes import LedgerChange, ledger_records
from airflow_kstreams.batch.protocol.logs.fence import await_leaders, fence, written_topics
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, OpenTransactionError
from airflow_kstreams.batch.protocol.slice.metadata import Folded, MetadataView
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION, MetadataRecord
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    CommittedOffset,
    ReaderPort,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.settings import ApplicationSettings

#: A crashed coordinator's transaction hides the ledger's end for no longer than this: the shortest timeout
#: that every broker accepts.
_TRANSACTION_TIMEOUT_MS = 10_000


class _InLedger(NamedTuple):
    """The ledger's records of a transaction, the places of the last checkpoint and of the last record of
    histories after it, and the run that it finishes.
    """

    records: list[MetadataRecord]
    checkpoint: tuple[int, int] | None
    history_at: int
    finished: RunSummary | None


class CoordinatorSession:
    """Makes the coordinator's clients when first needed. Safe to use from several threads.

    :ivar reading: lock that is held while the reader is used.
    :ivar writing: lock that is held while the transactional id is claimed or used. A thread that claims it,
        reads, and then writes holds the lock all the while: another thread must not write under a claim whose
        meaning is not looked up yet. Taken before ``reading``, never after.

    :param cluster: the cluster that holds all topics.
    :param settings: settings of the application.
    :param clock: clock to go by; the machine's unless given.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self.settings = settings
        self.clock = clock or SystemClock()
        self.application_id = settings.application_id
        self._admin: AdminPort | None = None
        self._reader: ReaderPort | None = None
        self._writer: WriterPort | None = None
        self._next_writer: WriterPort | None = None
        self._metadata = MetadataView(cluster, settings.application_id, clock=self.clock)
        self._checkpoint: tuple[int, int] | None = None
        self._next_offset = self._history_at = -1
        self._written_at: float | None = None
        self.writing = threading.RLock()
        self.reading = threading.RLock()

    @property
    def cluster(self) -> ClusterPort:
        """The cluster."""
        return self._cluster

    @property
    def admin(self) -> AdminPort:
        """The admin client."""
        with self.reading:
            if self._admin is None:
                self._admin = self._cluster.admin()
            return self._admin

    @property
    def reader(self) -> ReaderPort:
        """The reader; use it under :attr:`reading`."""
        with self.reading:
            if self._reader is None:
                self._reader = self._cluster.reader(group_id=self.application_id, small=True)
            return self._reader

    def make_clients(self) -> None:
        """Make the clients that every begin needs: they connect while the caller does something else."""
        _ = self.admin, self.reader

    @property
    def neighbours(self) -> Neighbours:
        """The other applications; use it under :attr:`reading`."""
        return Neighbours(cluster=self._cluster, admin=self.admin, reader=self.reader, clock=self.clock)

    @property
    def claimed(self) -> bool:
        """Whether this session has claimed the coordinator's transactional id and its writer is sound."""
        return self._writer is not None and not self._writer.suspect

    def has_written_within(self, seconds: float) -> bool:
        """Whether a transaction under this claim has been committed, which began at most so long ago: until
        then no other coordinator had claimed the id.
        """
        with self.writing:
            at = self._written_at
            return self.claimed and at is not None and self.clock.monotonic_seconds() - at <= seconds

    def prepare_claim(self) -> None:
        """Make the writer of the next claim, which connects while the caller asks for what it needs before
        the claim. A writer that has not claimed its id changes nothing, and no other coordinator notices it.
        """
        with self.writing:
            if self._next_writer is None:
                self._next_writer = self._made_writer()

    def claim(self) -> None:
        """Claim the coordinator's transactional id anew, fencing every other coordinator.

        :raises KafkaClientError: the broker did not answer.
        """
        with self.writing:
            self._drop_writer()
            # The ledger may have grown; only reading it tells.
            self._checkpoint, self._next_offset, self._history_at = None, -1, -1
            writer, self._next_writer = self._next_writer or self._made_writer(), None
            try:
                await_leaders(self.admin, ProtocolTopics(self.application_id).protocol)
                writer.init_transactions()
            except BaseException:
                writer.close()
                raise
            self._writer = writer

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Claim the transactional id, and keep it only if the block ends well.

        The block looks up what the claim means: nothing may be written under a claim that may be unlawful, by
        no other thread either.
        """
        with self.writing:
            self.claim()
            try:
                yield
            except BaseException:
                self._drop_writer()
                raise

    def write(
        self,
        records: Iterable[MetadataRecord],
        *,
        offsets: Mapping[TopicPartition, CommittedOffset] | None = None,
        ledger: LedgerChange | None = None,
        lease: Lease | None = None,
        histories: Histories | None = None,
    ) -> RunSummary | None:
        """Write records and offsets in one transaction.

        :param records: records of the metadata topic, or of the ledger, which come before its changes.
        :param ledger: changes to the ledger, which must have been read since the claim.
        :param lease: lease to write to the ledger, naming the last checkpoint.
        :param histories: what happened to runs that have not finished, where that changes; a change of the
            ledger or a lease must be written with it, which names it.
        :return: the run that the change finishes, as the ledger gives it from now on.
        :raises TaskFencedError: another coordinator claimed the transactional id.
        :raises SuspectWriterError: the connection was lost since the claim; nothing was written.
        :raises KafkaClientError: the client failed; if that was in the commit the outcome is unknown, and a
            read after the next :meth:`claim` shows it.
        """
        with self.writing:
            writer = self._writer
            if writer is None:
                raise KafkaClientError(
                    "the coordinator's transactional id is not claimed",
                    fix="call begin or finish first",
                    kafka_code="_STATE",
                    retriable_code=True,
                )
            try:
                begun_at = self.clock.monotonic_seconds()
                # First: where the claim was lost since, the ledger was not read under it either.
                writer.begin()
                records = list(records)
                topic = ProtocolTopics(self.application_id).ledger
                before = sum(record.topic == topic for record in records)
                written = self._in_ledger(ledger, lease, before, histories)
                in_ledger = written.records
                for record in (*records, *in_ledger):
                    writer.produce(record.topic, record.value, record.key, PARTITION, None, record.headers)
                if offsets:
                    writer.send_offsets(offsets, self.reader)
                writer.commit()
            except BaseException:
                self._drop_writer()
                raise
            self._written_at = begun_at
            self._checkpoint, self._history_at = written.checkpoint, written.history_at
            if in_ledger and self._next_offset >= 0:
                # One more for the transaction's marker.
                self._next_offset += before + len(in_ledger) + 1
            return written.finished

    def _in_ledger(
        self, change: LedgerChange | None, lease: Lease | None, before: int, histories: Histories | None
    ) -> _InLedger:
        """Return the ledger's records of a transaction, and what they mean.

        :param before: number of other records of the ledger that come before them.
        """
        records, checkpoint, finished = list[MetadataRecord](), self._checkpoint, None
        history_at = self._history_at
        # Without the place that the record gets, nothing could name it.
        if histories is not None and self._next_offset >= 0:
            history_at = -1
            if histories != Histories():
                history_at = self._next_offset + before
                records.append(history_record(self.application_id, histories))
        if change is not None:
            if self._next_offset < 0:
                raise KafkaClientError(
                    "the ledger was not read since the coordinator's transactional id was claimed",
                    fix="retry",
                    kafka_code="_STATE",
                    retriable_code=True,
                )
            change = dataclasses.replace(
                change, ledger=dataclasses.replace(change.ledger, history_at=history_at)
            )
            changed, checkpoint, finished = ledger_records(
                self.application_id, change, self._next_offset + before + len(records)
            )
            records += changed
        if lease is not None:
            named = msgspec.structs.replace(lease, checkpoint=checkpoint, history=history_at)
            records.append(lease_record(self.application_id, named))
        return _InLedger(records, checkpoint, history_at, finished)

    def read_metadata(
        self, plan: TopologyPlan | None, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS
    ) -> Folded:
        """Read the metadata topic to its end; what was read before is not fetched again.

        :param plan: plan whose sources a foreign writer's keys may name; None leaves those keys out.
        :param wait_ms: milliseconds to wait for open transactions that hide committed records; 0 takes what
            is visible already.
        """
        with self.reading:
            return self._metadata.read(
                admin=self.admin,
                reader=self.reader,
                topics=plan.sources if plan is not None else (),
                wait_ms=wait_ms,
            )

    def read_ledger(self, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS) -> Ledger:
        """Read the ledger to its end.

        :param wait_ms: milliseconds to wait, as for :meth:`read_metadata`.
        """
        # Under a claim the next write goes on where this read ends: no other thread may write meanwhile.
        with self.writing if self.claimed and wait_ms else nullcontext(), self.reading:
            ledger = read_ledger(
                self._cluster,
                self.application_id,
                admin=self.admin,
                reader=self.reader,
                wait_ms=wait_ms,
                clock=self.clock,
                reading=self._held_reader,
            )
            if self.claimed and wait_ms:
                self._remember(ledger)
            return ledger

    def _remember(self, ledger: Ledger) -> None:
        self._checkpoint, self._next_offset = ledger.checkpoint, ledger.next_offset
        self._history_at = ledger.history_at

    def salvage_ledger(self) -> tuple[Ledger, Salvage]:
        """Read what can be read of a ledger that :meth:`read_ledger` refuses; a write may follow it."""
        with self.writing, self.reading:
            ledger, found = salvage_ledger(
                self._cluster, self.application_id, admin=self.admin, reader=self.reader, clock=self.clock
            )
            if self.claimed:
                self._remember(ledger)
            return ledger, found

    @contextmanager
    def _held_reader(self) -> Iterator[ReaderPort]:
        with self.reading:
            yield self.reader

    def read_fenced(self, plan: TopologyPlan) -> Folded:
        """Read the metadata topic to its end, fencing dead tasks whose open transactions hide it."""
        try:
            return self.read_metadata(plan, wait_ms=1)
        except OpenTransactionError:
            stable = self.read_metadata(plan, wait_ms=0)
            if stable.slice is not None:
                self.fence(stable.slice)
            return self.read_metadata(plan)

    def refuse_others_topic(self, ledger: Ledger, plan: TopologyPlan | None) -> None:
        """Refuse a metadata topic that belongs to another program.

        :param plan: plan whose sources a foreign writer's keys may name; None if they may name any topic.
        :raises ConfigError: the topic belongs to another program.
        """

        def read_by(plan: TopologyPlan) -> Collection[str]:
            return plan.matched(self.admin.topic_names()).sources if plan.patterns else plan.sources

        with self.reading:
            refuse_others_metadata(
                self._cluster,
                ledger,
                self.application_id,
                topics=None if plan is None else partial(read_by, plan),
                admin=self.admin,
                reader=self.reader,
                clock=self.clock,
            )

    def fence(self, slice_: Slice) -> None:
        """Fence the tasks of a slice."""
        fence(
            self._cluster,
            slice_.plan.task_ids,
            admin=self.admin,
            topics=written_topics(slice_.plan.topology, settings=self.settings),
        )

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's stable committed offsets; partitions without one are absent."""
        with self.reading:
            return self.reader.committed(partitions)

    def committed_so_far(
        self, partitions: Collection[TopicPartition], *, group_id: str | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets without those of transactions that are open, however long these
        stay open.

        :param group_id: the group's id; the application's own unless given.
        """
        group = group_id or self.application_id
        with closing(
            self._cluster.reader(group_id=group, isolation="read_uncommitted", small=True)
        ) as reader:
            return reader.committed(partitions)

    def close(self) -> None:
        """Close every client. Closing twice is harmless."""
        with self.writing, self.reading:
            self._drop_writer()
            if self._next_writer is not None:
                self._next_writer.close()
            self._next_writer = None
            if self._reader is not None:
                self._reader.close()
            if self._admin is not None:
                self._admin.close()
            self._reader = self._admin = None

    def _made_writer(self) -> WriterPort:
        return self._cluster.writer(
            transactional_id=f"{self.application_id}-coordinator",
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = self._written_at = None
