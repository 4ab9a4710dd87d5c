"""Keeps what one round of looks has read for the next: a cache of two generations, which forgets what a whole
round did not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RoundMemory(Generic[K, V]):
    """A mapping that forgets what a whole round did not ask for.

    >>> seen = RoundMemory()
    >>> seen.put("a", 1)
    >>> seen.put("b", 2)
    >>> seen.next_round()
    {}
    >>> seen.get("a")
    1
    >>> seen.next_round()
    {'b': 2}
    >>> seen.get("a"), seen.get("b")
    (1, None)
    """

    def __init__(self) -> None:
        self._asked: dict[K, V] = {}
        self._recalled: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return what is kept under a key, None if nothing is; it is kept for the next round, too."""
        if key in self._recalled:
            self._asked.setdefault(key, self._recalled.pop(key))
        return self._asked.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep something that was asked for."""
        self._asked[key] = value

    def recall(self, values: Mapping[K, V]) -> None:
        """Keep values that were not asked for yet in this round."""
        self._recalled |= values

    def next_round(self) -> dict[K, V]:
        """Begin a round.

        :return: what the last one did not ask for, which is forgotten.
        """
        forgotten, self._recalled, self._asked = self._recalled, self._asked, {}
        return forgotten

    def clear(self) -> dict[K, V]:
        """Forget everything.

        :return: what was remembered.
        """
        forgotten = self._recalled | self._asked
        self._recalled, self._asked = {}, {}
        return forgotten
