"""Defines the records and entries of a foreign-key join's internal topics and stores
(:mod:`.foreign_key_join`).

Keys and values of the tables are held as the bytes of their own serdes, so each is serialized once, however
many records carry it. Nothing outside an application reads these topics, so the format is this package's own.
"""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams.decoders import msgpack_decoder
from airflow_kstreams.streams.serde.base import Serde


class Subscription(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the left table to the right one, under the foreign key.

    :param key: key of the left entry.
    :param hash: hash of the left entry's value; None ends the subscription.
    :param answered: whether the resolver waits for an answer.
    """

    key: bytes
    hash: bytes | None
    answered: bool


class LeftCopy(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the left table to the resolver, under its own key.

    :param foreign_key: key of the :class:`Subscription` that is to be answered; None if none was sent.
    :param hash: hash of the value, the same as in the subscription.
    :param value: None if the entry has no result.
    """

    foreign_key: bytes | None
    hash: bytes | None
    value: bytes | None


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of the right table to the resolver, under the left entry's key.

    :param foreign_key: the right entry's key.
    :param hash: the subscription's.
    :param value: the right entry's; None if there is none.
    :param to_subscription: whether a subscription asked for it; else the right entry changed.
    """

    foreign_key: bytes
    hash: bytes | None
    value: bytes | None
    to_subscription: bool


class WaitingAnswer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The difference between copies of a left entry and answers from one foreign key.

    :param copies: number of copies without an answer; below 0 if answers came earlier.
    :param answer: the newest answer since both were equal.
    :param answer_ms: its timestamp.
    :param hash: the newest copy's.
    """

    foreign_key: bytes
    copies: int
    answer: Answer | None
    answer_ms: int
    hash: bytes | None = None


class ResolverEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The resolver's entry for a left entry.

    :param foreign_key: the newest :class:`LeftCopy`'s, as are ``hash`` and ``value``.
    :param shown: whether its key is in the result.
    :param waiting: foreign keys whose copies and answers differ in number.
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
