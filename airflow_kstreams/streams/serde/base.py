"""What a serde is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Serde:
    """A pair of functions between Python objects and Kafka bytes.

    Neither function ever sees None: a null key or value stays None without asking the serde. Both are plain
    callables (often C functions) because the hot path calls them for every record. Serdes of one id are
    equal.

    :param id: stable text identifying the wire format; part of the topology hash.
    :param serialize: object -> bytes; raises anything when the object does not fit.
    :param deserialize: bytes -> object; raises anything when the bytes are not of this format.
    """

    id: str
    serialize: Callable[[Any], bytes] = field(compare=False)
    deserialize: Callable[[bytes], Any] = field(compare=False)

    def __repr__(self) -> str:
        return f"serdes.{self.id}"
