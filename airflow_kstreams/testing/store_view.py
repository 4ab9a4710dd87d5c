"""Shows a test the store of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import KStreamsError, StateStoreError
from airflow_kstreams.streams.hints.java_names import answers_java_names

T = TypeVar("T")


@answers_java_names
class StoreView:
    """Reads the store of one task; only the topology writes it.

    Keys and values are Python objects, as the topology puts them. The view is live: each call shows the
    store's present entries, also after a restart of the driver.

    :param store: gives the task's store.
    :param check: raises an error if the store may not be read any more.

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

    def __init__(self, name: str, store: Callable[[], Any], check: Callable[[], None]) -> None:
        self.name = name
        self._store = store
        self._check = check

    def get(self, key: Any, *window_ms: int) -> Any:
        """Return the value of a key, None if there is none.

        :param window_ms: in a window store, the window's start; in a session store, the session's start and
            end.
        :raises StateStoreError: the key is None, or does not fit the store's key serde.
        """
        return self._read(lambda store: store.get(key, *window_ms), key)

    def range(self, *bounds: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries between bounds, both included; None leaves an end open.

        :param bounds: first and last key, for (key, value) in the order of serialized keys; in a window or
            session store a key, then two times, see :class:`WindowStore`, :class:`SessionStore`.
        :raises StateStoreError: a key does not fit the store's key serde.
        """
        return self._read(lambda store: store.range(*bounds), *bounds)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all entries, as the store's own ``all`` does."""
        return self._read(lambda store: store.all())

    def approximate_count(self) -> int:
        """Return the number of entries."""
        count: int = self._read(lambda store: store.approximate_count())
        return count

    def _read(self, read: Callable[[Any], T], *keys: Any) -> T:
        self._check()
        try:
            return read(self._store())
        except KStreamsError:
            raise
        except Exception as error:
            kinds = " and ".join(type(key).__name__ for key in keys)
            raise StateStoreError(
                f"store {self.name!r} was asked for keys of type {kinds}, which its key serde does not take: "
                f"{type(error).__name__}: {error}",
                fix="ask with keys as the topology puts them",
            ) from error
