"""Defines the contents of internal topics and stores, with their serdes: a table's change, an entry of a
retry topic, the records of a foreign-key join.

A table's change, as it goes to the tables below it through a repartition topic, is byte-equal to Kafka
Streams' ChangedSerializer since 3.5. The last byte names the bytes before it: 0 the old value, 1 the new one,
2 the new value's length, a varint in Protocol Buffers' zigzag form, the new value and the old one.

A retry topic holds parked records, each until a later call for it has ended. A key is the parked record's own
serialized key and its number in the order of parking; a value holds all facts that a later attempt, task or
run needs to call again as if the record had just been consumed.

A foreign-key join holds keys and values of the tables as the bytes of their own serdes, so each is serialized
once, however many records carry it. No reader outside an application reads its topics, so the format is this
package's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from airflow_kstreams.streams.plan import msgpack_decoder
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic


class Subscription(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the left table to the right one, under the foreign key.

    :param key: key of the left entry.
    :param hash: hash of the left entry's value; None ends the subscription.
    :param answered: True if the resolver waits for an answer.
    """

    key: bytes
    hash: bytes | None
    answered: bool


class LeftCopy(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the left table to the resolver, under its own key.

    :param foreign_key: key of the :class:`Subscription` that is to be answered; None if none was sent.
    :param hash: hash of the value, the same as in the subscription.
    :param value: bytes of the value; None if the entry has no result.
    """

    foreign_key: bytes | None
    hash: bytes | None
    value: bytes | None


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the right table to the resolver, under the left entry's key.

    :param foreign_key: the right entry's key.
    :param hash: hash in the subscription.
    :param value: bytes of the right entry's value; None if there is none.
    :param to_subscription: True for the answer to a subscription, False for a change of the right entry.
    """

    foreign_key: bytes
    hash: bytes | None
    value: bytes | None
    to_subscription: bool


class WaitingAnswer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The difference between copies of a left entry and answers from one foreign key.

    :param copies: number of copies without an answer; below 0 if answers came earlier.
    :param answer: the newest answer since both were equal.
    :param answer_ms: timestamp of the answer, epoch milliseconds.
    :param hash: hash of the newest copy.
    """

    foreign_key: bytes
    copies: int
    answer: Answer | None
    answer_ms: int
    hash: bytes | None = None


class ResolverEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The resolver's entry for a left entry.

    :param foreign_key: foreign key of the newest :class:`LeftCopy`.
    :param hash: hash of the newest copy.
    :param value: bytes of the newest copy's value.
    :param shown: True if its key is in the result.
    :param waiting: the foreign keys whose copies and answers differ in number.
    """

    foreign_key: bytes | None = None
    hash: bytes | None = None
    value: bytes | None = None
    shown: bool = False
    waiting: tuple[WaitingAnswer, ...] = ()


def subscriptions(left_keys: Serde) -> Serde:
    """Return the serde of :class:`Subscription`.

    :param left_keys: the serde of the left table's keys.
    """
    return _structs(Subscription, f"foreign_key_subscription({left_keys.id})")


def left_copies(left_values: Serde) -> Serde:
    """Return the serde of :class:`LeftCopy`.

    :param left_values: the serde of the left table's values.
    """
    return _structs(LeftCopy, f"foreign_key_copy({left_values.id})")


def answers(right_keys: Serde, right_values: Serde) -> Serde:
    """Return the serde of :class:`Answer`.

    :param right_keys: the serde of the right table's keys.
    :param right_values: the serde of its values.
    """
    return _structs(Answer, f"foreign_key_answer({right_keys.id},{right_values.id})")


def resolver_entries(left_values: Serde, right_keys: Serde, right_values: Serde) -> Serde:
    """Return the serde of :class:`ResolverEntry`.

    :param left_values: the serde of the left table's values.
    :param right_keys: the serde of the right table's keys.
    :param right_values: the serde of its values.
    """
    ids = ",".join(serde.id for serde in (left_values, right_keys, right_values))
    stored = ",".join(serde.stored_as for serde in (left_values, right_keys, right_values))
    return _structs(ResolverEntry, f"foreign_key_entry({ids})", f"foreign_key_entry({stored})")


def subscription_keys(right_keys: Serde, left_keys: Serde) -> Serde:
    """Return the serde of a subscription's key in its store, bytes that :func:`subscription_prefix` begins.

    :param right_keys: the serde of the right table's keys.
    :param left_keys: the serde of the left table's keys.
    """
    return Serde(id=f"{PREFIXED}{right_keys.id},{left_keys.id})", serialize=bytes, deserialize=bytes)


#: Begins the id of a serde whose keys begin with the length of the bytes that decide their partition.
PREFIXED = "length_prefixed("


def subscription_prefix(foreign_key: bytes) -> bytes:
    r"""Return the prefix of the keys of all subscriptions to a foreign key, and of no others.

    >>> subscription_prefix(b"ab")
    b'\x00\x00\x00\x02ab'
    """
    return len(foreign_key).to_bytes(4, "big") + foreign_key


def _structs(kind: type[msgspec.Struct], name: str, written_as: str = "") -> Serde:
    decode = msgpack_decoder(kind).decode
    return Serde(id=name, written_as=written_as, serialize=msgspec.msgpack.encode, deserialize=decode)


class ParkedKey(NamedTuple):
    """The key of an entry.

    :param key: the record's serialized key.
    :param number: number of the record in the order of parking.
    """

    key: bytes | None
    number: int


class ParkedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The value of an entry.

    :param key: bytes of the key that the node got.
    :param value: bytes of the value that the node got.
    :param timestamp_ms: timestamp of the record being processed, epoch milliseconds.
    :param ordinal: number of the call among those of the node for the consumed record.
    :param failures: number of its failed calls; 0 if it was parked behind another record of its key.
    :param not_before_ms: time of the next call, epoch milliseconds of the wall clock.
    :param topic: topic of the consumed record; None if a timer or a commit point produced the record.
    :param consumed_ms: the consumed record's own timestamp.
    :param headers: headers of the consumed record.
    :param replaced_headers: headers that a processor gave it, None if it has the consumed record's.
    :param original: key and value of the consumed record, None if they are those that the node got.
    :param first_place: the place at which the record was consumed first.
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
    first_place: str = ""


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


class OldAndNew(NamedTuple):
    """A key's new value and its old one; None where the key is not in the table.

    :param new: the value that the key has from now on.
    :param old: the value that was handed over for the key before.
    :param old_ms: timestamp of the old value's entry, epoch milliseconds; -1 if there is none, or no node
        needs it.
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
    r"""Return the serde of :class:`~airflow_kstreams.streams.serde.internal_serdes.OldAndNew`.

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
            raise ValueError(
                f"the bytes are no change of a table: their last byte is {kind.hex() or 'missing'}"
            )
        length, start = _read_varint(data)
        if start + length >= len(data):
            raise ValueError(
                "the bytes are no change of a table: its new value would be longer than the record"
            )
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
    raise ValueError("the bytes are no change of a table: they do not begin with the length of its new value")
