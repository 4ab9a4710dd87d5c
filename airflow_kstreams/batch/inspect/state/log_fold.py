"""Keeps the last value of every key of a log that may be larger than memory.

Rule: the fold lies in a temporary database of SQLite, whose pages move to a nameless file of the temporary
folder (``TMPDIR``) when they are more than its cache holds. The file is removed when the process ends in any
way, and no other process can open it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.ports import Record

#: Pages that stay in memory.
CACHE_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = 16_384


class LogFold:
    """A context manager that gives the space back.

    :param key_part: the part of a record's key to ask for, see :meth:`add`.
    """

    def __init__(self, key_part: Callable[[bytes], bytes | None]) -> None:
        self._key_part = key_part
        self._database = sqlite3.connect("", isolation_level=None)
        for pragma in (
            f"page_size = {_PAGE_BYTES}",
            f"cache_size = -{CACHE_BYTES // 1024}",
            "journal_mode = OFF",
            "synchronous = OFF",
        ):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, value BLOB, ms INTEGER)")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, records: Sequence[Record], wanted: bytes | None = None) -> None:
        """Apply records in their order.

        :param wanted: leaves out records whose keys have another part.
        :raises StateStoreError: the temporary folder has no room.
        """
        newest: dict[bytes, tuple[bytes | None, int]] = {}
        part = self._key_part
        for record in records:
            key = record.key() or b""
            if wanted is None or part(key) == wanted:
                newest[key] = (record.value(), record.timestamp()[1])
        gone = [(key,) for key, (value, _) in newest.items() if value is None]
        there = [(key, value, ms) for key, (value, ms) in newest.items() if value is not None]
        try:
            self._database.executemany("DELETE FROM entry WHERE key = ?", gone)
            self._database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", there)
        except sqlite3.Error as error:
            raise _no_room(error) from error

    def entries(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Iterate over (key, value, timestamp_ms) in the order of keys; nothing is added meanwhile.

        :raises StateStoreError: the temporary folder cannot be read.
        """
        try:
            yield from self._database.execute("SELECT key, value, ms FROM entry ORDER BY key")
        except sqlite3.Error as error:
            raise _no_room(error) from error


def _no_room(error: sqlite3.Error) -> StateStoreError:
    return StateStoreError(
        f"what was read of the changelog cannot be kept in the temporary folder: {error}",
        fix="let TMPDIR name a folder with room for the largest task of the store",
    )
