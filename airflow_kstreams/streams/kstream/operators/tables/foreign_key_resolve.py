"""The last node of a foreign-key join: brings copies of left entries and answers of right ones together.

Rule: an answer makes a result if it comes from the foreign key of the newest copy and carries the hash of its
value (Kafka Streams' rule for stale responses). Copies and answers come through two topics, in any order
between them. So an answer that comes before its copy is kept, and makes its result when the copy comes.

How it is known that answers come early: of one left key and one foreign key, copies are in the order in which
they were sent, and so are the answers to its subscriptions, one for each copy: each side goes through one
partition of each topic, and one task. So the resolver counts both by foreign key. While the numbers differ,
the newest answer is kept, where right entries that change replace it. As soon as they are equal, what was
kept is forgotten: all later copies have answers that are yet to come.

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

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.serde_binding import SerdeOfTopic
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.tables.tables_join import TablesJoiner
from airflow_kstreams.streams.serde.foreign_keys import Answer, LeftCopy, ResolverEntry, WaitingAnswer

_NOTHING = ResolverEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyResolve:
    """Makes the results of a foreign-key join; gets copies and answers.

    :param joiner: makes a result of both values.
    :param left: whether entries without a right one have a result.
    :param store: of what is known of left entries.
    :param left_keys: serde of the left table's keys.
    :param left_values: serde of its values.
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
        """Take a copy, and make its result if its answer came earlier, or no answer is to come."""
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
        # One that matched the copy before has made its result already.
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
        """Take an answer, and make its result if it is for the copy there is."""
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
        """Give an entry, which is kept by now, its result. The joiner may fail."""
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
    """Return what waits for a foreign key, and what waits for others: nearly always nothing."""
    if not waiting:
        return None, waiting
    if len(waiting) == 1 and waiting[0].foreign_key == foreign_key:
        return waiting[0], ()
    known = next((each for each in waiting if each.foreign_key == foreign_key), None)
    return known, tuple(each for each in waiting if each is not known)


def _with_copy(
    waiting: tuple[WaitingAnswer, ...], foreign_key: bytes, digest: bytes | None
) -> tuple[tuple[WaitingAnswer, ...], WaitingAnswer | None]:
    """Count a copy, and return what then waits, and what waited for it, if an answer did."""
    known, others = _parted(waiting, foreign_key)
    if known is None:
        return (*others, WaitingAnswer(foreign_key, 1, None, -1, digest)), None
    answer, copies = known.answer, known.copies + 1
    if copies == 0 and answer is not None:
        # Where their hashes differ a copy has come twice, and that of the answer is yet to come.
        return (others, known) if answer.hash == digest else (waiting, None)
    counted = WaitingAnswer(foreign_key, copies, answer, known.answer_ms, digest)
    return (*others, counted), None if answer is None else known


def _with_answer(
    waiting: tuple[WaitingAnswer, ...], answer: Answer, answer_ms: int
) -> tuple[WaitingAnswer, ...]:
    """Count an answer, keep it unless it is known that its copy has come, and return what then waits."""
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
