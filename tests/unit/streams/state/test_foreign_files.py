"""Files of a store that are not those of the checkpoint, or are damaged: the next attempt holds the right
entries, or fails before its commit.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, VersionedStoreSpec, serdes
from airflow_kstreams.streams.errors import StateStoreError, TaskError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import _MARK
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked
from tests.support.topology.records import FakeRecord
from tests.support.topology.task_life import SPEC, Life

pytestmark = pytest.mark.promise("a-checkpoint-names-its-files")


def _store_folder(life: Life) -> Path:
    return life.root / "app-state" / "0_1" / "totals-store"


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _made_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    store = RocksDBKeyValueStore(SPEC, TaskRecordContext())
    store.open(folder)
    store.put("a", 7)
    list(store.drain_changes())
    store.close()


def _a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "removed": shutil.rmtree,
    "emptied": _emptied,
    "made anew": _made_anew,
    "a file": _a_file,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.remedy("rocksdb_files.RocksDBFiles._error")
def test_everything_is_replayed_when_the_store_is_gone(tmp_path: Path, damage: str) -> None:
    life = Life(root=tmp_path)
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    DAMAGES[damage](_store_folder(life))
    assert life.attempt({"a": 4})
    assert life.attempt({})
    assert life.replayed == [0, 3, 0]


def test_everything_is_replayed_when_the_store_is_an_older_copy(tmp_path: Path) -> None:
    life = Life(root=tmp_path / "1")
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    shutil.copytree(_store_folder(life), tmp_path / "copy")
    assert life.attempt({"a": 5})
    shutil.rmtree(_store_folder(life))
    shutil.copytree(tmp_path / "copy", _store_folder(life))
    assert life.attempt({"b": 6})
    assert life.attempt({})
    assert life.replayed == [0, 0, 4, 0]


def test_everything_is_replayed_when_the_store_was_copied_while_a_task_worked(tmp_path: Path) -> None:
    life = Life(root=tmp_path / "1")
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    shutil.copytree(life.root, tmp_path / "clean")
    # What the attempt writes is on disk, as after a flush of RocksDB, and is never committed.
    assert not life.attempt({f"k{n}": n for n in range(10)} | {"a": 99}, death="before the commit")
    (worked,) = life.root.rglob("totals-store")
    shutil.rmtree(tmp_path / "clean/app-state/0_1/totals-store")
    shutil.copytree(worked, tmp_path / "clean/app-state/0_1/totals-store")
    life.root = tmp_path / "clean"
    assert life.attempt({})
    assert life.replayed[-1] == 3


@pytest.mark.parametrize("other", ["task", "store", "topic"])
def test_everything_is_replayed_when_the_store_is_anothers(tmp_path: Path, other: str) -> None:
    life, another = Life(root=tmp_path / "1"), Life(root=tmp_path / "2")
    match other:
        case "task":
            another.owner = msgspec.structs.replace(another.owner, task_id="0_2")
        case "store":
            another.spec = replace(another.spec, name="others")
        case "topic":
            another.topic_id = "id-2"
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    assert another.attempt({"a": 7, "b": 8, "c": 9})
    (store,) = (path for path in another.root.rglob("*-store"))
    shutil.rmtree(_store_folder(life))
    shutil.copytree(store, _store_folder(life))
    assert life.attempt({})
    assert life.replayed == [0, 3]


def test_files_are_not_kept_when_an_entry_has_the_key_of_the_mark(tmp_path: Path) -> None:
    spec = StoreSpec(name="s", key_serde=serdes.bytes(), value_serde=serdes.bytes(), storage="rocksdb")
    store: Any = make_store(spec, TaskRecordContext())
    store.open(tmp_path)
    store.put(_MARK, b"user's")
    list(store.drain_changes())
    assert store.get(_MARK) == b"user's"
    with pytest.raises(StateStoreError, match="has the key of the mark"):
        store.close(b"mark")


@pytest.mark.parametrize("kind", ["key-value", "versioned", "join"])
def test_mark_is_seen_by_no_reader(tmp_path: Path, kind: str) -> None:
    text, number = serdes.string(), serdes.int64()
    spec: StoreSpec = {
        "key-value": StoreSpec(name="s", key_serde=text, value_serde=number, storage="rocksdb"),
        "versioned": VersionedStoreSpec(
            name="s", key_serde=text, value_serde=number, storage="rocksdb", history_ms=10
        ),
        "join": JoinStoreSpec(
            name="s", key_serde=text, value_serde=number, storage="rocksdb", retention_ms=10
        ),
    }[kind]
    store: Any = make_store(spec, TaskRecordContext())
    store.open(tmp_path)
    before = list(store.all())
    store.close(b"mark")
    again: Any = make_store(spec, TaskRecordContext())
    again.open(tmp_path, b"mark")
    assert list(again.all()) == before == []
    again.close()
    third: Any = make_store(spec, TaskRecordContext())
    with pytest.raises(StateStoreError, match="not those of the checkpoint"):
        third.open(tmp_path, b"mark")


def _filled(folder: Path) -> dict[str, int]:
    """Make files of many blocks, with the mark ``m``; return their entries."""
    store = RocksDBKeyValueStore(SPEC, TaskRecordContext())
    store.open(folder)
    draw = random.Random(1)
    entries = {f"k{n:05}": draw.getrandbits(60) for n in range(3_000)}
    store.restore_batch(
        [
            FakeRecord(at=n, key_bytes=key.encode(), value_bytes=b"%d" % value)
            for n, (key, value) in enumerate(entries.items())
        ]
    )
    store.close(b"m")
    return entries


def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    entries = _filled(tmp_path / "sound")
    (table,) = (tmp_path / "sound").glob("*.sst")
    data, size = table.read_bytes(), table.stat().st_size
    found = 0
    for number, place in enumerate([*range(40, size, size // 15), *range(size - 600, size, 150)]):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "sound", folder)
        flipped = bytearray(data)
        flipped[place] ^= 1 << number % 8
        (folder / table.name).write_bytes(flipped)
        store = RocksDBKeyValueStore(SPEC, TaskRecordContext())
        for read in (lambda store=store: dict(store.all()), lambda store=store: _one_by_one(store, entries)):
            try:
                store.open(folder, b"m")
                assert read() == entries
            except StateStoreError:
                found += 1
            finally:
                store.close(b"m")
    assert found >= 20, "of forty reads most meet the damage"


def _one_by_one(store: RocksDBKeyValueStore, entries: dict[str, int]) -> dict[str, Any]:
    return {key: store.get(key) for key in entries}


@pytest.mark.parametrize(
    "damage", ["removed", "an older copy", walked("rocksdb_files.StoreFiles.read", "a flipped bit")]
)
def test_runs_count_right_whatever_became_of_their_files(tmp_path: Path, damage: str) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(
        application_id="app",
        topology=_counts(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, "state.dir": str(tmp_path / "state")},
    )
    for run in range(4):
        for n in range(500):
            kafka.append("in", b"1", b"k%03d" % n, timestamp_ms=1 + run)
        slice_ = app.begin(f"run {run}")
        if run == 3:
            _damage(tmp_path, damage)
            if damage == "a flipped bit":
                with pytest.raises((StateStoreError, TaskError), match="RocksDB cannot read a key"):
                    app.tasks(slice_)
                assert len(kafka.records("out")) == 1500, "nothing was committed"
        app.tasks(slice_)
        app.finish(f"run {run}")
        if run == 1:
            (store,) = (tmp_path / "state").rglob("counts-store")
            shutil.copytree(store, tmp_path / "copy")
    last = {record.key(): record.value() for record in kafka.records("out")}
    assert last == {b"k%03d" % n: (4).to_bytes(8, "big") for n in range(500)}
    counts = {record.key(): record.value() for record in kafka.records("app-counts-changelog")}
    assert counts == last


def _damage(root: Path, damage: str) -> None:
    (store,) = (root / "state").rglob("counts-store")
    if damage == "a flipped bit":
        for table in store.glob("*.sst"):
            data = bytearray(table.read_bytes())
            data[100] ^= 1
            table.write_bytes(data)
        return
    shutil.rmtree(store)
    if damage == "an older copy":
        shutil.copytree(root / "copy", store)


def _counts() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    counts = builder.stream("in").group_by_key().count(store=spec).to_stream()
    counts.send_to("out", value_serde=serdes.int64())
    return builder.build()
