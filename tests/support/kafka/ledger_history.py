"""A ledger with a history, written as the coordinator writes it, without topics and tasks behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.history import Histories
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.batch.protocol.topics import ensure_protocol_topics
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka

APP = "app"
LEDGER = ProtocolTopics(APP).ledger


@dataclass(kw_only=True)
class LedgerHistory:
    """Runs that have finished, one after another, each reading so many offsets of each partition of ``in``.

    :param details_kept: of how many runs.
    :param partitions: of the input, one task each.
    :param first_offset: where the first run begins.
    :param offsets: how many each run reads of a partition.
    :param topic_id: of the input; empty if it is not known.
    :ivar finished: their ids, in order.
    """

    kafka: InMemoryKafka
    details_kept: int = 100
    partitions: int = 1
    first_offset: int = 0
    offsets: int = 1
    topic_id: str = "id-in"
    finished: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = CoordinatorSession(self.kafka, ApplicationSettings.parse(APP), clock=self.kafka.clock)
        ensure_protocol_topics(self.session.admin, self.session.settings)

    def read(self) -> Ledger:
        """Read the ledger as anything does that only looks."""
        return read_ledger(self.kafka, APP, clock=self.kafka.clock)

    def claimed(self) -> Ledger:
        """Claim the coordinator's id, unless it is claimed, and read the ledger."""
        if not self.session.claimed:
            self.session.claim()
        return self.session.read_ledger()

    def summary(self, run_id: str, **more: Any) -> RunSummary:
        """Return what a run tells that reads one more record of each partition.

        :param more: other values of the summary.
        """
        number = len(self.finished)
        at = self.first_offset + number * self.offsets
        known: dict[str, Any] = {
            "empty": False,
            "begun_ms": self.kafka.clock.now_ms(),
            "counts": RecordCounts(read={"in": self.partitions}, written={"out": 2 * self.partitions}),
        }
        return RunSummary(
            run_id=run_id,
            application_id=APP,
            finished_ms=self.kafka.clock.now_ms() + number,
            generation=1,
            inputs=tuple(
                FrozenPartition(topic="in", partition=n, start_offset=at, stop_offset=at + self.offsets)
                for n in range(self.partitions)
            ),
            tasks=tuple(
                TaskReport(task_id=f"0_{number}", records_in=1, records_out=2)
                for number in range(self.partitions)
            ),
            task_count=self.partitions,
            topic_ids={"in": self.topic_id} if self.topic_id else {},
            **(known | more),
        )

    def finish(self, run_id: str, **more: Any) -> RunSummary:
        """Finish a run."""
        summary = self.summary(run_id, **more)
        change = LedgerChange(ledger=self.claimed(), finished=summary, details_kept=self.details_kept)
        finished = self.session.write((), ledger=change)
        assert finished is not None
        if run_id in self.finished:
            self.finished.remove(run_id)
        self.finished.append(run_id)
        return finished

    def finish_many(self, count: int) -> None:
        """Finish so many more runs."""
        for number in range(count):
            self.finish(f"run-{len(self.finished)}-{number}")

    def take_back(self, *run_ids: str) -> None:
        """Take runs back, as a reset does."""
        change = LedgerChange(ledger=self.claimed(), taken_back=run_ids, taken_back_ms=1)
        self.session.write((), ledger=change)
        self.finished = [run_id for run_id in self.finished if run_id not in run_ids]

    def renew(self, times: int = 1, run_id: str = "driver") -> Lease:
        """Take a lease, and renew it."""
        self.claimed()
        lease = Lease(owner_run_id=run_id, order=(0, 1), owner="x", generation=1, expires_ms=9, lease_ms=9)
        for _ in range(times):
            self.session.write((), lease=lease)
        return lease

    def tell(self, histories: Histories) -> None:
        """Write what happened to runs that have not finished, with a lease, as a begin does."""
        self.claimed()
        lease = Lease(owner_run_id="r", order=(0, 1), owner="x", generation=1, expires_ms=9, lease_ms=9)
        self.session.write((), lease=lease, histories=histories)

    def foreign(self, value: bytes | None, key: bytes) -> None:
        """Let another program write a record."""
        self.kafka.append(LEDGER, value, key)
