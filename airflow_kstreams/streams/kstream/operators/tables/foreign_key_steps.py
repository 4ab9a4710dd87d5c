"""Defines the three nodes of a foreign-key join: the left table subscribes, the right one answers, the last
node brings both together (:mod:`airflow_kstreams.streams.kstream.tables.foreign_key_join` describes the whole
join).

**The left table's node** subscribes its entries to the entries that their foreign keys name. Rule: a change
of an entry is one copy for the resolver and, if the new value has a foreign key, one subscription under it,
both with the hash of its value and time. A foreign key that the entry no longer has gets the end of the
subscription. In an inner join an entry without a result still asks its last foreign key for an answer, as in
Kafka Streams, so that the deletion has the time that it has there.

**The right table's node** answers subscriptions, and sends changes to subscribers. Rule: a subscription is
kept under foreign key and left key, and answered with the right entry that this node has been given; then
this node sends every change of the right entry to all its subscribers, in the order of their keys' bytes. A
subscription that ends is deleted.

**The resolver** brings copies of left entries and answers of right ones together. Rule: an answer makes a
result if it comes from the foreign key of the newest copy and carries the hash of its value (Kafka Streams'
rule for stale responses). Copies and answers come through two topics, in any order between them. So an answer
that comes before its copy is kept, and makes its result when the copy comes.

The resolver finds early answers by counting: of one left key and one foreign key, copies are in the order in
which they were sent, and so are the answers to its subscriptions, one for each copy: each side goes through
one partition of each topic, and one task. So it counts both by foreign key. While the numbers differ, the
newest answer is kept, where right entries that change replace it. As soon as they are equal, the kept answer
is deleted: all later copies have answers that are yet to come.

In at_least_once a copy, or a subscription, may come once more than the other, after a crash. Then the numbers
are equal while the newest answer has another hash than the newest copy, which shows it: the answer's copy is
yet to come, and the answer is kept on. Where numbers stay apart, an answer is kept that may not be needed.
The hash has the entry's time in it, so a value that comes back is not taken for the one before.

Why the last result is right, whatever the order: take the last copy of a key, with foreign key f, and the
newest answer from f. If the answer comes later, it matches, and makes the last result: from then on no copy
comes, and answers from other foreign keys do not match. If the copy comes later, the answer was kept, since
the copy was missing in the count, and the copy makes the last result of it. At the end of a slice both have
been read, and nothing is kept.

A deletion is emitted for a key that is in the result, and for no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import OperatorTraits, SerdeOfTopic
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.function_kinds import unfit_name
from airflow_kstreams.streams.kstream.operators.tables.tables_join import TablesJoiner
from airflow_kstreams.streams.serde.internal_serdes import (
    Answer,
    LeftCopy,
    OldAndNew,
    ResolverEntry,
    Subscription,
    WaitingAnswer,
    subscription_prefix,
)
from airflow_kstreams.streams.type_variables import KR, K, V

#: ``foreign_key(key, value)`` gives the key of an entry of the other table, None for no entry.
ForeignKey = Callable[[K, V], KR | None]

_HASH_BYTES = 16
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeySubscribe:
    """Subscribes the entries of the left table.

    :param foreign_key: function that gives the foreign key of an entry.
    :param left: True if entries without a right one have a result.
    :param left_keys: serde of the left table's keys.
    :param left_values: serde of the left table's values.
    :param right_keys: serde of foreign keys.
    :param copies: name of the child that takes copies.
    :param subscriptions: name of the child that takes subscriptions.
    """

    foreign_key: ForeignKey
    left: bool
    left_keys: SerdeOfTopic
    left_values: SerdeOfTopic
    right_keys: SerdeOfTopic
    copies: str
    subscriptions: str

    type: ClassVar[str] = "foreign_key_subscribe"
    traits: ClassVar[OperatorTraits] = OperatorTraits(old_values="needs")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        left, foreign_key = self.left, self.foreign_key
        key_bytes, value_bytes = self.left_keys.serde.serialize, self.left_values.serde.serialize
        right_keys = self.right_keys.serde
        foreign_bytes = right_keys.serialize
        copy, subscribe = children[self.copies], children[self.subscriptions]
        count_null, record_context = context.counting("null"), context.record_context

        def extracted(key: Any, value: Any) -> tuple[Any, bytes | None]:
            found = None if value is None else foreign_key(key, value)
            if found is None:
                return None, None
            try:
                return found, foreign_bytes(found)
            except Exception as error:
                raise unfit_name("foreign_key", found, right_keys, error) from error

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            new, old, _ = change
            if new is None and old is None:
                return
            # All calls that may fail come before the first result.
            (old_key, old_bytes), (new_key, new_bytes) = extracted(key, old), extracted(key, new)
            left_key = key_bytes(key)
            data = None if new is None else value_bytes(new)
            digest = None if data is None else hash_of(data, record_context.timestamp_ms)
            if new is not None and new_bytes is None and not left:
                count_null()
            if new_bytes is None and not left:
                if old_bytes is not None:
                    copy(left_key, LeftCopy(old_bytes, None, None))
                    subscribe(old_key, Subscription(left_key, None, True))
                return
            copy(left_key, LeftCopy(new_bytes, digest, data))
            if old_bytes is not None and old_bytes != new_bytes:
                subscribe(old_key, Subscription(left_key, None, False))
            if new_bytes is not None:
                subscribe(new_key, Subscription(left_key, digest, True))

        return run


def hash_of(data: bytes, timestamp_ms: int) -> bytes:
    """Return the hash of a left entry.

    :param data: bytes of the entry's value.
    :param timestamp_ms: the entry's timestamp, epoch milliseconds.
    """
    salt = timestamp_ms.to_bytes(_SALT_BYTES, "big", signed=True)
    return blake2b(data, digest_size=_HASH_BYTES, salt=salt).digest()


#: Bytes of the length in front of a foreign key.
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyAnswer:
    """Answers for the right table; it takes the table's changes, and subscriptions.

    :param table: name of the right table's node.
    :param store: spec of the store of subscriptions.
    :param right_keys: serde of the right table's keys.
    :param right_values: serde of the right table's values.
    """

    table: str
    store: StoreSpec
    right_keys: SerdeOfTopic
    right_values: SerdeOfTopic

    type: ClassVar[str] = "foreign_key_answer"
    traits: ClassVar[OperatorTraits] = OperatorTraits(old_values="ignores")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        table, node = self.table, context.node
        foreign_bytes, value_bytes = self.right_keys.serde.serialize, self.right_values.serde.serialize
        subscribers = _Subscribers(context.store(self.store.name), on_disk=self.store.storage == "rocksdb")
        tables, record_context = context.tables, context.record_context

        def subscribe(key: Any, asked: Subscription) -> None:
            foreign_key, before = foreign_bytes(key), record_context.timestamp_ms
            subscribers.put(foreign_key, asked, before)
            if not asked.answered:
                return
            entry = tables[table].get(key, node)
            data, failed = None, None
            if entry is not None:
                record_context.timestamp_ms = max(before, entry[1])
                try:
                    data = None if asked.hash is None else value_bytes(entry[0])
                except Exception as error:
                    failed = error
            # The resolver counts answers: it gets one in any case.
            forward(asked.key, Answer(foreign_key, asked.hash, data, True))
            record_context.timestamp_ms = before
            if failed is not None:
                raise failed

        def tell(key: Any, change: OldAndNew) -> None:
            foreign_key = foreign_bytes(key)
            data = None if change.new is None else value_bytes(change.new)
            for left_key, digest in subscribers.of(foreign_key):
                forward(left_key, Answer(foreign_key, digest, data, False))

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if isinstance(value, Subscription):
                subscribe(key, value)
            elif key is not None:
                tell(key, value)

        return run


class _Subscribers:
    """The subscribers of each foreign key, in one task.

    :param store: the store of subscriptions.
    :param on_disk: True if the store finds keys by a prefix. A store in memory would have to scan every key,
        so there the left keys of each foreign key are kept beside it, from the first request on.
    """

    def __init__(self, store: Any, *, on_disk: bool) -> None:
        self._put: Callable[[bytes, tuple[bytes, int] | None], None] = store.put_entry
        self._get: Callable[[bytes], tuple[bytes, int] | None] = store.get_entry
        self._store, self._on_disk = store, on_disk
        self._known: dict[bytes, set[bytes]] | None = None

    def put(self, foreign_key: bytes, asked: Subscription, timestamp_ms: int) -> None:
        """Store a subscription, or delete it."""
        entry = None if asked.hash is None else (asked.hash, timestamp_ms)
        self._put(subscription_prefix(foreign_key) + asked.key, entry)
        if self._known is None:
            return
        if entry is not None:
            self._known.setdefault(foreign_key, set()).add(asked.key)
        elif (keys := self._known.get(foreign_key)) is not None:
            keys.discard(asked.key)
            if not keys:
                del self._known[foreign_key]

    def of(self, foreign_key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (left key, hash) of all subscribers of a foreign key, in the order of the left keys."""
        prefix = subscription_prefix(foreign_key)
        if self._on_disk:
            yield from self._on_disk_of(prefix)
            return
        if self._known is None:
            self._known = {}
            for key, _ in self._store.all():
                end = _LENGTH_BYTES + int.from_bytes(key[:_LENGTH_BYTES], "big")
                self._known.setdefault(key[_LENGTH_BYTES:end], set()).add(key[end:])
        for left_key in sorted(self._known.get(foreign_key, ())):
            entry = self._get(prefix + left_key)
            if entry is not None:
                yield left_key, entry[0]

    def _on_disk_of(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        # The first bytes behind all keys with the prefix; a length of 4 bytes is never all ones.
        behind = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
        for key, digest in self._store.range(prefix, behind):
            if key.startswith(prefix):
                yield key[len(prefix) :], digest


_NOTHING = ResolverEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyResolve:
    """Makes the results of a foreign-key join; it takes copies and answers.

    :param joiner: function that makes a result of both values.
    :param left: True if entries without a right one have a result.
    :param store: spec of the store: left key -> its newest copy and the answers that wait.
    :param left_keys: serde of the left table's keys.
    :param left_values: serde of the left table's values.
    :param right_values: serde of the right table's values.
    """

    joiner: TablesJoiner
    left: bool
    store: StoreSpec
    left_keys: SerdeOfTopic
    left_values: SerdeOfTopic
    right_values: SerdeOfTopic

    traits: ClassVar[OperatorTraits] = OperatorTraits()

    @property
    def type(self) -> str:
        """Kind of node."""
        return "foreign_key_left_join" if self.left else "foreign_key_join"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        resolver = _Resolver(self, forward, context)
        take_copy, take_answer = resolver.take_copy, resolver.take_answer

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if isinstance(value, LeftCopy):
                take_copy(key, value)
            else:
                take_answer(key, value)

        return run


class _Resolver:
    """The resolver of one task."""

    def __init__(self, join: ForeignKeyResolve, forward: Forward, context: NodeContext) -> None:
        self._joiner, self._left = join.joiner, join.left
        self._key_of = join.left_keys.serde.deserialize
        self._left_of, self._right_of = (
            join.left_values.serde.deserialize,
            join.right_values.serde.deserialize,
        )
        self._forward, self._record_context = forward, context.record_context
        store = context.store(join.store.name)
        self._get_entry, self._put_entry = store.get_entry, store.put_entry

    def take_copy(self, key: bytes, copy: LeftCopy) -> None:
        """Take a copy, and make its result if its answer came earlier, or no answer will come."""
        before = self._entry(key)
        waiting, early = before.waiting, None
        if copy.foreign_key is not None:
            waiting, early = _with_copy(waiting, copy.foreign_key, copy.hash)
        entry = ResolverEntry(copy.foreign_key, copy.hash, copy.value, before.shown, waiting)
        self._keep(key, entry)
        if copy.foreign_key is None:
            self._resolve(key, entry, None)
            return
        answer = None if early is None else early.answer
        # An answer that matched the copy before has made its result already.
        if early is None or answer is None or not _matches(entry, answer) or _matches(before, answer):
            return
        record_context = self._record_context
        record_ms = record_context.timestamp_ms
        record_context.timestamp_ms = max(record_ms, early.answer_ms)
        try:
            self._resolve(key, entry, answer.value)
        finally:
            record_context.timestamp_ms = record_ms

    def take_answer(self, key: bytes, answer: Answer) -> None:
        """Take an answer, and make its result if it is for the newest copy."""
        entry = self._entry(key)
        waiting = _with_answer(entry.waiting, answer, self._record_context.timestamp_ms)
        if waiting is not entry.waiting:
            entry = ResolverEntry(entry.foreign_key, entry.hash, entry.value, entry.shown, waiting)
            self._keep(key, entry)
        if _matches(entry, answer):
            self._resolve(key, entry, answer.value)

    def _entry(self, key: bytes) -> ResolverEntry:
        found = self._get_entry(key)
        return _NOTHING if found is None else found[0]

    def _keep(self, key: bytes, entry: ResolverEntry) -> None:
        gone = entry.value is None and not entry.shown and not entry.waiting
        self._put_entry(key, None if gone else (entry, self._record_context.timestamp_ms))

    def _resolve(self, key: bytes, entry: ResolverEntry, right: bytes | None) -> None:
        """Forward the result of an entry, which is stored already, since the joiner may fail.

        :param right: bytes of the right value; None if there is none.
        """
        result = None
        if entry.value is not None and (self._left or right is not None):
            right_value = None if right is None else self._right_of(right)
            result = self._joiner(self._left_of(entry.value), right_value)
        shown = result is not None
        if not shown and not entry.shown:
            return
        if shown is not entry.shown:
            kept = ResolverEntry(entry.foreign_key, entry.hash, entry.value, shown, entry.waiting)
            self._keep(key, kept)
        self._forward(self._key_of(key), result)


def _matches(entry: ResolverEntry, answer: Answer) -> bool:
    return entry.foreign_key == answer.foreign_key and entry.hash == answer.hash


def _parted(
    waiting: tuple[WaitingAnswer, ...], foreign_key: bytes
) -> tuple[WaitingAnswer | None, tuple[WaitingAnswer, ...]]:
    """Return the waiting answer of a foreign key, and the others, which are nearly always none."""
    if not waiting:
        return None, waiting
    if len(waiting) == 1 and waiting[0].foreign_key == foreign_key:
        return waiting[0], ()
    known = next((each for each in waiting if each.foreign_key == foreign_key), None)
    return known, tuple(each for each in waiting if each is not known)


def _with_copy(
    waiting: tuple[WaitingAnswer, ...], foreign_key: bytes, digest: bytes | None
) -> tuple[tuple[WaitingAnswer, ...], WaitingAnswer | None]:
    """Count a copy, and return the answers that still wait, and the one that waited for it, if any."""
    known, others = _parted(waiting, foreign_key)
    if known is None:
        return (*others, WaitingAnswer(foreign_key, 1, None, -1, digest)), None
    answer, copies = known.answer, known.copies + 1
    if copies == 0 and answer is not None:
        # If the hashes differ, a copy has come twice, and the answer's own copy is yet to come.
        return (others, known) if answer.hash == digest else (waiting, None)
    counted = WaitingAnswer(foreign_key, copies, answer, known.answer_ms, digest)
    return (*others, counted), None if answer is None else known


def _with_answer(
    waiting: tuple[WaitingAnswer, ...], answer: Answer, answer_ms: int
) -> tuple[WaitingAnswer, ...]:
    """Count an answer, keep it unless its copy is known to have come, and return the answers that wait."""
    foreign_key = answer.foreign_key
    known, others = _parted(waiting, foreign_key)
    if not answer.to_subscription:
        if known is None or known.answer is None:
            return waiting
        return (*others, WaitingAnswer(foreign_key, known.copies, answer, answer_ms, known.hash))
    copies, digest = (-1, None) if known is None else (known.copies - 1, known.hash)
    if copies == 0:
        if digest == answer.hash:
            return others
        copies = -1  # a copy has come twice
    return (*others, WaitingAnswer(foreign_key, copies, answer, answer_ms, digest))
