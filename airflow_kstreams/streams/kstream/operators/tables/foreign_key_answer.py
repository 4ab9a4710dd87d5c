"""The right table's node of a foreign-key join: answers subscriptions, and tells subscribers what changed
(:mod:`airflow_kstreams.streams.kstream.tables.foreign_key_join` describes the whole join).

Rule: a subscription is kept under foreign key and left key, and answered with the right entry as this node
has been given it; then every change of the right entry is told to all that are subscribed to it, in the order
of their keys' bytes. A subscription that ends is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.serde_binding import SerdeOfTopic
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.serde.changed import OldAndNew
from airflow_kstreams.streams.serde.foreign_keys import Answer, Subscription, subscription_prefix

#: The length in front of a foreign key.
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyAnswer:
    """Answers for the right table; gets its changes, and subscriptions.

    :param table: name of the right table's node.
    :param store: of the subscriptions.
    :param right_keys: serde of the right table's keys.
    :param right_values: serde of its values.
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
    """Who is subscribed to what, in one task.

    :param store: of the subscriptions.
    :param on_disk: whether the store finds what begins alike by itself. In memory it would have to look at
        every key, so there the keys are remembered by foreign key, from when they are first asked for.
    """

    def __init__(self, store: Any, *, on_disk: bool) -> None:
        self._put: Callable[[bytes, tuple[bytes, int] | None], None] = store.put_entry
        self._get: Callable[[bytes], tuple[bytes, int] | None] = store.get_entry
        self._store, self._on_disk = store, on_disk
        self._known: dict[bytes, set[bytes]] | None = None

    def put(self, foreign_key: bytes, asked: Subscription, timestamp_ms: int) -> None:
        """Keep a subscription, or forget it."""
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
        """Return (left key, hash) of all subscribed to a foreign key, in the order of the keys."""
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
        # What follows the prefix in the order of bytes; a length of 4 bytes is never all ones.
        behind = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
        for key, digest in self._store.range(prefix, behind):
            if key.startswith(prefix):
                yield key[len(prefix) :], digest
