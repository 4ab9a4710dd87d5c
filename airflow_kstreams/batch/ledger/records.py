"""Encodes the records of the ledger. :mod:`airflow_kstreams.batch.ledger.ledger` says what they mean
together.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from airflow_kstreams.batch.ledger.facts import (
    Assignment,
    ChangelogEnds,
    ContinuousRun,
    Lease,
    OwnTopics,
    ResetRecord,
)
from airflow_kstreams.batch.ledger.past_runs import PastRuns
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.streams.decoders import decode_json
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Record

_T = TypeVar("_T")

LEASE_KEY = "__lease__"
CHECKPOINT_KEY = "__checkpoint__"
#: Prefix of the keys that are no run ids.
RESERVED = "__"
#: Of the run id as JSON; leaves room in the 4096 bytes of an offset's metadata.
_RUN_ID_BYTES = 1_000

#: From and to offset.
Span = tuple[int, int]


class LeaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as it was before a transaction that does not write one.

    :param lease: the lease.
    :param offset: of its record.
    :param written_ms: when that was written.
    """

    lease: Lease
    offset: int
    written_ms: int


class LedgerCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that the next run needs; one record in the ledger topic, in pieces if it is large. See ``Ledger``.

    :param past: of the runs before.
    :param at: the offset at which its writer expected it, as it did all that it wrote with it.
    """

    past: PastRuns
    at: int
    lease: LeaseSeen | None = None
    assignment: Assignment | None = None
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None


def check_run_id(run_id: str) -> None:
    """Refuse a run id that the ledger cannot hold.

    :raises ConfigError: it is empty, too long, or starts with two underscores.
    """
    if not run_id or run_id.startswith(RESERVED) or len(msgspec.json.encode(run_id)) > _RUN_ID_BYTES:
        raise ConfigError(
            f"run id {run_id[:60]!r} cannot be used",
            fix=f"use 1 to {_RUN_ID_BYTES} bytes that do not start with two underscores",
        )


def lease_record(application_id: str, lease: Lease) -> MetadataRecord:
    """Return the ledger's record of the lease."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(lease), LEASE_KEY.encode(), None)


def decode_lease(record: Record) -> Lease | None:
    """Return what a record of the ledger says of the lease; None if it takes it away, or is another record.

    :raises KafkaClientError: another version of this package wrote it.
    """
    value = record.value()
    if record.key() != LEASE_KEY.encode() or value is None:
        return None
    return decode(value, Lease, record.topic(), record.offset())


def decode_summary(record: Record) -> RunSummary | None:
    """Return what a record of the ledger says of a run; None if it deletes it, or is another record.

    :raises KafkaClientError: no run wrote it, or another version of this package did.
    """
    key, value = record.key(), record.value()
    if not key or key.startswith(RESERVED.encode()) or value is None:
        return None
    return decode(value, RunSummary, record.topic(), record.offset())


def lease_seen(record: Record) -> LeaseSeen | None:
    """Return the lease that a record holds, and where; None if it takes it away, or is another record."""
    lease = decode_lease(record)
    if lease is None:
        return None
    return LeaseSeen(lease=lease, offset=record.offset(), written_ms=record.timestamp()[1])


def key_of(record: Record) -> str:
    """Return a record's key as text; one that is no text is another program's."""
    return (record.key() or b"").decode(errors="replace")


def headers_of(record: Record) -> dict[str, bytes]:
    """Return a record's headers by name."""
    return {name: value for name, value in record.headers() or () if value is not None}


def decode(value: bytes, kind: type[_T], topic: str, offset: int) -> _T:
    """Return what a record's value says.

    :raises KafkaClientError: another version of this package wrote it, or another program did.
    """
    try:
        return decode_json(value, kind)
    except msgspec.MsgspecError as error:
        raise KafkaClientError(
            f"{topic}-0@{offset} is not a ledger record that this version reads: {error}",
            fix="install the airflow_kstreams version that wrote it",
            code="BAD_LEDGER",
        ) from None
