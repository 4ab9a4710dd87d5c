from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import StoreFiles
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_join_store import RocksDBJoinStore

RETENTION_MS = 8_000


@pytest.fixture
def store() -> Iterator[RocksDBJoinStore]:
    spec = JoinStoreSpec(
        name="j-left",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        retention_ms=RETENTION_MS,
        storage="rocksdb",
    )
    store = RocksDBJoinStore(spec)
    yield store
    store.close()


def test_removal_begins_behind_what_was_removed_before(
    store: RocksDBJoinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[bytes] = []
    between = StoreFiles.between

    def watched(self: StoreFiles, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        starts.append(first)
        return between(self, first, end)

    monkeypatch.setattr(StoreFiles, "between", watched)
    for second in range(30):
        store.put(b"k", second * 1_000, second, False)
        store.remove_expired(second * 1_000)
    assert len(starts) == 30
    assert starts == sorted(set(starts))


def test_element_that_comes_late_is_removed_in_the_end(store: RocksDBJoinStore) -> None:
    store.put(b"k", 10_000, "first", False)
    store.remove_expired(10_000)
    store.put(b"k", 3_000, "late", False)
    store.remove_expired(12_000)
    assert [value for _, _, value in store.find(b"k", 0, 20_000)] == ["first"]
