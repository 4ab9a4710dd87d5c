"""Defines serdes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from airflow_kstreams.streams.hints.function_checks import check_functions
from airflow_kstreams.streams.type_variables import K, T

if TYPE_CHECKING:
    from airflow_kstreams.streams.type_variables import Written

    class Writes(Protocol[Written]):
        """A serde, for type checkers, that is only used to write: a serde of text also fits values that may
        be None, since no serde is ever called with None.
        """

        def _writes(self, written: Written, /) -> None: ...


#: The part of a record that a serde is for.
Side = Literal["key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serde(Generic[T]):
    """A pair of functions between Python objects and Kafka bytes.

    Neither function ever gets None: a null key or value stays None without a call of the serde. Both are
    plain callables (often C functions) because the hot path calls them for every record. Serdes of one id are
    equal.

    Most formats need nothing but the object or the bytes. A format that keeps its schemas in a registry also
    needs the topic: its serde has ``for_topic``, and a task uses the serde that this returns. A serde that
    wraps another one passes ``for_topic`` on.

    :param id: stable text identifying the wire format; part of the topology hash.
    :param serialize: object -> bytes; may raise any error when the object does not fit. One that gives None
        for an object writes it as a tombstone, and deletes the entry of a store.
    :param deserialize: bytes -> object; may raise any error when the bytes are not of this format.
    :param for_topic: (real topic name, side) -> the serde of this id for that topic; called in the task that
        uses it, never while a topology is built. None: this serde serves every topic.
    :param written_as: stable text on which stored bytes depend, if less than the id: a format whose bytes
        name their schema also reads bytes of its earlier schemas. The id unless given.
    :param partition_bytes: object -> the bytes that decide a key's partition, if not all of its bytes do:
        every window of a key lies in the key's own partition, as in Kafka Streams.
    :raises TopologyError: an argument is no function, or takes other arguments.
    """

    id: str
    serialize: Callable[[T], bytes] = field(compare=False)
    deserialize: Callable[[bytes], T] = field(compare=False)
    for_topic: Callable[[str, Side], Serde[T]] | None = field(default=None, compare=False)
    partition_bytes: Callable[[T], bytes] | None = field(default=None, compare=False)
    written_as: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        call = f"Serde {self.id!r}"
        fix = "pass a function from objects to bytes, and one back"
        check_functions(call, fix=fix, called_with=("value",), serialize=self.serialize)
        check_functions(call, fix=fix, called_with=("data",), deserialize=self.deserialize)
        if self.for_topic is not None:
            check_functions(call, called_with=("topic", "side"), for_topic=self.for_topic)
        if self.partition_bytes is not None:
            check_functions(call, called_with=("value",), partition_bytes=self.partition_bytes)

    if TYPE_CHECKING:

        def _writes(self, written: T | None, /) -> None: ...

    def __class_getitem__(cls, types: Any) -> Any:
        # Python 3.11 cannot make a frozen dataclass with slots through an alias: Serde[str](id=...).
        return cls

    @property
    def stored_as(self) -> str:
        """Text on which a store's entries depend: a store does not read state written under another."""
        return self.written_as or self.id

    def __repr__(self) -> str:
        # serdes.of() makes the serde of a pydantic model, whose id is another one, see typed.py.
        return f"serdes.{self.id.replace('model(', 'of(', 1) if self.id.startswith('model(') else self.id}"

    def bound(self, topic: str, side: Side) -> Serde[T]:
        """Return the serde to use for the keys or values of a topic.

        :param topic: the topic's name in Kafka; the changelog's for a store's entries.
        :raises ConfigError: a library or setting that the format needs is missing.

        >>> from airflow_kstreams.streams import serdes
        >>> serdes.string().bound("flights", "key")
        serdes.string
        """
        return self if self.for_topic is None else self.for_topic(topic, side)


def wrapped_for_topic(
    inner: Serde[K], wrap: Callable[[Serde[K]], Serde[T]]
) -> Callable[[str, Side], Serde[T]] | None:
    """Return the ``for_topic`` of a serde that wraps another one.

    :param inner: the wrapped serde.
    :param wrap: function that makes the wrapping serde of a bound ``inner``.
    """
    if inner.for_topic is None:
        return None
    return lambda topic, side: wrap(inner.bound(topic, side))
