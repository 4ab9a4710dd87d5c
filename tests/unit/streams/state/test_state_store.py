from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_kstreams.streams import StoreSpec, serdes
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.state_store import KeyValueStore, PersistentStore
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("iterators-show-their-moment")


@pytest.fixture
def context() -> TaskRecordContext:
    return TaskRecordContext(timestamp_ms=10)


@pytest.fixture(params=["memory", "rocksdb", "rocksdb keeping nothing"])
def make(request: pytest.FixtureRequest, context: TaskRecordContext) -> Iterator[Callable[..., Any]]:
    """Makes stores of one kind; the third kind writes early whenever a key is put."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        storage: Storage = "memory" if request.param == "memory" else "rocksdb"
        spec = StoreSpec(
            name="totals", key_serde=serdes.string(), value_serde=serdes.json(), storage=storage, **options
        )
        if request.param == "rocksdb keeping nothing":
            made.append(RocksDBKeyValueStore(spec, context, kept_entries=0))
        else:
            made.append(make_store(spec, context))
        return made[-1]

    yield make
    for store in made:
        if isinstance(store, PersistentStore):
            store.close()


@pytest.fixture
def store(make: Callable[..., Any]) -> Any:
    return make()


def test_get_returns_none_when_key_is_absent(store: KeyValueStore) -> None:
    assert store.get("a") is None
    assert store.approximate_count() == 0


def test_get_returns_value_when_it_was_put(store: KeyValueStore) -> None:
    store.put("a", 1)
    store.put("a", 2)
    assert store.get("a") == 2
    assert store.approximate_count() >= 1


def test_put_deletes_when_value_is_none(store: KeyValueStore) -> None:
    store.put("a", 1)
    store.put("a", None)
    assert store.get("a") is None
    assert store.approximate_count() == 0


def test_delete_returns_the_old_value_when_there_was_one(store: KeyValueStore) -> None:
    store.put("a", 1)
    assert store.delete("a") == 1
    assert store.delete("a") is None


def test_put_if_absent_keeps_the_value_when_there_is_one(store: KeyValueStore) -> None:
    assert store.put_if_absent("a", 1) is None
    assert store.put_if_absent("a", 2) == 1
    assert store.get("a") == 1


def test_iteration_follows_serialized_keys_when_put_in_another_order(store: KeyValueStore) -> None:
    for key in ("b", "ä", "a", "c"):
        store.put(key, key.upper())
    assert [key for key, _ in store.all()] == ["a", "b", "c", "ä"]
    assert list(store.range("b", "c")) == [("b", "B"), ("c", "C")]
    assert [key for key, _ in store.range(None, "b")] == ["a", "b"]
    assert [key for key, _ in store.range("c", None)] == ["c", "ä"]


def test_iteration_goes_on_when_the_store_changes_meanwhile(store: KeyValueStore) -> None:
    for key in "abc":
        store.put(key, key)
    seen = []
    for key, _ in store.all():
        seen.append(key)
        store.delete("b")
        store.put("d", "d")
    assert seen == ["a", "b", "c"]


def test_user_put_takes_the_timestamp_when_a_record_is_processed(
    store: KeyValueStore, context: TaskRecordContext
) -> None:
    context.timestamp_ms = 77
    store.put("a", 1)
    assert store.get_entry(b"a") == (1, 77)


def test_key_none_is_refused_when_used(store: KeyValueStore) -> None:
    with pytest.raises(StateStoreError, match="totals"):
        store.put(None, 1)


def test_changes_come_once_per_key_in_first_change_order_when_drained(
    store: KeyValueStore, context: TaskRecordContext
) -> None:
    store.put("b", 1)
    store.put("a", 1)
    context.timestamp_ms = 20
    store.put("b", 2)
    assert list(store.drain_changes()) == [(b"b", b"2", 20), (b"a", b"1", 10)]
    assert list(store.drain_changes()) == []


def test_change_holds_the_newest_state_when_value_is_changed_in_place_and_put_back(
    store: KeyValueStore,
) -> None:
    value = {"n": 1}
    store.put("a", value)
    value["n"] = 2
    store.put("a", value)
    assert list(store.drain_changes()) == [(b"a", b'{"n":2}', 10)]


def test_deletion_is_a_tombstone_with_its_own_time_when_drained(
    store: KeyValueStore, context: TaskRecordContext
) -> None:
    store.put("a", 1)
    list(store.drain_changes())
    context.timestamp_ms = 30
    store.delete("a")
    assert list(store.drain_changes()) == [(b"a", None, 30)]


def test_tombstone_keeps_its_time_when_the_key_is_deleted_again(
    store: KeyValueStore, context: TaskRecordContext
) -> None:
    store.put("a", 1)
    store.delete("a")
    context.timestamp_ms = 30
    store.delete("a")
    assert list(store.drain_changes()) == [(b"a", None, 10)]


def test_nothing_changes_when_an_absent_key_is_deleted(store: KeyValueStore) -> None:
    store.delete("a")
    assert list(store.drain_changes()) == []


def test_restored_entries_are_no_changes_when_drained(store: KeyValueStore) -> None:
    store.restore(b"a", b"1", 5)
    store.restore(b"b", b"2", 6)
    store.restore(b"a", None, 7)
    store.restore(b"c", None, 8)
    assert list(store.all()) == [("b", 2)]
    assert store.get_entry(b"b") == (2, 6)
    assert list(store.drain_changes()) == []


def test_changes_are_not_collected_when_the_store_is_not_logged(make: Callable[..., Any]) -> None:
    store = make(logged=False)
    store.put("a", 1)
    store.put("b", 1)
    store.delete("b")
    assert list(store.all()) == [("a", 1)]
    assert list(store.drain_changes()) == []


def test_drain_names_the_store_when_a_value_does_not_fit(store: KeyValueStore) -> None:
    with pytest.raises(StateStoreError, match=r"totals.*serdes\.json"):
        store.put("a", object())
        list(store.drain_changes())


def test_restore_names_the_store_when_bytes_are_of_another_format(store: KeyValueStore) -> None:
    with pytest.raises(StateStoreError, match=r"totals.*serdes\.json"):
        store.restore(b"a", b"{", 5)


def _changelog(*changes: tuple[bytes, bytes | None, int]) -> list[FakeRecord]:
    return [
        FakeRecord(at=number, key_bytes=key, value_bytes=value, timestamp_ms=timestamp_ms)
        for number, (key, value, timestamp_ms) in enumerate(changes)
    ]


@pytest.mark.promise("stores-are-their-changelogs")
def test_batch_holds_the_last_of_each_key_when_restored(store: KeyValueStore) -> None:
    store.restore_batch(_changelog((b"a", b"1", 5), (b"b", b"2", 6), (b"c", b"3", 7)))
    store.restore_batch(_changelog((b"b", b"4", 8), (b"a", None, 9), (b"d", None, 9)))
    assert store.approximate_count() >= 2
    assert store.get_entry(b"b") == (4, 8)
    assert store.get_entry(b"a") is None
    assert list(store.all()) == [("b", 4), ("c", 3)]
    assert list(store.drain_changes()) == []


def test_batch_replaces_what_the_store_holds_when_restored_again(store: KeyValueStore) -> None:
    store.restore(b"a", b"1", 5)
    store.restore(b"b", b"1", 5)
    store.restore_batch(_changelog((b"a", b"2", 6), (b"b", None, 6)))
    assert list(store.all()) == [("a", 2)]
    assert store.get_entry(b"a") == (2, 6)


def test_restored_entry_is_a_change_when_it_is_put_or_deleted(
    store: KeyValueStore, context: TaskRecordContext
) -> None:
    store.restore_batch(_changelog((b"a", b"1", 5), (b"b", b"2", 5), (b"c", b"3", 5)))
    store.put("b", 7)
    store.delete("c")
    store.put("a", None)
    assert list(store.all()) == [("b", 7)]
    assert list(store.drain_changes()) == [(b"b", b"7", 10), (b"c", None, 10), (b"a", None, 10)]
    assert store.get("b") == 7


def test_batch_names_the_store_when_bytes_are_of_another_format(store: KeyValueStore) -> None:
    with pytest.raises(StateStoreError, match=r"totals.*serdes\.json"):
        store.restore_batch(_changelog((b"a", b"1", 5), (b"b", b"{", 5)))


def test_later_record_shows_the_format_when_only_an_early_one_is_wrong(make: Callable[..., Any]) -> None:
    store = make()
    store.restore_batch(_changelog((b"a", b"{", 5), (b"b", b"1", 5)))
    assert store.get("b") == 1
    with pytest.raises(StateStoreError, match=r"totals.*serdes\.json"):
        store.get("a")
    with pytest.raises(StateStoreError, match=r"totals.*serdes\.json"):
        dict(store.all())


def test_two_iterators_see_their_own_moment_when_open_at_once(store: KeyValueStore) -> None:
    store.put("a", 1)
    store.put("b", 1)
    list(store.drain_changes())
    before = store.all()
    store.put("a", 2)
    between = store.range("a", "c")
    store.put("c", 3)
    list(store.drain_changes())
    store.delete("a")
    assert list(before) == [("a", 1), ("b", 1)]
    assert list(between) == [("a", 2), ("b", 1)]
    assert list(store.all()) == [("b", 1), ("c", 3)]


def test_key_without_bytes_is_a_key_when_it_is_put(store: KeyValueStore) -> None:
    store.put("", 1)
    assert list(store.drain_changes()) == [(b"", b"1", 10)]
    assert list(store.all()) == [("", 1)]
    assert list(store.range("", "")) == [("", 1)]
    assert store.delete("") == 1
    assert list(store.all()) == []
