"""Which processor an entry of a store belongs to, as its changelog tells (see "partition and processor
expansion").

Rule: an entry can follow its key to another processor only if the key's partition can be told from the
entry's own key: where records have their own key in the store, and its serde writes the bytes that it read.
A plan says so of each changelog, or why not.
"""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams.decoders import msgpack_decoder


class _ParkedKey(msgspec.Struct, array_like=True, frozen=True):
    """What is asked of a retry topic's key."""

    key: bytes | None


_decode_parked = msgpack_decoder(_ParkedKey).decode
_LENGTH_BYTES = 4


class EntryKeys(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The keys of a changelog's entries.

    :param unfit: why a key's partition cannot be told from them; empty if it can.
    :param suffix: how many bytes stand behind those that decide the partition: windows, times, numbers.
    :param parked: whether they are those of a retry topic.
    :param prefixed: whether they begin with the length of the bytes that decide the partition, and these.
    """

    unfit: str = ""
    suffix: int = 0
    parked: bool = False
    prefixed: bool = False

    def placing(self, key: bytes) -> bytes | None:
        """Return the bytes that decide the partition of an entry's records; None of a record without a key,
        which may lie anywhere.

        :param key: of the changelog's record.

        >>> EntryKeys(suffix=8).placing(b"JFK" + bytes(8))
        b'JFK'
        >>> EntryKeys(prefixed=True).placing(bytes([0, 0, 0, 3]) + b"JFK" + b"flight 7")
        b'JFK'
        """
        record_key: bytes | None = key
        if self.prefixed:
            return key[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(key[:_LENGTH_BYTES], "big")]
        if self.parked:
            record_key = _decode_parked(key).key
        if record_key is None or not self.suffix:
            return record_key
        return record_key[: -self.suffix]
