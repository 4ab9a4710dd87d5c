"""Folds records of the ledger, those of its end or all of them; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.ledger.details import DETAILS_KEY
from airflow_kstreams.batch.ledger.past_runs import PastRuns
from airflow_kstreams.batch.ledger.records import (
    CHECKPOINT_KEY,
    LEASE_KEY,
    RESERVED,
    LeaseSeen,
    LedgerCheckpoint,
    Span,
    decode,
    decode_lease,
    headers_of,
    key_of,
    lease_seen,
)
from airflow_kstreams.batch.ledger.run_search import Entries, Everything, Located
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.pieces import joined, pieces_of
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Record


class TornCheckpointError(KafkaClientError):
    """The last checkpoint is not whole."""


class FoldedLedger(NamedTuple):
    """The content of a checkpoint and the records after it."""

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
            # After a tombstone, which no run writes, there is none.
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
    """Find every entry of a run, the last checkpoint, and the lease after it.

    Behind the checkpoint come leases only. Where another program has written there, no checkpoint counts as
    found, and the next one that is written brings all of the index.

    :raises KafkaClientError: a record is no ledger's, or another version's, or the checkpoint is lost.
    """
    checkpoint, span = last_checkpoint(records) or (LedgerCheckpoint(past=PastRuns(), at=-1), None)
    after = -1 if span is None else span[1]
    entries: dict[str, Located] = {}
    details: dict[str, int] = {}
    lease, alone, behind = checkpoint.lease, True, False
    for record in records:
        # A key that is no text is another program's; its record is refused below, with its offset.
        key, value = key_of(record), record.value()
        if key.startswith(DETAILS_KEY) and "#" not in key:
            details[key] = record.offset() + 1
        if record.offset() >= after:
            alone = alone and key == LEASE_KEY
            lease = lease_seen(record) if key == LEASE_KEY else lease
        if not key or key.startswith(RESERVED):
            continue
        entries.pop(key, None)
        if value is not None:
            entries[key] = Located(record.offset(), decode(value, RunSummary, topic, record.offset()))
            # Every run that finishes writes its checkpoint right behind its entry, in one transaction.
            behind = behind or record.offset() >= after
    if span is None or behind:
        _refuse_lost_checkpoint(entries, lease, topic)
    last = None if checkpoint.past.last is None else entries.get(checkpoint.past.last.run_id)
    past = msgspec.structs.replace(checkpoint.past, last_at=-1 if last is None else last.offset)
    state = msgspec.structs.replace(checkpoint, past=past)
    return Everything(entries, frozenset(details.values())), FoldedLedger(
        state, span if alone else None, lease
    )


def _refuse_lost_checkpoint(entries: Entries, lease: LeaseSeen | None, topic: str) -> None:
    """Refuse a ledger that has no checkpoint, although a run has finished or its lease names one.

    :raises KafkaClientError: it is such a ledger.
    """
    if entries or (lease is not None and lease.lease.checkpoint is not None):
        raise KafkaClientError(
            f"the checkpoint of {topic} is gone: where earlier runs have left their topics is not known",
            fix="something else writes to this topic: stop it, and restore the topic",
            code="BAD_LEDGER",
        )
