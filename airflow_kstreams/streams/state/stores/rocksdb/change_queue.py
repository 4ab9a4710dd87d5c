"""Queues changes for the next drain in RocksDB, when too many entries change at once for memory: all that
expire, or waited for a partner, when stream time leaps.

Invariant: a drain empties it. So it is empty whenever files are left to a later run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_kstreams.streams.state.stores.rocksdb.byte_order import behind
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import StoreFiles

_NUMBER = struct.Struct(">Q")


class ChangeQueue:
    """A queue of bytes in RocksDB.

    :param files: the store's files.
    :param prefix: prefix of its keys, and of no others.
    """

    def __init__(self, files: StoreFiles, prefix: bytes) -> None:
        self._files = files
        self._prefix = prefix
        self._next = 0

    def __len__(self) -> int:
        return self._next

    def add(self, batch: Any, changes: Iterable[bytes]) -> None:
        """Append changes to a batch."""
        for change in changes:
            batch.put(self._prefix + _NUMBER.pack(self._next), change)
            self._next += 1

    def take(self) -> Iterator[bytes]:
        """Yield all changes and delete them."""
        if not self._next:
            return
        end = self._prefix + _NUMBER.pack(self._next)
        for _, change in self._files.between(self._prefix, end):
            yield change
        files = self._files.opened()
        batch = files.batch()
        batch.delete_range(self._prefix, behind(self._prefix))
        files.write(batch)
        self._next = 0
