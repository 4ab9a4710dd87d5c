"""What stands in Kafka as the version before wrote it, which knew less: unknown must not count as wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from airflow_kstreams.batch.protocol.ledger import CHANGELOGS_KEY, TOPICS_KEY
from airflow_kstreams.batch.protocol.metadata_records import H_PLAN
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.protocol_topics import ProtocolTopics
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka import LogRecord

#: Records of the ledger, and fields of what stands in records and offsets, that the version before had not.
_RECORDS: frozenset[bytes] = frozenset({TOPICS_KEY.encode(), CHANGELOGS_KEY.encode()})
_FIELDS: frozenset[str] = frozenset(
    {
        "complete",
        "ends",
        "ledger",
        "moved_starts",
        "record_counts",
        "slice",
        "slice_run_id",
        "store_serdes",
    }
)


def forget_new_facts(kafka: InMemoryKafka, application_id: str) -> None:
    """Write all that an application has left behind as the version before would have written it."""
    for topic in ProtocolTopics(application_id).protocol:
        last: dict[bytes, LogRecord] = {}
        for record in kafka.records(topic) if topic in kafka.topics() else ():
            last.pop(record.key() or b"", None)
            last[record.key() or b""] = record
        for key, record in last.items():
            value = None if key in _RECORDS else _older(record.value())
            headers: Headers = [
                (name, _older(content) if name == H_PLAN else content)
                for name, content in record.headers() or ()
            ]
            kafka.append(topic, value, key, headers=headers)
    reader = kafka.reader(group_id=application_id)
    committed = reader.committed([tp for topic in kafka.topics() for tp in kafka.partitions(topic)])
    reader.commit(
        {
            tp: offset._replace(metadata=(_older(offset.metadata.encode()) or b"").decode())
            for tp, offset in committed.items()
        }
    )
    reader.close()


def _older(content: bytes | None) -> bytes | None:
    """Return what is JSON without the fields that are new; anything else stays."""
    try:
        found = msgspec.json.decode(content or b"")
    except msgspec.DecodeError:
        return content
    return msgspec.json.encode(_without(found)) if isinstance(found, dict) else content


def _without(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _without(value) for name, value in found.items() if name not in _FIELDS}
    return [_without(value) for value in found] if isinstance(found, list) else found
