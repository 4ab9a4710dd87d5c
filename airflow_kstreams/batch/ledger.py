"""The run ledger ``<app>-runs``: the summary of every finished run, and who works on the application now.

Compacted, one partition. Key = run id, value = the summary as JSON; a run never deletes one. Reserved keys
start with two underscores: ``__lease__`` holds the lease, ``__assignment__`` the partition groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from airflow_kstreams.batch.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_log
from airflow_kstreams.batch.metadata_records import MetadataRecord
from airflow_kstreams.batch.model import Assignment, Lease, RunSummary
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort

_T = TypeVar("_T")

LEASE_KEY = "__lease__"
ASSIGNMENT_KEY = "__assignment__"
_RESERVED = "__"
#: Of the run id as JSON; leaves room in the 4096 bytes of an offset's metadata.
_RUN_ID_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the ledger says.

    :param runs: summary by run id, in the order in which they finished.
    :param lease: the last lease, whether live, expired or released; None when there never was one.
    :param assignment: the partition groups that state depends on; None before the first run with records.
    """

    runs: Mapping[str, RunSummary] = field(default_factory=dict)
    lease: Lease | None = None
    assignment: Assignment | None = None

    def last(self) -> RunSummary | None:
        """Return the run that finished last."""
        return next(reversed(list(self.runs.values())), None)


def ledger_topic(application_id: str) -> str:
    """Return the name of an application's ledger."""
    return f"{application_id}-runs"


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
    topic = ledger_topic(summary.application_id)
    return MetadataRecord(topic, msgspec.json.encode(summary), summary.run_id.encode(), None)


def lease_record(application_id: str, lease: Lease) -> MetadataRecord:
    """Return the ledger's record of the lease."""
    return MetadataRecord(ledger_topic(application_id), msgspec.json.encode(lease), LEASE_KEY.encode(), None)


def assignment_record(application_id: str, assignment: Assignment) -> MetadataRecord:
    """Return the ledger's record of the partition groups."""
    topic = ledger_topic(application_id)
    return MetadataRecord(topic, msgspec.json.encode(assignment), ASSIGNMENT_KEY.encode(), None)


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
    topic = ledger_topic(application_id)
    content = read_log(
        cluster, topic, group_id=application_id, admin=admin, reader=reader, wait_ms=wait_ms, clock=clock
    )
    lease: Lease | None = None
    assignment: Assignment | None = None
    runs: dict[str, RunSummary] = {}
    for record in content.records:
        key, value = (record.key() or b"").decode(), record.value()
        if key == LEASE_KEY:
            lease = None if value is None else _decode(value, Lease, topic, record.offset())
        elif key == ASSIGNMENT_KEY:
            assignment = None if value is None else _decode(value, Assignment, topic, record.offset())
        elif key and not key.startswith(_RESERVED):
            runs.pop(key, None)
            if value is not None:
                runs[key] = _decode(value, RunSummary, topic, record.offset())
    return Ledger(runs=runs, lease=lease, assignment=assignment)


def _decode(value: bytes, kind: type[_T], topic: str, offset: int) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise KafkaClientError(
            f"{topic}-0@{offset} is not a ledger record that this version reads: {error}",
            fix="install the airflow_kstreams version that wrote it",
            code="BAD_LEDGER",
        ) from None
