"""Writes over what runs have left in Kafka, so that a test meets what a run seldom leaves."""

from __future__ import annotations

from typing import Any

import msgspec

from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY, LeaseSeen, last_checkpoint
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.testing import InMemoryKafka


def leave_out_counts(kafka: InMemoryKafka, application_id: str) -> None:
    """Commit an application's offsets once more, as they are where counts and figures had no room."""
    reader = kafka.reader(group_id=application_id)
    committed = reader.committed([tp for topic in kafka.topics() for tp in kafka.partitions(topic)])
    for tp, offset in committed.items():
        short = msgspec.structs.replace(OffsetMetadata.decode(offset.metadata), counts=None, metrics=None)
        reader.commit({tp: offset._replace(metadata=short.encode())})
    reader.close()


def change_checkpoint(kafka: InMemoryKafka, application_id: str, **changes: Any) -> None:
    """Write the ledger's last checkpoint once more, with some of it changed."""
    topic = ProtocolTopics(application_id).ledger
    found, ledger = (
        last_checkpoint(kafka.records(topic)),
        read_ledger(kafka, application_id, clock=kafka.clock),
    )
    assert found is not None
    assert ledger.lease is not None
    lease = LeaseSeen(lease=ledger.lease, offset=ledger.lease_offset, written_ms=ledger.lease_written_ms)
    at = kafka.records(topic)[-1].offset() + 1
    changed = msgspec.structs.replace(found[0], at=at, lease=lease, **changes)
    kafka.append(topic, msgspec.json.encode(changed), CHECKPOINT_KEY.encode())
