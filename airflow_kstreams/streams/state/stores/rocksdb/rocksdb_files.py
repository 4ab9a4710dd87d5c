"""Opens one RocksDB database per store, through ``rocksdict`` in raw mode, with keys as bytes in their order
and a queue for changes.

Reasons for the options:

- The changelog is authoritative, so the write-ahead log is off: a write goes to the memtable, and only
  :meth:`RocksDBFiles.close` promises that all is on disk.
- Memory is bounded by one cache and one budget of write buffers for the whole process, however many stores
  and tasks it hosts; stores whose entries come and go by time, which read and write side by side, have
  smaller ones of their own. Index and filter blocks lie in that cache, too, so they are split into small
  partitions: a whole filter of some megabytes would not fit into one shard of the cache and be read again for
  every lookup.
- Bloom filters of 10 bits a key answer most lookups of absent keys without a read.
- LZ4 halves the files for next to no time. Two background threads flush and compact.

RocksDB orders keys by their bytes. A time is its distance from the least time, 8 bytes, big-endian. A key
before other bytes is escaped: 0 is written as 0 255, and 0 0 ends it. So no key is the beginning of another
one, and escaped keys sort as keys.

Rule: files that are kept for a later run hold a mark that describes their content, in a row of its own. The
row is written when they are closed and deleted when they are opened again, before any other write. Writes
become durable in their order. So files with a mark have the content of the time when it was written, whatever
was copied where: files of another time, of another store, or of a task at work have another mark, or none.

The queue holds changes for the next drain when too many entries change at once for memory: when stream time
leaps, and many entries expire or many elements end their wait. Invariant: a drain empties it. So it is empty
whenever files are kept for a later run.
"""

from __future__ import annotations

import functools
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from airflow_kstreams.streams.errors import ConfigError, StateStoreError

_TIMES = {count: struct.Struct(f">{count}Q") for count in (1, 2)}
_LEAST_MS = -(2**63)
#: Bytes that a time takes.
TIME_BYTES = 8
_END = b"\x00\x00"


def times_to_bytes(times_ms: tuple[int, ...]) -> bytes:
    """Return one or two times as bytes in the order of the times.

    >>> sorted([times_to_bytes((1,)), times_to_bytes((-1,))]) == [times_to_bytes((-1,)), times_to_bytes((1,))]
    True
    """
    return _TIMES[len(times_ms)].pack(*(time_ms - _LEAST_MS for time_ms in times_ms))


def times_from_bytes(data: bytes, offset: int, count: int) -> tuple[int, ...]:
    """Return the times in bytes, epoch milliseconds.

    :param data: the bytes.
    :param offset: offset of the first time.
    :param count: number of times, one or two.

    >>> times_from_bytes(times_to_bytes((-7, 8)), 0, 2)
    (-7, 8)
    """
    return tuple(time_ms + _LEAST_MS for time_ms in _TIMES[count].unpack_from(data, offset))


def escaped(key: bytes) -> bytes:
    r"""Return a key in the form before other bytes.

    >>> escaped(b"a\0b")
    b'a\x00\xffb\x00\x00'
    """
    return key.replace(b"\x00", b"\x00\xff") + _END


def unescaped(data: bytes) -> bytes:
    r"""Return the key of an escaped form.

    >>> unescaped(escaped(b"\0\xff\0"))
    b'\x00\xff\x00'
    """
    return data[: -len(_END)].replace(b"\x00\xff", b"\x00")


def behind(prefix: bytes) -> bytes:
    """Return the first bytes that sort behind all bytes with a prefix.

    :param prefix: the prefix, with at least one byte below 255.
    """
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


def up_to(prefix: bytes, last_ms: int) -> bytes:
    """Return the first bytes that sort behind all that begin with a prefix and a time up to ``last_ms``,
    which may be any number.

    >>> up_to(b"a", 2**63) == b"b", up_to(b"a", -(2**64)) == b"a"
    (True, True)
    """
    if last_ms >= -_LEAST_MS - 1:
        return behind(prefix)
    return prefix if last_ms < _LEAST_MS else prefix + times_to_bytes((last_ms + 1,))


Item = TypeVar("Item")

_MIB = 1024 * 1024


class FileMemory(NamedTuple):
    """The memory of all stores of a kind in the process.

    :param cache_bytes: size of the cache of blocks, index and filters.
    :param write_buffers_bytes: size of all write buffers, within the cache.
    :param write_buffer_bytes: size of one write buffer.
    """

    cache_bytes: int
    write_buffers_bytes: int
    write_buffer_bytes: int


#: Memory of stores whose keys are read and written in any order.
BY_KEY = FileMemory(192 * _MIB, 96 * _MIB, 32 * _MIB)
#: Memory of stores whose entries are put, found and removed by time.
BY_TIME = FileMemory(48 * _MIB, 24 * _MIB, 8 * _MIB)

#: Held while the memory that stores share is made.
_sharing = threading.Lock()

#: The row of the mark. Nearly no key is this one: it is neither UTF-8 nor of a fixed size.
_MARK = b"\xff" * 16 + b"airflow-kstreams"

_METADATA_BLOCK_BYTES = 4096
_BLOOM_BITS_PER_KEY = 10
_MAX_OPEN_FILES = 256
_MAX_LOG_BYTES = 1024 * 1024


def require_rocksdict(store: str) -> ModuleType:
    """Return the module ``rocksdict``.

    :param store: name of the store, for the message.
    :raises ConfigError: the package is not installed.
    """
    try:
        import rocksdict
    except ImportError as error:
        raise ConfigError(
            f"store {store!r} has storage='rocksdb', but the package rocksdict is not installed: {error}",
            fix="pip install 'airflow-kstreams[rocksdb]' on the driver and every executor (or bring it by "
            "`airflow-kstreams pack --extras rocksdb`), or use storage='memory'",
        ) from error
    return rocksdict


class RocksDBFiles:
    """An open database.

    :param store: name of the store, for messages.
    :param folder: folder of its files.
    :param memory: the memory that it shares with other databases.
    :param mark: text inside the database that describes its content; files without it are refused. None makes
        missing files, and needs no mark.
    :raises StateStoreError: the files cannot be opened, or have another mark.
    """

    def __init__(
        self, store: str, folder: Path, memory: FileMemory = BY_KEY, mark: bytes | None = None
    ) -> None:
        rocksdict = require_rocksdict(store)
        self._store = store
        self._folder = folder
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True
        self._new_batch = functools.partial(rocksdict.WriteBatch, raw_mode=True)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            options = _options(rocksdict, memory)
            options.create_if_missing(mark is None)
            self._database = rocksdict.Rdict(str(folder), options)
        except Exception as error:
            raise self._error("cannot be opened", error) from error
        #: ``get(key)`` returns the stored bytes or None; the client's own method.
        self.get = self._database.get
        if mark is not None:
            self._take_mark(mark)

    def batch(self) -> Any:
        """Return an empty batch with ``put(key, data)`` and ``delete(key)``."""
        return self._new_batch()

    def write(self, batch: Any) -> None:
        """Write a batch, which cannot be used again.

        :raises StateStoreError: RocksDB refuses it.
        """
        try:
            self._database.write(batch, self._write_options)
        except Exception as error:
            raise self._error("cannot be written", error) from error

    def items(self, first: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the present entries from a key on, in key order, without later writes.

        :raises StateStoreError: while iterating: RocksDB cannot read an entry.
        """
        return self._to_the_end(self._database.items(from_key=first), first)

    def _to_the_end(
        self, items: Iterator[tuple[bytes, bytes]], last: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        for item in items:
            last = item[0]
            yield item
        # The client's iterator ends at a damaged block as it ends behind the last key.
        behind = self._database.iter()
        if last is None:
            behind.seek_to_first()
        else:
            behind.seek(last)
            if behind.valid():
                behind.next()
        try:
            behind.status()
        except Exception as error:
            raise self._error("cannot be read", error) from error

    def estimated_count(self) -> int:
        """Return the approximate number of keys; one written several times may count as often."""
        return int(self._database.property_int_value("rocksdb.estimate-num-keys") or 0)

    def close(self, mark: bytes | None = None) -> None:
        """Flush the memtables to durable files and close them.

        :param mark: text that describes the files' content; None if they will not be opened again.
        :raises StateStoreError: the files cannot be written.
        """
        try:
            try:
                if mark is not None:
                    self._put_mark(mark)
                self._database.flush()
            finally:
                self._database.close()
        except Exception as error:
            raise self._error("cannot be closed", error) from error

    def _put_mark(self, mark: bytes) -> None:
        if self.get(_MARK) is not None:
            raise ValueError("an entry has the key of the mark, so the files cannot be marked")
        self._database.put(_MARK, mark, write_opt=self._write_options)

    def _take_mark(self, mark: bytes) -> None:
        try:
            found = self.get(_MARK)
            self._database.delete(_MARK, write_opt=self._write_options)
        except Exception as error:
            self._database.close()
            raise self._error("cannot be read", error) from error
        if found != mark:
            self._database.close()
            raise self._error(
                "are not those of the checkpoint", f"they say that they hold {found!r}, expected {mark!r}"
            )

    def _error(self, what: str, error: Exception | str) -> StateStoreError:
        return StateStoreError(
            f"store {self._store!r}: its files in {self._folder} {what}: {error}",
            fix="check that the disk is sound and has space (state.dir names the folder), then retry: "
            "the store is restored from its changelog",
        )


class StoreFiles:
    """The database of one task's store: in a given folder, else, as in a test driver, in a temporary one that
    is removed with it.

    :param store: name of the store.
    :param memory: the memory that its files share with other databases.
    :raises ConfigError: the package ``rocksdict`` is not installed.
    """

    def __init__(self, store: str, memory: FileMemory = BY_KEY) -> None:
        require_rocksdict(store)
        self._store = store
        self._memory = memory
        self._files: RocksDBFiles | None = None
        self._closed = False
        self._iterators: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()

    def open(self, folder: Path, mark: bytes | None = None) -> RocksDBFiles:
        """Keep the files in a folder; with a mark, only files that exist and have it."""
        self._files = RocksDBFiles(self._store, folder, self._memory, mark)
        self._closed = False
        return self._files

    def close(self, mark: bytes | None = None) -> None:
        """Close the files, which then durably hold all writes and the mark. Iterators end."""
        for iterator in list(self._iterators):
            iterator.close()
        files, self._files = self._files, None
        self._closed = True
        if files is not None:
            files.close(mark)

    def opened(self) -> RocksDBFiles:
        """Return the files.

        :raises StateStoreError: the files are closed.
        """
        if self._files is not None:
            return self._files
        if self._closed:
            raise StateStoreError(
                f"store {self._store!r} was used after the end of its task",
                fix="do not keep a store or an iterator beyond the processor's close",
            )
        folder = tempfile.TemporaryDirectory(prefix="kstreams-store-")
        files = self._files = RocksDBFiles(self._store, Path(folder.name), self._memory)
        weakref.finalize(self, _remove_temporary, files, folder)
        return files

    def read(self, key: bytes) -> bytes | None:
        """Return the data stored under a key.

        :raises StateStoreError: RocksDB cannot read it.
        """
        files = self.opened()
        try:
            data: bytes | None = files.get(key)
        except Exception as error:
            raise StateStoreError(
                f"store {self._store!r}: RocksDB cannot read a key: {error}",
                fix="check that the disk is sound, then retry: the store is restored from its changelog",
            ) from error
        return data

    def ending(self, iterator: Generator[Item, None, None]) -> Generator[Item, None, None]:
        """Return an iterator that ends when the files are closed."""
        self._iterators.add(iterator)
        return iterator

    def between(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the present entries from one key up to, and without, another one, in key order."""
        return takewhile(lambda item: item[0] < end, self.opened().items(first))


def _remove_temporary(files: RocksDBFiles, folder: tempfile.TemporaryDirectory[str]) -> None:
    with suppress(StateStoreError):
        files.close()
    folder.cleanup()


@functools.cache
def _shared_memory(rocksdict: ModuleType, memory: FileMemory) -> tuple[Any, Any]:
    cache = rocksdict.Cache(memory.cache_bytes)
    buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
        memory.write_buffers_bytes, False, cache
    )
    return cache, buffers


def _options(rocksdict: ModuleType, memory: FileMemory) -> Any:
    with _sharing:  # threads that miss the cache at the same time would make two
        cache, buffers = _shared_memory(rocksdict, memory)
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_metadata_block_size(_METADATA_BLOCK_BYTES)
    blocks.set_pin_top_level_index_and_filter(True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(memory.write_buffer_bytes)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_open_files(_MAX_OPEN_FILES)
    options.set_stats_dump_period_sec(0)
    options.set_max_log_file_size(_MAX_LOG_BYTES)
    options.set_keep_log_file_num(2)
    return options


Key = TypeVar("Key")


class KeptEntries(dict[Key, Item | None]):
    """A cache of entries as objects, None for a key known to be absent. Looking up another key loads it.

    :param load: function that reads an entry, and keeps it here.
    """

    __slots__ = ("_load",)

    def __init__(self, load: Callable[[Key], Item | None]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, key: Key) -> Item | None:
        return self._load(key)


_NUMBER = struct.Struct(">Q")


class ChangeQueue:
    """A queue of bytes in RocksDB.

    :param files: the store's files.
    :param prefix: beginning of its keys, and of no other keys.
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
