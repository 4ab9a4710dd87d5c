"""Makes the serde of a table's changes in a repartition topic, byte-equal to Kafka Streams' ChangedSerializer
since 3.5.

The last byte names the bytes before it: 0 the old value, 1 the new one, 2 the new value's length, a varint in
Protocol Buffers' zigzag form, the new value and the old one.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.changes import Change
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic

_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"


def changed(value_serde: Serde) -> Serde:
    r"""Return the serde of :class:`~airflow_kstreams.streams.changes.Change`.

    :param value_serde: the serde of the values, which are not both None.

    >>> from airflow_kstreams.streams import serdes
    >>> strings = changed(serdes.string())
    >>> [strings.serialize(Change(*both)) for both in (("n", None), (None, "o"), ("n", "o"))]
    [b'n\x01', b'o\x00', b'\x02no\x02']
    >>> strings.deserialize(b"\x02no\x02")
    Change(new='n', old='o', old_ms=-1)
    """
    serialize, deserialize = value_serde.serialize, value_serde.deserialize

    def write(change: Change) -> bytes:
        new, old, _ = change
        if old is None:
            if new is None:
                raise ValueError("a change has neither a new value nor an old one")
            return serialize(new) + _NEW
        if new is None:
            return serialize(old) + _OLD
        data = serialize(new)
        return _varint(len(data)) + data + serialize(old) + _BOTH

    def read(data: bytes) -> Any:
        kind = data[-1:]
        if kind == _NEW:
            return Change(deserialize(data[:-1]), None)
        if kind == _OLD:
            return Change(None, deserialize(data[:-1]))
        if kind != _BOTH:
            raise ValueError(f"no change of a table: its last byte is {kind.hex() or 'missing'}")
        length, start = _read_varint(data)
        if start + length >= len(data):
            raise ValueError("no change of a table: its new value is longer than the record")
        return Change(deserialize(data[start : start + length]), deserialize(data[start + length : -1]))

    return Serde(
        id=f"changed({value_serde.id})",
        written_as=f"changed({value_serde.stored_as})",
        serialize=write,
        deserialize=read,
        for_topic=wrapped_for_topic(value_serde, changed),
    )


def _varint(number: int) -> bytes:
    """Return a length as Kafka's ByteUtils.writeVarint writes it."""
    zigzag = number << 1
    written = bytearray()
    while zigzag > 0x7F:
        written.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return a length and the offset of its end."""
    zigzag = 0
    for place, byte in enumerate(data[:5]):
        zigzag |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if zigzag & 1:
                break
            return zigzag >> 1, place + 1
    raise ValueError("no change of a table: the length of its new value is none")
