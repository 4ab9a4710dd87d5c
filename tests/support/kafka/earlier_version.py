"""What stands in Kafka as earlier versions wrote it, which knew less: unknown must not count as wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.records import (
    ASSIGNMENT_KEY,
    CHANGELOGS_KEY,
    CONTINUOUS_KEY,
    LEASE_KEY,
    RESET_KEY,
    TOPICS_KEY,
)
from airflow_kstreams.batch.protocol.slice.metadata_records import H_PLAN
from airflow_kstreams.batch.protocol.slice.slice import RunPlan, transactional_ids
from airflow_kstreams.streams.naming.protocol_topics import ProtocolTopics
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka import LogRecord

#: Records of the ledger, and fields of what stands in records and offsets, that an older version had not.
_RECORDS: frozenset[bytes] = frozenset({TOPICS_KEY.encode(), CHANGELOGS_KEY.encode()})
_FIELDS: frozenset[str] = frozenset(
    {
        "complete",
        "due",
        "ends",
        "ledger",
        "metrics",
        "moved_starts",
        "none_parked_at",
        "parked",
        "parked_due_ms",
        "record_counts",
        "slice",
        "slice_run_id",
        "store_serdes",
    }
)
#: Fields of entries and leases that the version without checkpoints had not.
_OF_CHECKPOINTS: frozenset[str] = frozenset({"read", "totals", "previous", "details", "checkpoint"})


def forget_checkpoints(kafka: InMemoryKafka, application_id: str) -> None:
    """Write ledger and plan as the version did that knew no checkpoints: whole entries, each fact in a record
    of its own, transactional ids written out.
    """
    topics = ProtocolTopics(application_id)
    ledger = read_ledger(kafka, application_id, clock=kafka.clock)
    taken_back = [each.summary for each in ledger.archive.all().values() if each.summary.taken_back_ms]
    entries = [*taken_back, *ledger.all_runs().values()]
    for key in {record.key() or b"" for record in kafka.records(topics.ledger)}:
        kafka.append(topics.ledger, None, key)
    facts: dict[str, msgspec.Struct | None] = {
        TOPICS_KEY: ledger.own_topics,
        CHANGELOGS_KEY: ledger.changelog_ends,
        ASSIGNMENT_KEY: ledger.assignment,
    }
    whole = {entry.run_id: ledger.detailed(entry) for entry in entries}
    facts |= {CONTINUOUS_KEY: ledger.continuous, RESET_KEY: ledger.reset, LEASE_KEY: ledger.lease}
    for name, fact in {**whole, **facts}.items():
        if fact is not None:
            kafka.append(topics.ledger, _without_checkpoints(fact), name.encode())
    for record in _last_records(kafka, topics.metadata):
        headers: Headers = [
            (name, _with_transactional_ids(content) if name == H_PLAN and content else content)
            for name, content in record.headers() or ()
        ]
        kafka.append(topics.metadata, record.value(), record.key(), headers=headers)


def forget_new_facts(kafka: InMemoryKafka, application_id: str) -> None:
    """Write all that an application has left behind as an older version would have written it."""
    forget_checkpoints(kafka, application_id)
    for topic in ProtocolTopics(application_id).protocol:
        for record in _last_records(kafka, topic):
            value = None if record.key() in _RECORDS else _older(record.value())
            headers: Headers = [
                (name, _older(content) if name == H_PLAN else content)
                for name, content in record.headers() or ()
            ]
            kafka.append(topic, value, record.key(), headers=headers)
    reader = kafka.reader(group_id=application_id)
    committed = reader.committed([tp for topic in kafka.topics() for tp in kafka.partitions(topic)])
    reader.commit(
        {
            tp: offset._replace(metadata=(_older(offset.metadata.encode()) or b"").decode())
            for tp, offset in committed.items()
        }
    )
    reader.close()


def _last_records(kafka: InMemoryKafka, topic: str) -> list[LogRecord]:
    last: dict[bytes, LogRecord] = {}
    for record in kafka.records(topic) if topic in kafka.topics() else ():
        last.pop(record.key() or b"", None)
        last[record.key() or b""] = record
    return list(last.values())


def _without_checkpoints(fact: Any) -> bytes:
    found = msgspec.to_builtins(fact)
    return msgspec.json.encode({name: value for name, value in found.items() if name not in _OF_CHECKPOINTS})


def _with_transactional_ids(content: bytes) -> bytes:
    plan = msgspec.json.decode(content, type=RunPlan)
    ids = transactional_ids(plan.topology.application_id, plan.tasks)
    return msgspec.json.encode(msgspec.structs.replace(plan, transactional_ids=ids))


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
