"""Topics that refuse some results, as a client does with one that is too large: none of an odd last byte.

``KafkaStreamsPeer.java`` lets Kafka Streams' producer do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing.in_memory_topics import InMemoryTopics

T = TypeVar("T")

#: What the names of such topics begin with.
SMALL = "small-"


@contextmanager
def refusing_topics() -> Iterator[None]:
    """Let test drivers that are made refuse."""
    produce = InMemoryTopics.produce

    def checked(topics: InMemoryTopics, topic: str, value: bytes | None, *others: Any) -> None:
        _check(topic, value)
        produce(topics, topic, value, *others)

    with patch.object(InMemoryTopics, "produce", checked):
        yield


class Refusing:
    """An interceptor of port calls that lets writers refuse."""

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """See ``Interceptor``."""
        if name == "writer.produce":
            topic, value, *_ = arguments
            _check(topic, value)
        return effect()


def _check(topic: str, value: bytes | None) -> None:
    if topic.startswith(SMALL) and value and value[-1] % 2:
        raise RecordError("refused", topic=topic, partition=-1, offset=-1, node="")
