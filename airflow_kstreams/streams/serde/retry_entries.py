"""Defines the entries of a retry topic: parked records, each until a later call for it has ended.

A key is the parked record's own serialized key and its number in the order of parking; a value holds all that
a later attempt, task or run needs to call again as if the record had just been consumed.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from airflow_kstreams.streams.decoders import msgpack_decoder
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.serde.base import Serde


class ParkedKey(NamedTuple):
    """The key of an entry.

    :param key: the record's serialized key.
    :param number: rises in the order of parking.
    """

    key: bytes | None
    number: int


class ParkedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The value of an entry.

    :param key: the key that the node got, in its serde; so is ``value``.
    :param timestamp_ms: timestamp of the record being processed, epoch milliseconds.
    :param ordinal: number of the call among those of the node for the consumed record.
    :param failures: number of its failed calls; 0 if it was parked behind another record of its key.
    :param not_before_ms: time of the next call, epoch milliseconds of the wall clock.
    :param topic: topic of the consumed record; None if a timer or a commit point produced the record.
    :param consumed_ms: the consumed record's own timestamp.
    :param headers: headers of the consumed record.
    :param replaced_headers: headers that a processor gave it, None if it has the consumed record's.
    :param original: key and value of the consumed record, None if they are those that the node got.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    ordinal: str
    failures: int
    not_before_ms: int
    topic: str | None = None
    partition: int = -1
    offset: int = -1
    consumed_ms: int = -1
    headers: Headers | None = None
    replaced_headers: Headers | None = None
    original: tuple[bytes | None, bytes | None] | None = None


def parked_keys() -> Serde:
    """Return the serde of a retry topic's keys."""
    return Serde(
        id="parked-key",
        serialize=msgspec.msgpack.Encoder().encode,
        deserialize=msgpack_decoder(ParkedKey).decode,
    )


def parked_records(keys: Serde, values: Serde) -> Serde:
    """Return the serde of a retry topic's values.

    :param keys: serde of the node's keys; ``values`` is that of its values. A parked record depends on both.
    """
    return Serde(
        id=f"parked({keys.id}, {values.id})",
        serialize=msgspec.msgpack.Encoder().encode,
        deserialize=msgpack_decoder(ParkedRecord).decode,
        written_as=f"parked({keys.stored_as}, {values.stored_as})",
    )
