"""A metadata topic held in a list: what fold reads, without a broker; and slices to fill it with."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_kstreams.batch.protocol.slice.metadata import fold
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    MetadataRecord,
    done_record,
    finished_record,
    intermediate_stop_record,
    slice_records,
    stop_hash,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, LedgerSeen, RunPlan, Slice
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from tests.support.topology.records import FakeRecord

APP = "app"
TWO_STAGES = TopologyPlan(
    application_id=APP,
    topology_hash="hash-1",
    subtopologies=(
        SubtopologyPlan(id=0, sources=("A", "B"), sinks=("I",)),
        SubtopologyPlan(
            id=1, sources=("I",), sinks=("O",), stores=("s",), changelogs={"s": "app-s-changelog"}
        ),
    ),
)


def frozen(topic: str, partition: int, start: int, stop: int) -> FrozenPartition:
    return FrozenPartition(topic=topic, partition=partition, start_offset=start, stop_offset=stop)


INPUTS = (frozen("A", 0, 0, 55), frozen("A", 1, 5, 46), frozen("B", 0, 7, 7))


def a_slice(
    run_id: str = "run-1", *, generation: int = 1, inputs: tuple[FrozenPartition, ...] = INPUTS
) -> Slice:
    return Slice(
        run_id=run_id,
        generation=generation,
        plan=RunPlan(
            topology=TWO_STAGES,
            partitions={"A": 2, "B": 1, "I": 2},
            topic_ids={"A": "id-a", "B": "id-b", "I": "id-i"},
            tasks={"0": 2, "1": 2},
            stop_hash=stop_hash(inputs),
            begun_ms=1_000,
            ledger=LedgerSeen(topic_id="id-runs", end=0),
        ),
        inputs=inputs,
    )


def records_of(slice_: Slice) -> list[MetadataRecord]:
    return slice_records(slice_, owner="the test")


def log_of(records: Iterable[MetadataRecord]) -> list[FakeRecord]:
    """The records as a reader gets them, offsets counted from 0."""
    return [
        FakeRecord(at=at, key_bytes=r.key, value_bytes=r.value, header_list=r.headers)
        for at, r in enumerate(records)
    ]


def stop_record(slice_: Slice, topic: str, partition: int, stop: int) -> MetadataRecord:
    """The stop of an intermediate partition as a coordinator freezes it."""
    return intermediate_stop_record(slice_, frozen(topic, partition, 0, stop))


def bare(key: str, value: str | None) -> MetadataRecord:
    """A record as a foreign writer of the spec's format leaves it: no headers."""
    return MetadataRecord("app-metadata", None if value is None else value.encode(), key.encode(), None)


def compacted(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """What compaction may leave at the most: each key's last record."""
    last = {record.key: at for at, record in enumerate(records)}
    return [record for at, record in enumerate(records) if last[record.key] == at]


def tombstones(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """What takes all of these back."""
    return [tombstone(APP, key) for key in fold(log_of(records), APP, topics=()).live_keys]


def second_run() -> tuple[list[MetadataRecord], list[MetadataRecord]]:
    """A finished first run with notifications, and what the begin of a second writes after it."""
    first = records_of(a_slice())
    first.append(done_record(a_slice(), 0, 0))
    first.append(stop_record(a_slice(), "I", 0, 24))
    first.append(finished_record(a_slice(), owner="x"))
    later = a_slice("run-2", inputs=(frozen("A", 0, 55, 155), frozen("A", 1, 46, 46), frozen("B", 0, 7, 9)))
    return first, [*tombstones(first), *records_of(later)]
