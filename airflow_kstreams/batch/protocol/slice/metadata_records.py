"""Encodes the records of the metadata topic: KIP-95's keys and values as text, the engine's own in headers.

=================  ==================  ========  ==========================================================
record             key                 value     headers beside version, kind, run and generation
=================  ==================  ========  ==========================================================
stop offset        ``A_1``             ``55``    topic, partition, topic id, start offset, epoch at the end
piece of the plan  ``<app>#0``         its text  none, and no version
completed marker   ``<app>``           ``0``     owner, and the plan or the number and hash of its pieces
done notification  ``<app>-0_1``       ``done``  subtopology and group of the task
intermediate stop  ``I_1``             ``60``    as a stop offset
finished marker    ``<app>``           ``1``     as the completed marker
reported failures  ``<app>#reported``  JSON      none, and no version, run or generation
tombstone          any of these        null      none
=================  ==================  ========  ==========================================================

An Airflow task reports its failure outside any transaction and claim
(:mod:`airflow_kstreams.batch.run.reported_failures`); no other record is written so.

KIP-95 has a task notify once per input partition and intermediate partition (``A_1-I_1`` -> ``60``), and each
reader takes the maximum. Those records grow with partitions squared. Here a task notifies once, and its
coordinator writes the stop (:mod:`airflow_kstreams.batch.protocol.slice.stops`). Readers understand pairs
that other programs write.

Keys are ambiguous in general (topics may hold dashes, underscores and digits), so readers trust the headers.
``check_keys`` refuses a topology whose keys coincide: compaction knows nothing of headers. A key of a piece
or of reported failures coincides with none: no name of a topic or an application holds ``#``.

Rule of pieces: a value that fits is one record. A larger one is split: piece ``n`` has the key ``<key>#<n>``,
and the record of the key itself, which comes after all of them in the same transaction, holds their number
and the hash of the whole in headers.

Invariant: a reader gets the value that was written, or learns that it has not got it. Readers of committed
records see all pieces or none. Compaction keeps each key's last record, so pieces of an older, longer value
may still be there: the number excludes them. A reader that reads while the cleaner works may miss pieces, or
get those of two values: the hash shows it, and it reads again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_number
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Headers, Record, TopicPartition

#: Largest value of one record. A quarter of the broker's default ``max.message.bytes``, so that key, headers
#: and a topic with a smaller limit have room.
PIECE_BYTES = 256 * 1024

H_PIECES = "kstreams.pieces"
H_PIECES_HASH = "kstreams.pieces.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitValue:
    """A value that was too large for a record.

    :param pieces: keys and values of the records that come before the one of the key itself.
    :param headers: headers of the key's own record; they describe the pieces.
    """

    pieces: tuple[tuple[bytes, bytes], ...]
    headers: Headers


def split(key: bytes, content: bytes) -> SplitValue | None:
    """Split a value; None if it fits into a record."""
    if len(content) <= PIECE_BYTES:
        return None
    parts = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    return SplitValue(
        pieces=tuple((piece_key(key, number), part) for number, part in enumerate(parts)),
        headers=[
            (H_PIECES, str(len(parts)).encode()),
            (H_PIECES_HASH, hashlib.sha256(content).hexdigest().encode()),
        ],
    )


def piece_key(key: bytes, number: int) -> bytes:
    """Return the key of a piece."""
    return b"%b#%d" % (key, number)


def pieces_of(headers: Mapping[str, bytes]) -> int:
    """Return the number of pieces into which a value was split, 0 if it is whole, or if another program wrote
    the header.
    """
    try:
        return read_number(headers.get(H_PIECES, b"0"))
    except UnreadableError:
        return 0


def headers_of(record: Record) -> dict[str, bytes]:
    """Return a record's headers by name."""
    return {name: value for name, value in record.headers() or () if value is not None}


def joined(key: bytes, headers: Mapping[str, bytes], piece: Callable[[bytes], bytes | None]) -> bytes | None:
    """Join the pieces of a value; None if pieces are missing, or are not those of this value.

    :param headers: headers of the record of the key itself.
    :param piece: returns the value of the last record before that one with a piece's key, None without one.
    """
    parts: list[bytes] = []
    # The header's number may be anything: no more pieces are looked for than there are.
    for number in range(pieces_of(headers)):
        part = piece(piece_key(key, number))
        if part is None:
            return None
        parts.append(part)
    content = b"".join(parts)
    whole = hashlib.sha256(content).hexdigest().encode() == headers.get(H_PIECES_HASH)
    return content if whole else None


#: Version of the format of a slice. Programs before 0.1.0 wrote 1 and 2, which are refused.
VERSION = b"3"
COMPLETED, FINISHED = b"0", b"1"
DONE = b"done"
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
H_END_EPOCH = "kstreams.end.epoch"
H_SUBTOPOLOGY = "kstreams.subtopology"
H_GROUP = "kstreams.group"

KIND_STOP, KIND_INTERMEDIATE_STOP, KIND_DONE = b"stop", b"intermediate stop", b"done"
KIND_COMPLETED, KIND_FINISHED, KIND_PIECE = b"completed", b"finished", b"piece of the plan"
KIND_REPORTED = b"reported failures"


class MetadataRecord(NamedTuple):
    """A record to produce to partition 0 of the metadata topic or the ledger."""

    topic: str
    value: bytes | None
    key: bytes
    headers: Headers | None


def stop_key(partition: TopicPartition) -> str:
    """Return the key of a stop offset."""
    return f"{partition.topic}_{partition.partition}"


def done_key(application_id: str, subtopology: int, group: int) -> str:
    """Return the key of a task's done notification: its transactional id."""
    return f"{application_id}-{subtopology}_{group}"


def reported_key(application_id: str) -> bytes:
    """Return the key of the failures that Airflow tasks have reported."""
    return f"{application_id}#reported".encode()


def reported_record(application_id: str, value: bytes) -> MetadataRecord:
    """Return the record of the failures that Airflow tasks have reported.

    :param value: their text.
    """
    topic, key = ProtocolTopics(application_id).metadata, reported_key(application_id)
    return MetadataRecord(topic, value, key, [(H_KIND, KIND_REPORTED)])


def stop_hash(inputs: Iterable[FrozenPartition]) -> str:
    """Return a hash over a whole stop set."""
    lines = sorted(f"{p.topic}\n{p.partition}\n{p.start_offset}\n{p.stop_offset}\n" for p in inputs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def slice_records(slice_: Slice, *, owner: str) -> list[MetadataRecord]:
    """Return a new slice's records: every stop offset, then the completed marker with its plan."""
    return [
        *(_stop_record(slice_, frozen, KIND_STOP) for frozen in slice_.inputs),
        *plan_pieces(slice_),
        completed_record(slice_, owner=owner),
    ]


def plan_pieces(slice_: Slice) -> list[MetadataRecord]:
    """Return the records that come before a marker in its transaction: the plan, if it does not fit into the
    marker.
    """
    key = _marker_key(slice_)
    large = split(key, msgspec.json.encode(slice_.plan))
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


def done_record(slice_: Slice, subtopology: int, group: int) -> MetadataRecord:
    """Return the done notification of a task, which says that all that it writes for the slice is
    in the log.
    """
    headers: Headers = [
        *_common(slice_, KIND_DONE),
        (H_SUBTOPOLOGY, str(subtopology).encode()),
        (H_GROUP, str(group).encode()),
    ]
    key = done_key(slice_.plan.topology.application_id, subtopology, group).encode()
    return MetadataRecord(_topic(slice_), DONE, key, headers)


def intermediate_stop_record(slice_: Slice, frozen: FrozenPartition) -> MetadataRecord:
    """Return the record of an intermediate partition's stop offset."""
    return _stop_record(slice_, frozen, KIND_INTERMEDIATE_STOP)


def tombstone(application_id: str, key: bytes) -> MetadataRecord:
    """Return the record that deletes a key."""
    return MetadataRecord(ProtocolTopics(application_id).metadata, None, key, None)


def check_keys(topology: TopologyPlan, partitions: Mapping[str, int], tasks: Mapping[int, int]) -> None:
    """Refuse a topology whose metadata records would share a key.

    :param partitions: partition count of every source topic.
    :param tasks: subtopology id -> its number of tasks.
    :raises TopologyError: two records share a key; the text names the key and both meanings.
    """
    app = topology.application_id
    seen: dict[str, str] = {app: "the run's markers"}

    def claim(key: str, meaning: str) -> None:
        other = seen.setdefault(key, meaning)
        if other != meaning:
            raise _shared(app, key, other, meaning)

    for topic in topology.sources:
        for number in range(partitions[topic]):
            tp = TopicPartition(topic, number)
            claim(stop_key(tp), f"the stop offset of {tp}")
    for sub in topology.subtopologies:
        for group in range(tasks[sub.id]) if topology.intermediates_of(sub.id) else ():
            claim(done_key(app, sub.id, group), f"the done notification of task {sub.id}_{group}")
    pairs = _pairs(topology, partitions)
    if pairs is not None:
        for key, meaning in seen.items():
            if found := pairs.fullmatch(key):
                raise _shared(app, key, meaning, f"the done notification of {found[1]} for {found[2]}")


def _pairs(topology: TopologyPlan, partitions: Mapping[str, int]) -> re.Pattern[str] | None:
    """Return a pattern for the keys of KIP-95's own notifications, which another program may write."""
    writers = [sub for sub in topology.subtopologies if topology.intermediates_of(sub.id)]
    if not writers:
        return None

    def any_of(topics: Iterable[str]) -> str:
        numbers = {topic: "|".join(map(str, range(partitions[topic]))) for topic in topics}
        return "|".join(f"{re.escape(topic)}_(?:{found})" for topic, found in numbers.items())

    sources = any_of(topic for sub in writers for topic in sub.sources)
    return re.compile(f"({sources})-({any_of(topology.intermediates)})")


def _shared(application_id: str, key: str, one: str, other: str) -> TopologyError:
    return TopologyError(
        f"in the metadata topic of application {application_id!r} the key {key!r} would mean {one} and "
        f"{other}",
        fix="choose another application id, or rename one of the topics",
    )


def _topic(slice_: Slice) -> str:
    return ProtocolTopics(slice_.plan.topology.application_id).metadata


def _marker_key(slice_: Slice) -> bytes:
    return slice_.plan.topology.application_id.encode()


def _common(slice_: Slice, kind: bytes) -> Headers:
    return [(H_VERSION, VERSION), (H_KIND, kind), *_of_run(slice_)]


def _of_run(slice_: Slice) -> Headers:
    return [(H_RUN, slice_.run_id.encode()), (H_GENERATION, str(slice_.generation).encode())]


def _stop_record(slice_: Slice, frozen: FrozenPartition, kind: bytes) -> MetadataRecord:
    headers: Headers = [
        *_common(slice_, kind),
        (H_TOPIC, frozen.topic.encode()),
        (H_PARTITION, str(frozen.partition).encode()),
        (H_TOPIC_ID, slice_.plan.topic_ids[frozen.topic].encode()),
        (H_START, str(frozen.start_offset).encode()),
        *([(H_END_EPOCH, str(frozen.end_epoch).encode())] if frozen.end_epoch >= 0 else []),
    ]
    key = stop_key(frozen.topic_partition).encode()
    return MetadataRecord(_topic(slice_), str(frozen.stop_offset).encode(), key, headers)


def _marker(slice_: Slice, kind: bytes, value: bytes, owner: str) -> MetadataRecord:
    key, plan = _marker_key(slice_), msgspec.json.encode(slice_.plan)
    large = split(key, plan)
    headers: Headers = [
        *_common(slice_, kind),
        (H_OWNER, owner.encode()),
        *([(H_PLAN, plan)] if large is None else large.headers),
    ]
    return MetadataRecord(_topic(slice_), value, key, headers)
