"""What a case of the suite is made of: steps on one topic, in order, as data.

``tests/conformance/scene.py`` plays them on a real broker; nothing here knows a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How the transaction of a written batch ends; ``plain`` is none at all.
Ending = Literal["plain", "commit", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One record to write; key and value together tell it from every other of its case.

    :param name: what the case calls it.
    :param key: None is a null key.
    :param value: None is a null value, a tombstone.
    :param size: pad the value to so many bytes.
    """

    name: str
    key: str | None
    value: str | None
    size: int = 0

    @property
    def key_bytes(self) -> bytes | None:
        """The key as it lies in Kafka."""
        return None if self.key is None else self.key.encode()

    @property
    def value_bytes(self) -> bytes | None:
        """The value as it lies in Kafka."""
        return None if self.value is None else self.value.encode().ljust(self.size, b".")


def named(*names: str, size: int = 0) -> tuple[Item, ...]:
    """Records whose name is their key and their value."""
    return tuple(Item(name=name, key=name, value=name, size=size) for name in names)


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """Names ``a0``, ``a1``, ..."""
    return tuple(f"{prefix}{number}" for number in range(count))


def keyed(key: str | None, *names: str) -> tuple[Item, ...]:
    """Records of one key, whose values are their names."""
    return tuple(Item(name=name, key=key, value=name) for name in names)


def tombstone(key: str, name: str) -> tuple[Item, ...]:
    """The deletion of a key."""
    return (Item(name=name, key=key, value=None),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write records to one partition.

    :param ending: plain, or a transaction of its own that is committed or aborted.
    :param times: do it so often, with the same records (a transaction each).
    :param together: in one batch, rather than a batch each.
    :param compression: of the batches.
    """

    items: tuple[Item, ...]
    partition: int = 0
    ending: Ending = "plain"
    times: int = 1
    together: bool = False
    compression: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Write records in a named transaction and leave it open; one that is open goes on."""

    transaction: str
    items: tuple[Item, ...]
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End a named transaction.

    :param how: ``fence`` leaves it to a new producer of the same transactional id, as after a crash.
    """

    transaction: str
    how: Literal["commit", "abort", "fence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Wait until the log cleaner has left of all records just these.

    :param nudge: write aborted records meanwhile, so that segments close; else later writes have done that.
    """

    remaining: tuple[str, ...]
    nudge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBefore:
    """Move the log's start, as retention does.

    :param offset: -1 is the end of the log.
    """

    offset: int
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreate:
    """Delete the topic and create it again, of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Give the topic more partitions.

    :param total: how many it has then.
    """

    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWriting:
    """Write a record every few milliseconds until the read that goes on has ended, however it ends."""

    every_ms: int = 50


#: All but the read itself.
Arrange = Write | Open | Close | Compact | DeleteBefore | Recreate | AddPartitions | KeepWriting


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One bounded read, and what it must give.

    :param gives: names of the records, each once, those of a partition in the order of their offsets; None is
        every committed record that no read before was to give.
    :param during: happens after the reader has fixed its end, before it has read.
    :param loses: some of what it is to give is gone; it must say so rather than go on, unless it has given
        it all.
    """

    gives: tuple[str, ...] | None = ()
    during: tuple[Arrange, ...] = ()
    loses: bool = False


Step = Arrange | Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table.

    :param name: short and unique.
    :param shows: the state of the topic, in words.
    :param partitions: of the topic at first.
    :param compacted: whether the topic is compacted, at once and to the last closed segment.
    """

    name: str
    shows: str
    steps: tuple[Step, ...]
    partitions: int = 1
    compacted: bool = False

    @property
    def reads(self) -> tuple[Read, ...]:
        """The bounded reads."""
        return tuple(step for step in self.steps if isinstance(step, Read))
