"""A table's change as it goes to the tables below it, and its serde on the way through a repartition topic,
byte-equal to Kafka Streams' ChangedSerializer since 3.5.

The last byte names the bytes before it: 0 the old value, 1 the new one, 2 the new value's length, a varint in
Protocol Buffers' zigzag form, the new value and the old one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic


class OldAndNew(NamedTuple):
    """A key's new value and its old one; None where the key is not in the table.

    :param new: the value that the key has from now on.
    :param old: the value that was handed over for the key before.
    :param old_ms: timestamp of the old value's entry; -1 if there is none, or nothing asks for it.
    """

    new: Any
    old: Any
    old_ms: int = -1


class LateChange(OldAndNew):
    """A change of a versioned table that is not its key's latest: ``new`` is valid until a version that the
    table has already, so ``old`` stays the key's value.
    """

    __slots__ = ()


_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"


def changed(value_serde: Serde) -> Serde:
    r"""Return the serde of :class:`~airflow_kstreams.streams.serde.changed.OldAndNew`.

    :param value_serde: the serde of the values, which are not both None.

    >>> from airflow_kstreams.streams import serdes
    >>> strings = changed(serdes.string())
    >>> [strings.serialize(OldAndNew(*both)) for both in (("n", None), (None, "o"), ("n", "o"))]
    [b'n\x01', b'o\x00', b'\x02no\x02']
    >>> strings.deserialize(b"\x02no\x02")
    OldAndNew(new='n', old='o', old_ms=-1)
    """
    serialize, deserialize = value_serde.serialize, value_serde.deserialize

    def write(change: OldAndNew) -> bytes:
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
            return OldAndNew(deserialize(data[:-1]), None)
        if kind == _OLD:
            return OldAndNew(None, deserialize(data[:-1]))
        if kind != _BOTH:
            raise ValueError(f"no change of a table: its last byte is {kind.hex() or 'missing'}")
        length, start = _read_varint(data)
        if start + length >= len(data):
            raise ValueError("no change of a table: its new value is longer than the record")
        return OldAndNew(deserialize(data[start : start + length]), deserialize(data[start + length : -1]))

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
