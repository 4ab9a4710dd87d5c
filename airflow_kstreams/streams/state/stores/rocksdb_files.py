"""One RocksDB database per store, through ``rocksdict`` in raw mode: bytes in, bytes out.

What the options are for:

- The changelog is the truth, so the write-ahead log is off: a write goes to the memtable, and only
  :meth:`RocksDBFiles.close` promises that everything is on disk.
- Memory is bounded by one cache and one budget of write buffers for the whole process, however many stores
  and tasks it hosts. Index and filter blocks lie in that cache, too, so they are cut into small partitions:
  a whole filter of some megabytes would not fit into one shard of the cache and be read again for every
  lookup.
- Bloom filters of 10 bits a key answer most lookups of absent keys without a read.
- LZ4 halves the files for next to no time. Two background threads flush and compact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_kstreams.streams.errors import ConfigError, StateStoreError

#: Blocks, index and filters of every store in the process, and within that their write buffers.
CACHE_BYTES = 192 * 1024 * 1024
WRITE_BUFFERS_BYTES = 96 * 1024 * 1024
_WRITE_BUFFER_BYTES = 32 * 1024 * 1024
_METADATA_BLOCK_BYTES = 4096
_BLOOM_BITS_PER_KEY = 10
_MAX_OPEN_FILES = 256
_MAX_LOG_BYTES = 1024 * 1024


def require_rocksdict(store: str) -> ModuleType:
    """Return the module ``rocksdict``.

    :param store: who asks, for the message.
    :raises ConfigError: it is not installed.
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
    :param folder: where its files lie; made unless it exists.
    :raises StateStoreError: the files cannot be opened.
    """

    def __init__(self, store: str, folder: Path) -> None:
        rocksdict = require_rocksdict(store)
        self._store = store
        self._folder = folder
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True
        self._new_batch = functools.partial(rocksdict.WriteBatch, raw_mode=True)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._database = rocksdict.Rdict(str(folder), _options(rocksdict))
        except Exception as error:
            raise self._error("cannot be opened", error) from error
        #: ``get(key)`` returns the stored bytes or None; the client's own method.
        self.get = self._database.get

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
        """Iterate over what is stored now, from a key on, in key order, whatever is written meanwhile."""
        items: Iterator[tuple[bytes, bytes]] = self._database.items(from_key=first)
        return items

    def estimated_count(self) -> int:
        """Return about how many keys are stored; one written several times may count as often."""
        return int(self._database.property_int_value("rocksdb.estimate-num-keys") or 0)

    def close(self) -> None:
        """Flush what is in memory to durable files and close them.

        :raises StateStoreError: the files cannot be written.
        """
        try:
            try:
                self._database.flush()
            finally:
                self._database.close()
        except Exception as error:
            raise self._error("cannot be closed", error) from error

    def _error(self, what: str, error: Exception) -> StateStoreError:
        return StateStoreError(
            f"store {self._store!r}: its files in {self._folder} {what}: {error}",
            fix="see that the disk is sound and has space (setting state.dir names the folder), then retry: "
            "the store is restored from its changelog",
        )


@functools.cache
def _shared_memory(rocksdict: ModuleType) -> tuple[Any, Any]:
    cache = rocksdict.Cache(CACHE_BYTES)
    buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
        WRITE_BUFFERS_BYTES, False, cache
    )
    return cache, buffers


def _options(rocksdict: ModuleType) -> Any:
    cache, buffers = _shared_memory(rocksdict)
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
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_open_files(_MAX_OPEN_FILES)
    options.set_stats_dump_period_sec(0)
    options.set_max_log_file_size(_MAX_LOG_BYTES)
    options.set_keep_log_file_num(2)
    return options
