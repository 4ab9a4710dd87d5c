"""Folds records of the ledger: pure, whatever part of the log they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from airflow_kstreams.batch.ledger.archive import Entries, Everything, Located
from airflow_kstreams.batch.ledger.details import DETAILS_KEY, entry_of
from airflow_kstreams.batch.ledger.facts import (
    Assignment,
    ChangelogEnds,
    ContinuousRun,
    OwnTopics,
    ResetRecord,
)
from airflow_kstreams.batch.ledger.past_runs import PastRuns, left_without, past_of
from airflow_kstreams.batch.ledger.records import (
    ASSIGNMENT_KEY,
    CHANGELOGS_KEY,
    CHECKPOINT_KEY,
    CONTINUOUS_KEY,
    LEASE_KEY,
    RESERVED,
    RESET_KEY,
    TOPICS_KEY,
    LeaseSeen,
    LedgerCheckpoint,
    Span,
    decode,
    decode_lease,
    headers_of,
    key_of,
    lease_seen,
)
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.pieces import joined, pieces_of
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Record

_T = TypeVar("_T")


class TornCheckpointError(KafkaClientError):
    """The last checkpoint is not whole."""


class FoldedLedger(NamedTuple):
    """What a checkpoint and the records after it say."""

    checkpoint: LedgerCheckpoint
    span: Span | None
    lease: LeaseSeen | None


def checkpoint_span(records: tuple[Record, ...]) -> Span | None:
    """Return where the last record says that the last checkpoint is; None if all must be read."""
    final = records[-1]
    if key_of(final) == CHECKPOINT_KEY:
        return final.offset() - pieces_of(headers_of(final)), final.offset() + 1
    lease = decode_lease(final)
    if lease is None or lease.checkpoint is None:
        return None
    after = (record for record in records if record.offset() >= lease.checkpoint[1])
    return lease.checkpoint if all(key_of(record) == LEASE_KEY for record in after) else None


def last_checkpoint(records: Sequence[Record]) -> tuple[LedgerCheckpoint, Span] | None:
    """Return the last checkpoint among records, and where it is; None if there is none.

    :raises TornCheckpointError: it is not whole.
    """
    values: dict[bytes, bytes | None] = {}
    last: Record | None = None
    content: bytes | None = None
    prefix = CHECKPOINT_KEY.encode()
    for record in records:
        key = record.key() or b""
        if key == prefix:
            # A tombstone, which no run writes, leaves none.
            last, content = record, record.value()
            if content is not None and pieces_of(headers_of(record)):
                content = joined(key, headers_of(record), values.get)
                if content is None:
                    content = b""
        elif key.startswith(prefix):
            values[key] = record.value()
    if last is None or last.value() is None:
        return None
    if not content:
        raise TornCheckpointError(
            f"{last.topic()}-0@{last.offset()}: pieces of the checkpoint are missing, or others",
            fix="retry; if it stays, something else writes to this topic: stop it, and restore the topic",
            code="TORN_LEDGER",
            retriable_code=True,
        )
    found = decode(content, LedgerCheckpoint, last.topic(), last.offset())
    return found, (last.offset() - pieces_of(headers_of(last)), last.offset() + 1)


def fold_ledger(records: Sequence[Record], topic: str) -> tuple[Everything, FoldedLedger]:
    """Fold all records: the last checkpoint, and what came after it; without one everything, one by one.

    :raises KafkaClientError: a record is no ledger's, or another version's, or the checkpoint is lost.
    """
    known = last_checkpoint(records)
    checkpoint, span = known or (LedgerCheckpoint(past=PastRuns(), at=-1), None)
    after = -1 if span is None else span[1]
    entries: dict[str, Located] = {}
    details: dict[str, int] = {}
    changes = _Changes(checkpoint, topic)
    for record in records:
        # A key that is no text is a stranger's; what it says of itself is refused below, with its offset.
        key, value = key_of(record), record.value()
        if key.startswith(DETAILS_KEY) and "#" not in key:
            details[key] = record.offset() + 1
        if not key or key.startswith(RESERVED):
            if record.offset() >= after:
                changes.fold(record)
            continue
        entries.pop(key, None)
        if value is not None:
            entries[key] = Located(record.offset(), decode(value, RunSummary, topic, record.offset()))
        if record.offset() >= after:
            changes.fold_run(entries.get(key))
    if span is None:
        _refuse_lost_checkpoint(entries, changes.lease, topic)
    changes.recount(entries)
    everything = Everything(entries, frozenset(details.values()))
    return everything, FoldedLedger(changes.state, None if changes.others else span, changes.lease)


class _Changes:
    """Folds what earlier versions wrote, and leases, on a checkpoint.

    :ivar others: whether anything but leases came after the checkpoint.
    """

    def __init__(self, checkpoint: LedgerCheckpoint, topic: str) -> None:
        self.state = checkpoint
        self.lease = checkpoint.lease
        self.others = False
        self._topic = topic

    def fold(self, record: Record) -> None:
        """Fold a record with a reserved key."""
        key = key_of(record)
        if key == LEASE_KEY:
            self.lease = lease_seen(record)
            return
        self.others = True
        if key == ASSIGNMENT_KEY:
            self._set(assignment=self._of(record, Assignment))
        elif key == RESET_KEY:
            over = self.state.continuous and msgspec.structs.replace(self.state.continuous, over=True)
            self._set(reset=self._of(record, ResetRecord), continuous=over)
        elif key == CONTINUOUS_KEY:
            # Also when it says that the run is over: it was written anew by the batch after it.
            self._set(continuous=self._of(record, ContinuousRun), reset=None)
        elif key == TOPICS_KEY:
            self._set(own_topics=self._of(record, OwnTopics))
        elif key == CHANGELOGS_KEY:
            self._set(changelog_ends=self._of(record, ChangelogEnds))

    def fold_run(self, found: Located | None) -> None:
        """Fold the entry of a run, None if it was deleted."""
        self.others = True
        if found is not None and not found.summary.taken_back_ms:
            self._set(reset=None)

    def recount(self, entries: Entries) -> None:
        """Take what is known of past runs from all entries, where it is not as the checkpoint says: earlier
        versions have written since, or the last entry does not stand where it was to stand.
        """
        known = self.state.past
        if not self.others:
            last = None if known.last is None else entries.get(known.last.run_id)
            self._set(past=msgspec.structs.replace(known, last_at=-1 if last is None else last.offset))
            return
        finished = {run_id: each for run_id, each in entries.items() if not each.summary.taken_back_ms}
        gone = [each.summary for each in entries.values() if each.summary.taken_back_ms]
        past = past_of({r: each for r, each in finished.items() if each.offset > known.last_at}, gone)
        left = left_without({**past.left, **known.left}, {run.run_id for run in gone}, ())
        for topic, entry in past.left.items():
            if entry.stops:
                left[topic] = entry
        last = next(reversed(finished.values()), None)
        past = msgspec.structs.replace(
            known,
            left=left,
            finished=len(finished),
            last=None if last is None else entry_of(last.summary),
            last_at=-1 if last is None else last.offset,
            chained_from=max((each.offset + 1 for each in entries.values()), default=0),
            taken_back=past.taken_back,
        )
        self._set(past=past)

    def _set(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)

    def _of(self, record: Record, kind: type[_T]) -> _T | None:
        value = record.value()
        return None if value is None else decode(value, kind, self._topic, record.offset())


def _refuse_lost_checkpoint(entries: Entries, lease: LeaseSeen | None, topic: str) -> None:
    """Refuse a ledger that has no checkpoint and whose entries, or lease, need one.

    :raises KafkaClientError: it is such a ledger.
    """
    alone = any(each.summary.without_details for each in entries.values())
    if alone or (lease is not None and lease.lease.checkpoint is not None):
        raise KafkaClientError(
            f"the checkpoint of {topic} is gone: where earlier runs have left their topics is not known",
            fix="something else writes to this topic: stop it, and restore the topic",
            code="BAD_LEDGER",
        )
