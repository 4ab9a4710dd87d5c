"""The run ledger ``<app>-runs``: the summary of every finished run, and who works on the application now.

Compacted, one partition. Key = run id, value = the summary as JSON; nothing ever deletes one. A reset that
takes back what a run processed says so in that run's summary. Reserved keys start with two underscores:
``__lease__`` holds the lease, ``__assignment__`` the partition groups, ``__reset__`` the last reset,
``__continuous__`` what the last continuous run works on, and whether a batch has begun since,
``__topics__`` the ids of the engine's own topics, ``__changelogs__`` where changelogs ended when a run was
last finished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from airflow_kstreams.batch.protocol.log_read import OPEN_TRANSACTION_TIMEOUT_MS, LogFacts, read_log
from airflow_kstreams.batch.protocol.metadata_records import MetadataRecord
from airflow_kstreams.batch.protocol.model import (
    Assignment,
    ChangelogEnds,
    ContinuousRun,
    Lease,
    OwnTopics,
    ResetRecord,
    ResetStage,
    RunSummary,
)
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.protocol_topics import ProtocolTopics

_T = TypeVar("_T")

LEASE_KEY = "__lease__"
ASSIGNMENT_KEY = "__assignment__"
RESET_KEY = "__reset__"
CONTINUOUS_KEY = "__continuous__"
TOPICS_KEY = "__topics__"
CHANGELOGS_KEY = "__changelogs__"
_RESERVED = "__"
#: Of the run id as JSON; leaves room in the 4096 bytes of an offset's metadata.
_RUN_ID_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the ledger says.

    :param runs: summary by run id, in the order in which they finished.
    :param lease: the last lease, whether renewed, abandoned or released; None when there never was one, or a
        reset has taken it away.
    :param assignment: the partition groups that state depends on; None before the first run with records.
    :param taken_back: summaries of runs that a reset took back and that have not finished again.
    :param reset: the last reset; None when a run has finished, or a continuous one has begun since, or there
        never was one.
    :param continuous: the continuous run that was started last; None when there never was one.
    :param lease_offset: of the lease's record, which every renewal moves; -1 without a lease.
    :param lease_written_ms: when that record was written, epoch milliseconds by the owner's or the broker's
        clock: to be shown, never compared with another clock; 0 without a lease.
    :param own_topics: which topics are the application's; None when no run of a version that keeps them has
        begun.
    :param changelog_ends: where changelogs ended when a run was last finished; None when no run of a version
        that keeps them has.
    :param log: what was read; it does not count when ledgers are compared.
    """

    runs: Mapping[str, RunSummary] = field(default_factory=dict)
    lease: Lease | None = None
    assignment: Assignment | None = None
    taken_back: Mapping[str, RunSummary] = field(default_factory=dict)
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    lease_offset: int = -1
    lease_written_ms: int = 0
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None
    log: LogFacts = field(default=LogFacts(), compare=False)

    @property
    def unwritten(self) -> bool:
        """Whether no run has begun yet, as far as the ledger says."""
        return self == Ledger()

    @property
    def held_lease(self) -> Lease | None:
        """The lease that was not released. Its owner may be at work, or dead."""
        return self.lease if self.lease is not None and self.lease.expires_ms else None

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the last run, or the reset after it, left each partition; empty after a continuous run, whose
        progress stands in the committed offsets alone.
        """
        if self.current_continuous is not None:
            return {}
        if self.reset is not None:
            return self.reset.stops
        last = self.last()
        return {} if last is None else last.stops

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids of what ran or was reset last, as far as the ledger knows them."""
        if self.current_continuous is not None:
            return self.current_continuous.plan.topic_ids
        if self.reset is not None:
            return self.reset.topic_ids
        last = self.last()
        return {} if last is None else last.topic_ids

    @property
    def unfinished_reset(self) -> ResetRecord | None:
        """The reset that goes on, or was interrupted."""
        return self.reset if self.reset is not None and self.reset.stage is not ResetStage.DONE else None

    @property
    def current_continuous(self) -> ContinuousRun | None:
        """The continuous run that was started last, if neither a batch began nor a reset was made since.

        What the metadata topic holds beside it is void: that run's start, which decided so, deletes it.
        """
        run = self.continuous
        return None if run is None or run.over else run

    def last(self) -> RunSummary | None:
        """Return the run that finished last."""
        return next(reversed(list(self.runs.values())), None)

    def newest(self, topics: Collection[str]) -> dict[str, tuple[RunSummary, dict[TopicPartition, int]]]:
        """Return for each topic the newest finished run that read it, with its stops there."""
        found: dict[str, tuple[RunSummary, dict[TopicPartition, int]]] = {}
        wanted = set(topics)
        for summary in reversed(list(self.runs.values())):
            if not wanted:
                break
            for partition, stop in summary.stops.items():
                if partition.topic in wanted:
                    found.setdefault(partition.topic, (summary, {}))[1][partition] = stop
            wanted -= found.keys()
        return found

    def left_at(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return where the newest finished run that read each topic, or the reset after it, left it."""
        if self.reset is not None:
            return {tp: at for tp, at in self.reset.stops.items() if tp.topic in topics}
        return {tp: stop for _, of_topic in self.newest(topics).values() for tp, stop in of_topic.items()}


def check_run_id(run_id: str) -> None:
    """Refuse a run id that the ledger cannot hold.

    :raises ConfigError: it is empty, too long, or starts with two underscores.
    """
    if not run_id or run_id.startswith(_RESERVED) or len(msgspec.json.encode(run_id)) > _RUN_ID_BYTES:
        raise ConfigError(
            f"run id {run_id[:60]!r} cannot be used",
            fix=f"use 1 to {_RUN_ID_BYTES} bytes that do not start with two underscores",
        )


def summary_record(summary: RunSummary) -> MetadataRecord:
    """Return the ledger's record of a finished run."""
    topic = ProtocolTopics(summary.application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(summary), summary.run_id.encode(), None)


def lease_record(application_id: str, lease: Lease) -> MetadataRecord:
    """Return the ledger's record of the lease."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(lease), LEASE_KEY.encode(), None)


def no_lease_record(application_id: str) -> MetadataRecord:
    """Return the record that takes the lease from its holder."""
    return MetadataRecord(ProtocolTopics(application_id).ledger, None, LEASE_KEY.encode(), None)


def assignment_record(application_id: str, assignment: Assignment | None) -> MetadataRecord:
    """Return the ledger's record of the partition groups, None to delete it."""
    value = None if assignment is None else msgspec.json.encode(assignment)
    return MetadataRecord(ProtocolTopics(application_id).ledger, value, ASSIGNMENT_KEY.encode(), None)


def reset_record(application_id: str, reset: ResetRecord) -> MetadataRecord:
    """Return the ledger's record of a reset."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(reset), RESET_KEY.encode(), None)


def continuous_record(application_id: str, run: ContinuousRun) -> MetadataRecord:
    """Return the ledger's record of a continuous run."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(run), CONTINUOUS_KEY.encode(), None)


def own_topics_record(application_id: str, own: OwnTopics) -> MetadataRecord:
    """Return the ledger's record of which topics are the application's."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(own), TOPICS_KEY.encode(), None)


def changelog_ends_record(application_id: str, ends: ChangelogEnds) -> MetadataRecord:
    """Return the ledger's record of where changelogs ended."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(ends), CHANGELOGS_KEY.encode(), None)


def decode_lease(record: Record) -> Lease | None:
    """Return what a record of the ledger says of the lease; None if it takes it away, or is another record.

    :raises KafkaClientError: another version of this package wrote it.
    """
    value = record.value()
    if record.key() != LEASE_KEY.encode() or value is None:
        return None
    return _decode(value, Lease, record.topic(), record.offset())


def decode_summary(record: Record) -> RunSummary | None:
    """Return what a record of the ledger says of a run; None if it deletes it, or is another record.

    :raises KafkaClientError: no run wrote it, or another version of this package did.
    """
    key, value = record.key(), record.value()
    if not key or key.startswith(_RESERVED.encode()) or value is None:
        return None
    return _decode(value, RunSummary, record.topic(), record.offset())


def read_ledger(
    cluster: ClusterPort,
    application_id: str,
    *,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
) -> Ledger:
    """Read an application's ledger; a missing topic is empty.

    :param wait_ms: how long to wait for transactions that hide committed records; 0 takes what is stable.
    """
    topic = ProtocolTopics(application_id).ledger
    content = read_log(
        cluster, topic, group_id=application_id, admin=admin, reader=reader, wait_ms=wait_ms, clock=clock
    )
    lease: Lease | None = None
    lease_offset, lease_written_ms = -1, 0
    assignment: Assignment | None = None
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None
    runs: dict[str, RunSummary] = {}
    taken_back: dict[str, RunSummary] = {}
    for record in content.records:
        # A key that is no text is a stranger's; what it says of itself is refused below, with its offset.
        key, value = (record.key() or b"").decode(errors="replace"), record.value()
        if key == LEASE_KEY:
            lease = None if value is None else _decode(value, Lease, topic, record.offset())
            lease_offset, lease_written_ms = (
                (-1, 0) if lease is None else (record.offset(), record.timestamp()[1])
            )
        elif key == ASSIGNMENT_KEY:
            assignment = None if value is None else _decode(value, Assignment, topic, record.offset())
        elif key == RESET_KEY:
            reset = None if value is None else _decode(value, ResetRecord, topic, record.offset())
            if continuous is not None:
                continuous = msgspec.structs.replace(continuous, over=True)
        elif key == CONTINUOUS_KEY:
            continuous = None if value is None else _decode(value, ContinuousRun, topic, record.offset())
            # Also when it says that the run is over: it was written anew by the batch after it.
            reset = None
        elif key == TOPICS_KEY:
            own_topics = None if value is None else _decode(value, OwnTopics, topic, record.offset())
        elif key == CHANGELOGS_KEY:
            changelog_ends = None if value is None else _decode(value, ChangelogEnds, topic, record.offset())
        elif key and not key.startswith(_RESERVED):
            runs.pop(key, None)
            taken_back.pop(key, None)
            if value is None:
                continue
            summary = _decode(value, RunSummary, topic, record.offset())
            if summary.taken_back_ms:
                taken_back[key] = summary
            else:
                runs[key] = summary
                reset = None
    return Ledger(
        runs=runs,
        lease=lease,
        assignment=assignment,
        taken_back=taken_back,
        reset=reset,
        continuous=continuous,
        lease_offset=lease_offset,
        lease_written_ms=lease_written_ms,
        own_topics=own_topics,
        changelog_ends=changelog_ends,
        log=content.log,
    )


def _decode(value: bytes, kind: type[_T], topic: str, offset: int) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise KafkaClientError(
            f"{topic}-0@{offset} is not a ledger record that this version reads: {error}",
            fix="install the airflow_kstreams version that wrote it",
            code="BAD_LEDGER",
        ) from None
