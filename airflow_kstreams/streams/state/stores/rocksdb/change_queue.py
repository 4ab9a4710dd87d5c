"""Changes that wait for the next drain in RocksDB, where so many entries change at once that memory should
not hold them: all that expires when stream time leaps, all that waited for a partner.

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
    """Texts in the order in which they came.

    :param files: of the store.
    :param prefix: begins its keys, and no other ones.
    """

    def __init__(self, files: StoreFiles, prefix: bytes) -> None:
        self._files = files
        self._prefix = prefix
        self._next = 0

    def __len__(self) -> int:
        return self._next

    def add(self, batch: Any, changes: Iterable[bytes]) -> None:
        """Append to a batch what is to be written."""
        for change in changes:
            batch.put(self._prefix + _NUMBER.pack(self._next), change)
            self._next += 1

    def take(self) -> Iterator[bytes]:
        """Yield everything, and have it deleted then."""
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
