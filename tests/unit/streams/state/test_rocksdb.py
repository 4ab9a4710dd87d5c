"""What a store in RocksDB has beyond a store in memory: files."""

from __future__ import annotations

import builtins
import gc
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
from airflow_kstreams.streams.errors import ConfigError, StateStoreError
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_key_value_store
from airflow_kstreams.streams.state.stores.rocksdb import rocksdb
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.records import FakeRecord

SPEC = StoreSpec(name="totals", key_serde=serdes.string(), value_serde=serdes.json(), storage="rocksdb")


def opened(folder: Path, **options: Any) -> RocksDBKeyValueStore:
    store = RocksDBKeyValueStore(SPEC, TaskRecordContext(timestamp_ms=10), **options)
    store.open(folder)
    return store


def test_entries_are_there_again_when_the_files_are_opened_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "totals")
    store.put("a", {"n": 1})
    store.put("b", 2)
    list(store.drain_changes())
    store.restore_batch([FakeRecord(at=0, key_bytes=b"c", value_bytes=b"3", timestamp_ms=-1)])
    store.close()
    again = opened(tmp_path / "totals")
    assert again.get_entry(b"a") == ({"n": 1}, 10)
    assert again.get_entry(b"c") == (3, -1), "a record without a timestamp has -1, as in Kafka"
    assert list(again.all()) == [("a", {"n": 1}), ("b", 2), ("c", 3)]
    assert list(again.drain_changes()) == []
    again.close()


def test_deletion_stays_when_the_files_are_opened_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put("a", 1)
    list(store.drain_changes())
    store.delete("a")
    list(store.drain_changes())
    store.close()
    again = opened(tmp_path)
    assert again.get("a") is None
    assert list(again.all()) == []
    again.close()


def test_iterator_ends_and_store_refuses_when_the_task_is_over(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put("a", 1)
    store.put("b", 1)
    iterator = store.all()
    assert next(iterator) == ("a", 1)
    store.close()
    store.close()
    assert list(iterator) == []
    with pytest.raises(StateStoreError, match=r"totals.*after the end of its task"):
        store.get("c")
    opened(tmp_path).close()


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_few_entries_stay_in_memory_when_many_are_used(
    tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "KEPT_BYTES", 2_000)
    store = opened(tmp_path, kept_entries=10 if bound == "entries" else 10_000)
    largest = 0
    for number in range(300):
        store.put(f"k{number}", "x" * 100)
        list(store.drain_changes())
        largest = max(largest, len(store._kept))
    for number in range(300):
        assert store.get(f"k{number}") == "x" * 100
        largest = max(largest, len(store._kept))
    assert largest <= 20
    store.close()


def test_folder_is_named_when_the_files_cannot_be_opened(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for manifest in tmp_path.glob("MANIFEST-*"):
        manifest.write_bytes(b"not a manifest")
    with pytest.raises(StateStoreError, match=rf"totals.*{tmp_path}"):
        opened(tmp_path)


def test_damage_is_an_error_of_the_store_when_a_block_is_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.restore_batch(
        [FakeRecord(at=n, key_bytes=f"k{n:05}".encode(), value_bytes=b'"%d"' % n) for n in range(5000)]
    )
    store.close()
    (table,) = tmp_path.glob("*.sst")
    data = bytearray(table.read_bytes())
    data[100:2000] = bytes(1900)
    table.write_bytes(data)
    damaged = opened(tmp_path)
    with pytest.raises(StateStoreError, match="totals"):
        damaged.get("k00001")
    damaged.close()


def test_temporary_folder_goes_with_the_store_when_it_was_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = make_key_value_store(SPEC, TaskRecordContext())
    store.put("a", 1)
    assert list(store.all()) == [("a", 1)]
    assert list(tmp_path.iterdir())
    del store
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_test_driver_runs_a_topology_when_its_store_is_in_rocksdb() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    spec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    builder.stream("in").group_by_key().count(store=spec).to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        for key in "aba":
            driver.pipe_input("in", key=key, value=1, timestamp_ms=0)
        assert [(r.key, r.value) for r in driver.read_output("out")] == [("a", 1), ("b", 1), ("a", 2)]
        assert driver.store("t").get("a") == 2


def test_extra_is_named_when_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "rocksdict":
            raise ImportError("No module named 'rocksdict'")
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "rocksdict", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"totals") as caught:
        make_key_value_store(SPEC, TaskRecordContext())
    assert "pip install 'airflow-kstreams[rocksdb]'" in caught.value.fix
