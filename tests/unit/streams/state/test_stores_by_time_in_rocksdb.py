"""What lies in memory of stores by time in RocksDB: counted, however many entries there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_kstreams.streams import SessionStoreSpec, StateStoreError, StoreSpec, WindowStoreSpec, serdes
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.state.stores.rocksdb.entries_in_rocksdb import KEPT_BYTES
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import escaped, unescaped, up_to

pytestmark = pytest.mark.promise("windows-on-disk-take-little-memory")

ENTRIES, KEPT, TOMBSTONES = 5_000, 100, 50
KINDS: dict[str, type[StoreSpec]] = {"window": WindowStoreSpec, "session": SessionStoreSpec}


def _spec(kind: Any, **options: Any) -> Any:
    return kind(
        name="s",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        retention_ms=10,
        storage="rocksdb",
        **options,
    )


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    store: Any = make_store(_spec(KINDS[request.param]), TaskRecordContext())
    store.held._kept_entries, store.held._tombstones = KEPT, TOMBSTONES
    yield store
    store.close()


def _fill(store: Any) -> None:
    for number in range(ENTRIES):
        times = (number,) if isinstance(store.spec, WindowStoreSpec) else (number, number)
        store.put(f"k{number % 7}", "x" * 100, *times)


def _in_memory(store: Any) -> int:
    held = store.held
    return max(len(held._kept), len(held._unwritten))


def test_entries_in_memory_are_few_when_there_are_many(store: Any) -> None:
    most = 0
    for number in range(ENTRIES):
        times = (number,) if isinstance(store.spec, WindowStoreSpec) else (number, number)
        store.put(f"k{number % 7}", number, *times)
        most = max(most, _in_memory(store))
    assert most <= KEPT
    assert sum(1 for _ in store.all()) == ENTRIES
    assert len(list(store.range("k3", 700, 1_400))) == 100


def test_little_is_in_memory_when_everything_expires_at_once(store: Any) -> None:
    _fill(store)
    assert sum(1 for _ in store.drain_changes()) == ENTRIES
    seen, most = 0, 0

    def leave(entry_id: Any, entry: Any) -> None:
        nonlocal seen, most
        seen += 1
        most = max(most, _in_memory(store), len(store.held._changed))

    store.expire(10 * ENTRIES, leave)

    assert seen == ENTRIES
    assert most <= KEPT
    assert store.next_expiry_ms() is None
    tombstones = list(store.drain_changes())
    assert len(tombstones) == ENTRIES
    assert all(value is None for _, value, _ in tombstones)
    assert store.undrained_count() == 0
    assert list(store.drain_changes()) == []


def test_entry_that_comes_back_before_its_tombstone_is_drained_is_logged_as_it_is(store: Any) -> None:
    _fill(store)
    list(store.drain_changes())
    store.expire(10 * ENTRIES)
    times = (7,) if isinstance(store.spec, WindowStoreSpec) else (7, 7)
    store.put("k0", "back", *times)
    changes = {key: value for key, value, _ in store.drain_changes()}
    (back,) = [key for key, value in changes.items() if value is not None]
    assert (len(changes), changes[back]) == (ENTRIES, b'"back"')


def test_objects_are_let_go_when_their_bytes_are_many(store: Any) -> None:
    store.held._kept_entries = 10**9
    large = "x" * (KEPT_BYTES // 8)
    for number in range(40):
        times = (number,) if isinstance(store.spec, WindowStoreSpec) else (number, number)
        store.put("a", large, *times)
        list(store.drain_changes())
        assert sum(1 for entry in store.held._kept.values() if entry is not None) <= 9


def test_store_is_refused_to_those_who_keep_it_beyond_its_task(store: Any) -> None:
    _fill(store)
    entries = store.all()
    next(entries)
    store.close()
    assert list(entries) == []
    with pytest.raises(StateStoreError, match="used after the end of its task"):
        store.range("a")


def test_error_names_the_store_when_a_changelog_record_is_foreign(store: Any) -> None:
    with pytest.raises(StateStoreError, match=r"'s'.*changelog record"):
        store.restore(b"short", b"1", 0)


def test_little_is_in_memory_when_all_elements_of_a_join_go_at_once() -> None:
    store: Any = make_store(_spec(JoinStoreSpec), TaskRecordContext())
    store._changes = TOMBSTONES
    now_ms, most = -1, 0
    store.follow(lambda: now_ms, lambda: now_ms, lambda time_ms: None)
    for number in range(ENTRIES):
        store.put(b"k%d" % (number % 7), number, "x", number % 2 == 0)
    assert sum(1 for _ in store.drain_changes()) == ENTRIES
    released = 0
    for _ in store.release(ENTRIES):
        released += 1
        most = max(most, len(store._changed))
    store.remove_expired(now_ms := 10 * ENTRIES)
    most = max(most, len(store._changed))
    assert (released, store.first_waiting_ms()) == (ENTRIES // 2, None)
    assert most <= TOMBSTONES
    assert {value for _, value, _ in store.drain_changes()} == {None}
    assert list(store.all()) == []
    store.close()


@pytest.mark.promise("storage-changes-no-result")
@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0", b"\0\xff", b"\xff", b"a\0b"])
def test_rows_of_a_key_hold_no_row_of_another_one(key: bytes) -> None:
    assert unescaped(escaped(key)) == key
    for other in (key + b"\0", key + b"\xff", key + b"a"):
        assert escaped(key) + b"\xff" * 16 < escaped(other) or escaped(other) < escaped(key)
        assert not escaped(other).startswith(escaped(key))
        assert (escaped(key) < escaped(other)) == (key < other)
        assert up_to(escaped(key), 2**63) <= escaped(other)


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@pytest.mark.parametrize("let_go", [False, True])
def test_entry_that_changed_while_others_left_leaves_as_it_is_then(storage: Any, let_go: bool) -> None:
    spec = WindowStoreSpec(
        name="s",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        retention_ms=10,
        storage=storage,
    )
    store: Any = make_store(spec, TaskRecordContext())
    for key in "abc":
        store.put(key, "old", 0)
    list(store.drain_changes())
    if let_go and storage == "rocksdb":
        store.held._kept_entries = 1
    left: list[tuple[bytes, str]] = []

    def leave(entry_id: Any, entry: Any) -> None:
        left.append((entry_id[-1], entry[0]))
        if len(left) == 1:
            store.put("b", None, 0)
            store.put("c", "new", 0)

    store.expire(10, leave)

    assert left == [(b"a", "old"), (b"c", "new")]
    assert not list(store.all())
    if storage == "rocksdb":
        store.close()
