"""Records of the metadata topic: KIP-95's keys and values as text, ours beside them in headers.

==================  ==================  ========  =========================================================
record              key                 value     headers beside version, kind, run and generation
==================  ==================  ========  =========================================================
stop offset         ``A_1``             ``55``    topic, partition, topic id, start offset
piece of the plan   ``<app>#0``         JSON      none; see ``pieces.py``
completed marker    ``<app>``           ``0``     owner and the whole plan, or what the pieces of it must be
done notification   ``A_1-I_1``         ``60``    input topic and partition, intermediate topic and partition
finished marker     ``<app>``           ``1``     as the completed marker
tombstone           any of these        null      none
==================  ==================  ========  =========================================================

Keys are ambiguous in general (topics may hold dashes, underscores and digits), so readers trust the headers.
``check_keys`` refuses a topology whose keys coincide: compaction knows nothing of headers. A key of a piece
coincides with none: no name of a topic or an application holds ``#``. A marker whose plan is in pieces has a
version of its own, so that a reader which knows no pieces does not take it for a foreign one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.protocol.model import FrozenPartition, Slice
from airflow_kstreams.batch.protocol.pieces import cut
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.protocol_topics import ProtocolTopics

VERSION = b"1"
#: Of a marker whose plan is in pieces.
VERSION_IN_PIECES = b"2"
COMPLETED, FINISHED = b"0", b"1"
PARTITION = 0

H_VERSION = "kstreams.version"
H_KIND = "kstreams.kind"
H_RUN = "kstreams.run"
H_GENERATION = "kstreams.generation"
H_OWNER = "kstreams.owner"
H_PLAN = "kstreams.plan"
H_TOPIC = "kstreams.topic"
H_PARTITION = "kstreams.partition"
H_TOPIC_ID = "kstreams.topic.id"
H_START = "kstreams.start.offset"
H_INTERMEDIATE = "kstreams.intermediate.topic"
H_INTERMEDIATE_PARTITION = "kstreams.intermediate.partition"

KIND_STOP, KIND_NOTIFICATION = b"stop", b"notification"
KIND_COMPLETED, KIND_FINISHED, KIND_PIECE = b"completed", b"finished", b"piece of the plan"


class MetadataRecord(NamedTuple):
    """A record to produce to partition 0 of the metadata topic or the ledger."""

    topic: str
    value: bytes | None
    key: bytes
    headers: Headers | None


def stop_key(partition: TopicPartition) -> str:
    """Return the key of a stop offset."""
    return f"{partition.topic}_{partition.partition}"


def notification_key(source: TopicPartition, intermediate: TopicPartition) -> str:
    """Return the key of a done notification."""
    return f"{stop_key(source)}-{stop_key(intermediate)}"


def stop_hash(inputs: Iterable[FrozenPartition]) -> str:
    """Return a hash over a whole stop set."""
    lines = sorted(f"{p.topic}\n{p.partition}\n{p.start_offset}\n{p.stop_offset}\n" for p in inputs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def slice_records(slice_: Slice, *, owner: str) -> list[MetadataRecord]:
    """Return a new slice's records: every stop offset, then the completed marker with its plan."""
    return [
        *(_stop_record(slice_, frozen) for frozen in slice_.inputs),
        *plan_pieces(slice_),
        completed_record(slice_, owner=owner),
    ]


def plan_pieces(slice_: Slice) -> list[MetadataRecord]:
    """Return what comes before a marker in its transaction: the plan, if it does not fit into the marker."""
    key = _marker_key(slice_)
    large = cut(key, msgspec.json.encode(slice_.plan))
    if large is None:
        return []
    headers: Headers = [(H_KIND, KIND_PIECE), *_of_run(slice_)]
    return [MetadataRecord(_topic(slice_), part, name, headers) for name, part in large.pieces]


def completed_record(slice_: Slice, *, owner: str) -> MetadataRecord:
    """Return the completed marker; :func:`plan_pieces` go before it."""
    return _marker(slice_, KIND_COMPLETED, COMPLETED, owner)


def finished_record(slice_: Slice, *, owner: str) -> MetadataRecord:
    """Return the finished marker; :func:`plan_pieces` go before it."""
    return _marker(slice_, KIND_FINISHED, FINISHED, owner)


def notification_record(
    slice_: Slice, source: TopicPartition, intermediate: TopicPartition, last_offset: int
) -> MetadataRecord:
    """Return one done notification.

    :param source: the input partition that is processed up to its stop.
    :param intermediate: the intermediate partition that was written.
    :param last_offset: a high watermark of the intermediate partition at or past everything written.
    """
    headers: Headers = [
        *_common(slice_, KIND_NOTIFICATION),
        (H_TOPIC, source.topic.encode()),
        (H_PARTITION, str(source.partition).encode()),
        (H_INTERMEDIATE, intermediate.topic.encode()),
        (H_INTERMEDIATE_PARTITION, str(intermediate.partition).encode()),
    ]
    key = notification_key(source, intermediate).encode()
    return MetadataRecord(_topic(slice_), str(last_offset).encode(), key, headers)


def tombstone(application_id: str, key: bytes) -> MetadataRecord:
    """Return the record that deletes a key."""
    return MetadataRecord(ProtocolTopics(application_id).metadata, None, key, None)


def check_keys(topology: TopologyPlan, partitions: Mapping[str, int]) -> None:
    """Refuse a topology of which two records would share a key.

    :param partitions: partition count of every source topic.
    :raises TopologyError: naming the key and what would share it.
    """
    seen: dict[str, str] = {topology.application_id: "the run's markers"}

    def claim(key: str, meaning: str) -> None:
        other = seen.setdefault(key, meaning)
        if other != meaning:
            raise TopologyError(
                f"in the metadata topic of application {topology.application_id!r} the key {key!r} would "
                f"stand for {other} and for {meaning}",
                fix="choose another application id, or rename one of the topics",
            )

    intermediates = set(topology.intermediates)
    for topic in topology.inputs:
        for partition in _all(topic, partitions):
            claim(stop_key(partition), f"the stop offset of {partition}")
    for sub in topology.subtopologies:
        sources = [partition for topic in sub.sources for partition in _all(topic, partitions)]
        written = [p for topic in sub.sinks if topic in intermediates for p in _all(topic, partitions)]
        for source in sources:
            for intermediate in written:
                claim(
                    notification_key(source, intermediate),
                    f"the done notification of {source} for {intermediate}",
                )


def _all(topic: str, partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions[topic])]


def _topic(slice_: Slice) -> str:
    return ProtocolTopics(slice_.plan.topology.application_id).metadata


def _marker_key(slice_: Slice) -> bytes:
    return slice_.plan.topology.application_id.encode()


def _common(slice_: Slice, kind: bytes, version: bytes = VERSION) -> Headers:
    return [(H_VERSION, version), (H_KIND, kind), *_of_run(slice_)]


def _of_run(slice_: Slice) -> Headers:
    return [(H_RUN, slice_.run_id.encode()), (H_GENERATION, str(slice_.generation).encode())]


def _stop_record(slice_: Slice, frozen: FrozenPartition) -> MetadataRecord:
    headers: Headers = [
        *_common(slice_, KIND_STOP),
        (H_TOPIC, frozen.topic.encode()),
        (H_PARTITION, str(frozen.partition).encode()),
        (H_TOPIC_ID, slice_.plan.topic_ids[frozen.topic].encode()),
        (H_START, str(frozen.start_offset).encode()),
    ]
    key = stop_key(frozen.topic_partition).encode()
    return MetadataRecord(_topic(slice_), str(frozen.stop_offset).encode(), key, headers)


def _marker(slice_: Slice, kind: bytes, value: bytes, owner: str) -> MetadataRecord:
    key, plan = _marker_key(slice_), msgspec.json.encode(slice_.plan)
    large = cut(key, plan)
    headers: Headers = [
        *_common(slice_, kind, VERSION if large is None else VERSION_IN_PIECES),
        (H_OWNER, owner.encode()),
        *([(H_PLAN, plan)] if large is None else large.headers),
    ]
    return MetadataRecord(_topic(slice_), value, key, headers)
