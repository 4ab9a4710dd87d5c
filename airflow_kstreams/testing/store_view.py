"""What a test sees of a task's store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import KStreamsError, StateStoreError
from airflow_kstreams.streams.state import KeyValueStore

T = TypeVar("T")


class StoreView:
    """Reads the store of one task; only the topology writes it.

    Keys and values are Python objects, as the topology puts them. The view is live: it shows the store as it
    is at each call.

    :param store: the task's own.
    :param check: raises when the store may not be read any more.

    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> words = builder.table("words", store="newest")
    >>> driver = TopologyTestDriver(builder.build(), application_id="demo")
    >>> for key, word in (("a", "ant"), ("b", "bee"), ("c", "cat")):
    ...     driver.pipe_input("words", key=key, value=word, timestamp_ms=0)
    >>> newest = driver.store("newest")
    >>> newest.get("a"), newest.get("z"), newest.approximate_count()
    ('ant', None, 3)
    >>> list(newest.range("b", None))
    [('b', 'bee'), ('c', 'cat')]
    >>> dict(newest.all())
    {'a': 'ant', 'b': 'bee', 'c': 'cat'}
    """

    __slots__ = ("_check", "_store", "name")

    def __init__(self, store: KeyValueStore, check: Callable[[], None]) -> None:
        self.name = store.name
        self._store = store
        self._check = check

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none.

        :raises StateStoreError: the key is None, or does not fit the store's key serde.
        """
        return self._read(lambda: self._store.get(key), key)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) from first to last, both included, in the order of serialized keys; None
        leaves an end open.

        :raises StateStoreError: a key does not fit the store's key serde.
        """
        return self._read(lambda: self._store.range(first, last), first, last)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over every (key, value), in the order of serialized keys."""
        return self._read(self._store.all)

    def approximate_count(self) -> int:
        """Return the number of keys."""
        return self._read(self._store.approximate_count)

    def _read(self, read: Callable[[], T], *keys: Any) -> T:
        self._check()
        try:
            return read()
        except KStreamsError:
            raise
        except Exception as error:
            kinds = " and ".join(type(key).__name__ for key in keys)
            raise StateStoreError(
                f"store {self.name!r} was asked for keys of type {kinds}, which its key serde does not take: "
                f"{type(error).__name__}: {error}",
                fix="ask with keys as the topology puts them",
            ) from error
