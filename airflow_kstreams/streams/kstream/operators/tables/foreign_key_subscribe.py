"""The left table's node of a foreign-key join: subscribes its entries to what their foreign keys name
(:mod:`airflow_kstreams.streams.kstream.tables.foreign_key_join` describes the whole join).

Rule: a change of an entry is one copy for the resolver and, if the new value has a foreign key, one
subscription under it, both with the hash of its value and time. A foreign key that the entry no longer has
gets the end of the subscription. In an inner join an entry without a result still asks its last foreign key
for an answer, as in Kafka Streams, so that the deletion has the time that it has there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.serde_binding import SerdeOfTopic
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.answers import unfit_name
from airflow_kstreams.streams.serde.changed import OldAndNew
from airflow_kstreams.streams.serde.foreign_keys import LeftCopy, Subscription
from airflow_kstreams.streams.type_variables import KR, K, V

#: ``foreign_key(key, value)`` gives the key of an entry of the other table, None for no entry.
ForeignKey = Callable[[K, V], KR | None]

_HASH_BYTES = 16
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeySubscribe:
    """Subscribes the entries of the left table.

    :param foreign_key: finds the foreign key of an entry.
    :param left: whether entries without a right one have a result.
    :param left_keys: serde of the left table's keys.
    :param left_values: serde of its values.
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
            # Whatever may fail stands before the first result.
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

    :param data: its value.
    """
    salt = timestamp_ms.to_bytes(_SALT_BYTES, "big", signed=True)
    return blake2b(data, digest_size=_HASH_BYTES, salt=salt).digest()
