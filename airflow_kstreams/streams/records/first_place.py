"""Names the place at which a record was consumed first; idempotency keys of calls are made of it.

Rule: no two records have one first place. Offsets begin anew in a topic that is deleted and created again, so
the topic's id is part of it. A record that comes again keeps its first place: a parked record has it in the
retry topic, and a record that a replay brought back has it in a header. A task passes headers on to its
results, so the header counts only in the topic of that place, and beside the key and the value that the
replay wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.timestamp_reading import as_consumed
from airflow_kstreams.streams.serde.internal_serdes import ParkedRecord

#: Header of a record that a replay brought back.
FIRST_PLACE = "__kstreams.first.place"
#: Kafka's number for a record's own time.
_CREATE_TIME = 1


class ParkedOrigin:
    """A parked record in the form in which it was consumed.

    :param parked: the parts of the record that the retry topic holds.
    :param topic: name of the topic in which it was consumed.
    """

    __slots__ = ("_parked", "_topic")

    def __init__(self, parked: ParkedRecord, topic: str) -> None:
        self._parked = parked
        self._topic = topic

    @property
    def first_place(self) -> str:
        """The record's first place."""
        return self._parked.first_place

    def topic(self) -> str:
        """Return the topic."""
        return self._topic

    def partition(self) -> int:
        """Return the partition."""
        return self._parked.partition

    def offset(self) -> int:
        """Return the offset."""
        return self._parked.offset

    def key(self) -> bytes | None:
        """Return the key's original bytes."""
        parked = self._parked
        return parked.key if parked.original is None else parked.original[0]

    def value(self) -> bytes | None:
        """Return the value's original bytes."""
        parked = self._parked
        return parked.value if parked.original is None else parked.original[1]

    def timestamp(self) -> tuple[int, int]:
        """Return the record's own timestamp."""
        return _CREATE_TIME, self._parked.consumed_ms

    def headers(self) -> Headers | None:
        """Return the headers."""
        return self._parked.headers

    def leader_epoch(self) -> int | None:
        """Return None: the leader epoch is not kept."""
        return None


def first_place(record: Record, topic_ids: Mapping[str, str]) -> str:
    """Return ``<topic>-<partition>@<offset>/<topic id>`` of the place at which a record was consumed first.

    :param topic_ids: topic that the task reads -> its id.
    """
    if isinstance(record, ParkedOrigin):
        return record.first_place
    topic = record.topic()
    for name, data in reversed(record.headers() or ()):
        if name == FIRST_PLACE and data is not None:
            place, _, content = data.decode(errors="replace").rpartition(" ")
            consumed = as_consumed(record)
            same = content_id(place, consumed.key(), consumed.value())
            if (_topic_of(place), content) == (topic, same):
                return place
            break
    return f"{topic}-{record.partition()}@{record.offset()}/{topic_ids.get(topic, '')}"


def with_first_place(headers: Headers, place: str, key: bytes | None, value: bytes | None) -> Headers:
    """Return the headers with which a replay brings a record back.

    :param headers: the record's own headers.
    :param place: the place at which it was consumed first.
    """
    own = [(name, data) for name, data in headers if name != FIRST_PLACE]
    return [*own, (FIRST_PLACE, f"{place} {content_id(place, key, value)}".encode())]


def content_id(place: str, key: bytes | None, value: bytes | None, timestamp_ms: int | None = None) -> str:
    """Return an id of a record's content together with its place or topic.

    :param place: the place at which the record was consumed first, or a topic's name.
    :param timestamp_ms: the record's timestamp, where the id must tell records of different times apart.

    >>> content_id("out", b"a", None) == content_id("out", b"a", b"")
    False
    """
    digest = blake2b(place.encode(), digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    if timestamp_ms is not None:
        digest.update(b"@%d" % (timestamp_ms or 1))  # as the client sends it
    return digest.hexdigest()


def _topic_of(place: str) -> str:
    return place.rpartition("@")[0].rpartition("-")[0]
