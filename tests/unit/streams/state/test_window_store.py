from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import StateStoreError, WindowStore, WindowStoreSpec, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.held_entries import EntryId
from airflow_kstreams.streams.state.stores.memory.entries_in_memory import EntriesInMemory


@pytest.fixture
def context() -> TaskRecordContext:
    return TaskRecordContext(timestamp_ms=7)


@pytest.fixture
def store(context: TaskRecordContext) -> WindowStore:
    return _store(context)


def _store(context: TaskRecordContext, **options: Any) -> WindowStore:
    spec = WindowStoreSpec(
        name="totals", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=100, **options
    )
    return WindowStore(spec, context)


def _expired(store: WindowStore, stream_time_ms: int) -> list[Any]:
    expired: list[Any] = []
    store.expire(stream_time_ms, lambda *entry: expired.append(entry))
    return expired


def test_get_returns_the_value_of_the_window_when_a_key_has_several(store: WindowStore) -> None:
    store.put("a", 1, 0)
    store.put("a", 2, 10)
    assert (store.get("a", 0), store.get("a", 10), store.get("a", 20), store.get("b", 0)) == (
        1,
        2,
        None,
        None,
    )
    assert store.approximate_count() == 2


def test_put_deletes_when_the_value_is_none(store: WindowStore) -> None:
    store.put("a", 1, 0)
    store.put("a", None, 0)
    assert (store.get("a", 0), store.approximate_count()) == (None, 0)


def test_put_if_absent_keeps_the_value_when_there_is_one(store: WindowStore) -> None:
    assert store.put_if_absent("a", 1, 0) is None
    assert store.put_if_absent("a", 2, 0) == 1
    assert store.put_if_absent("a", 3, 10) is None
    assert store.get("a", 0) == 1


def test_delete_returns_the_old_value_when_there_was_one(store: WindowStore) -> None:
    store.put("a", 1, 0)
    assert store.delete("a", 0) == 1
    assert store.delete("a", 0) is None


def test_range_gives_a_keys_windows_in_order_when_they_start_in_between(store: WindowStore) -> None:
    for key, start_ms in (("a", 30), ("a", 10), ("b", 20), ("a", 20), ("a", 0)):
        store.put(key, start_ms * 2, start_ms)
    assert list(store.range("a", 10, 20)) == [(10, 20), (20, 40)]
    assert list(store.range("a", None, 10)) == [(0, 0), (10, 20)]
    assert list(store.range("a")) == [(0, 0), (10, 20), (20, 40), (30, 60)]
    assert list(store.range("c")) == []


def test_all_goes_by_start_then_key_when_put_in_another_order(store: WindowStore) -> None:
    for key, start_ms in (("b", 10), ("a", 10), ("c", 0)):
        store.put(key, 1, start_ms)
    assert [at for at, _ in store.all()] == [("c", 0), ("a", 10), ("b", 10)]


def test_iteration_shows_the_store_as_it_was_when_it_changes_meanwhile(store: WindowStore) -> None:
    for start_ms in (0, 10):
        store.put("a", start_ms, start_ms)
    everything, some = store.all(), store.range("a")
    store.expire(1_000)
    store.put("a", 5, 5)
    assert [value for _, value in everything] == [0, 10]
    assert list(some) == [(0, 0), (10, 10)]


def test_entries_expire_oldest_first_when_stream_time_reaches_their_retention(store: WindowStore) -> None:
    for key, start_ms in (("b", 10), ("a", 10), ("c", 0), ("d", 20)):
        store.put(key, key, start_ms)
    assert store.next_expiry_ms() == 100
    assert _expired(store, 99) == []
    assert _expired(store, 110) == [((0, b"c"), ("c", 7)), ((10, b"a"), ("a", 7)), ((10, b"b"), ("b", 7))]
    assert [at for at, _ in store.all()] == [("d", 20)]
    assert store.next_expiry_ms() == 120
    store.expire(120)
    assert store.next_expiry_ms() is None


def test_expired_entries_leave_tombstones_when_their_change_was_drained(
    store: WindowStore, context: TaskRecordContext
) -> None:
    store.put("a", 1, 0)
    list(store.drain_changes())
    store.put("b", 2, 0)
    context.timestamp_ms = 150
    store.expire(150)
    assert list(store.drain_changes()) == [(b"a" + bytes(8), None, 150)]


def test_changes_come_once_in_order_of_first_change_when_drained(
    store: WindowStore, context: TaskRecordContext
) -> None:
    store.put("b", 1, 258)
    store.put("a", 1, 0)
    context.timestamp_ms = 9
    store.put("b", 2, 258)
    assert list(store.drain_changes()) == [
        (b"b" + bytes.fromhex("0000000000000102"), b"2", 9),
        (b"a" + bytes(8), b"1", 7),
    ]
    assert list(store.drain_changes()) == []


def test_tombstone_is_logged_when_an_entry_came_back_and_went_again(store: WindowStore) -> None:
    store.put("a", 1, 0)
    list(store.drain_changes())
    for value in (None, 2, None):
        store.put("a", value, 0)
    assert list(store.drain_changes()) == [(b"a" + bytes(8), None, 7)]


def test_nothing_is_logged_when_the_store_is_not_logged(context: TaskRecordContext) -> None:
    store = _store(context, logged=False)
    store.put("a", 1, 0)
    store.put("b", 1, 0)
    store.delete("b", 0)
    assert store.get("a", 0) == 1
    assert [entry_id for entry_id, _ in _expired(store, 100)] == [(0, b"a")]
    assert list(store.drain_changes()) == []


def test_deleted_ids_are_swept_when_they_outnumber_the_entries(store: WindowStore) -> None:
    for start_ms in range(5_000):
        store.put("a", 1, start_ms)
        store.put("a", None, start_ms)
    store.put("a", 1, 3)
    assert isinstance(store.held, EntriesInMemory)
    assert store.held._aged <= 1_003
    assert store.next_expiry_ms() == 103


def test_user_error_is_explained_when_key_or_start_cannot_be(store: WindowStore) -> None:
    with pytest.raises(StateStoreError, match="the key None"):
        store.get(None, 0)
    with pytest.raises(StateStoreError, match="'noon' as a time"):
        store.put("a", 1, "noon")  # type: ignore[arg-type]
    with pytest.raises(StateStoreError, match="as a time"):
        store.put("a", 1, 2**63)


def test_error_names_the_store_when_a_value_does_not_fit(store: WindowStore) -> None:
    store.put("a", object(), 0)
    with pytest.raises(StateStoreError, match=r"'totals'.*does not fit"):
        list(store.drain_changes())


def test_error_names_the_store_when_a_changelog_record_is_foreign(store: WindowStore) -> None:
    with pytest.raises(StateStoreError, match=r"'totals'.*changelog record"):
        store.restore(b"short", b"1", 0)
    with pytest.raises(StateStoreError, match=r"'totals'.*changelog record"):
        store.restore(b"a" + bytes(8), b"{", 0)


def test_all_leave_oldest_first_when_ids_are_swept_while_entries_leave(store: WindowStore) -> None:
    for start_ms in (0, 1):
        for key in "cab":
            store.put(key, 1, start_ms)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        for start_ms in range(2_000, 4_000):  # what takes an entry leaves many stale ids behind
            store.put("d", 1, start_ms)
            store.put("d", None, start_ms)

    store.expire(101, leave)
    assert left == [(start_ms, key) for start_ms in (0, 1) for key in (b"a", b"b", b"c")]
    assert store.next_expiry_ms() is None


def test_none_is_lost_when_taking_an_entry_fails(store: WindowStore) -> None:
    for key in "cab":
        store.put(key, 1, 0)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        if entry_id[-1] == b"b":
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.expire(100, leave)
    assert store.next_expiry_ms() == 100
    store.expire(100, leave)
    assert [key for _, key in left] == [b"a", b"b", b"c"]


def test_older_ones_leave_first_when_taking_an_entry_puts_them(store: WindowStore) -> None:
    for key in "ab":
        store.put(key, 1, 5)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        if entry_id == (5, b"a"):
            store.put("z", 1, 4)

    store.expire(105, leave)
    assert left == [(5, b"a"), (4, b"z"), (5, b"b")]
