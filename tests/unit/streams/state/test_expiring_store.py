from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    SessionStore,
    SessionStoreSpec,
    StateStoreError,
    Windowed,
    WindowStore,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.held_entries import EntryId
from airflow_kstreams.streams.state.stores.memory.entries_in_memory import EntriesInMemory


@pytest.fixture
def context() -> TaskRecordContext:
    return TaskRecordContext(timestamp_ms=7)


@pytest.fixture
def store(context: TaskRecordContext) -> SessionStore:
    spec = SessionStoreSpec(
        name="visits", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=100
    )
    return SessionStore(spec, context)


def test_get_returns_the_value_of_the_session_when_a_key_has_several(store: SessionStore) -> None:
    store.put("a", 1, 0, 5)
    store.put("a", 2, 0, 6)
    assert (store.get("a", 0, 5), store.get("a", 0, 6), store.get("a", 1, 6)) == (1, 2, None)
    assert store.approximate_count() == 2


def test_put_if_absent_and_delete_tell_what_was_there_when_called(store: SessionStore) -> None:
    assert store.put_if_absent("a", 1, 0, 5) is None
    assert store.put_if_absent("a", 2, 0, 5) == 1
    assert store.delete("a", 0, 5) == 1
    assert store.delete("a", 0, 5) is None


def test_range_gives_sessions_that_reach_into_it_when_they_begin_outside(store: SessionStore) -> None:
    for start_ms, end_ms in ((0, 4), (8, 20), (30, 31)):
        store.put("a", end_ms, start_ms, end_ms)
    store.put("b", 0, 8, 20)
    assert list(store.range("a", 10, 12)) == [(Windowed("a", 8, 20), 20)]
    assert [windowed.start_ms for windowed, _ in store.range("a", 4, 8)] == [0, 8]
    assert [windowed.start_ms for windowed, _ in store.range("a")] == [0, 8, 30]


def test_all_goes_by_end_when_put_in_another_order(store: SessionStore) -> None:
    for key, start_ms, end_ms in (("b", 0, 9), ("a", 1, 9), ("c", 3, 4)):
        store.put(key, 1, start_ms, end_ms)
    assert [windowed for windowed, _ in store.all()] == [
        Windowed("c", 3, 4),
        Windowed("b", 0, 9),
        Windowed("a", 1, 9),
    ]


def test_session_expires_when_stream_time_is_past_its_end_by_more_than_the_retention(
    store: SessionStore,
) -> None:
    store.put("a", 1, 0, 5)
    expired: list[Any] = []
    store.expire(105, lambda *entry: expired.append(entry))
    assert expired == []
    assert store.next_expiry_ms() == 106
    store.expire(106, lambda *entry: expired.append(entry))
    assert expired == [((5, 0, b"a"), (1, 7))]


def test_changelog_key_is_key_end_start_when_drained(store: SessionStore) -> None:
    store.put("a", 1, 1, 258)
    ((key, value, timestamp_ms),) = store.drain_changes()
    assert (key, value, timestamp_ms) == (
        b"a" + bytes.fromhex("0000000000000102 0000000000000001"),
        b"1",
        7,
    )


def test_user_error_is_explained_when_a_session_ends_before_it_starts(store: SessionStore) -> None:
    with pytest.raises(StateStoreError, match="from 6 to 5"):
        store.put("a", 1, 6, 5)
    with pytest.raises(StateStoreError, match="the key None"):
        store.put(None, 1, 5, 6)


@pytest.fixture
def windows(context: TaskRecordContext) -> WindowStore:
    return _store(context)


def _store(context: TaskRecordContext, **options: Any) -> WindowStore:
    spec = WindowStoreSpec(
        name="totals", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=100, **options
    )
    return WindowStore(spec, context)


def _expired(windows: WindowStore, stream_time_ms: int) -> list[Any]:
    expired: list[Any] = []
    windows.expire(stream_time_ms, lambda *entry: expired.append(entry))
    return expired


def test_get_returns_the_value_of_the_window_when_a_key_has_several(windows: WindowStore) -> None:
    windows.put("a", 1, 0)
    windows.put("a", 2, 10)
    assert (
        windows.get("a", 0),
        windows.get("a", 10),
        windows.get("a", 20),
        windows.get("b", 0),
    ) == (
        1,
        2,
        None,
        None,
    )
    assert windows.approximate_count() == 2


def test_put_deletes_when_the_value_is_none(windows: WindowStore) -> None:
    windows.put("a", 1, 0)
    windows.put("a", None, 0)
    assert (windows.get("a", 0), windows.approximate_count()) == (None, 0)


def test_put_if_absent_keeps_the_value_when_there_is_one(windows: WindowStore) -> None:
    assert windows.put_if_absent("a", 1, 0) is None
    assert windows.put_if_absent("a", 2, 0) == 1
    assert windows.put_if_absent("a", 3, 10) is None
    assert windows.get("a", 0) == 1


def test_delete_returns_the_old_value_when_there_was_one(windows: WindowStore) -> None:
    windows.put("a", 1, 0)
    assert windows.delete("a", 0) == 1
    assert windows.delete("a", 0) is None


def test_range_gives_a_keys_windows_in_order_when_they_start_in_between(windows: WindowStore) -> None:
    for key, start_ms in (("a", 30), ("a", 10), ("b", 20), ("a", 20), ("a", 0)):
        windows.put(key, start_ms * 2, start_ms)
    assert list(windows.range("a", 10, 20)) == [(10, 20), (20, 40)]
    assert list(windows.range("a", None, 10)) == [(0, 0), (10, 20)]
    assert list(windows.range("a")) == [(0, 0), (10, 20), (20, 40), (30, 60)]
    assert list(windows.range("c")) == []


def test_all_goes_by_start_then_key_when_put_in_another_order(windows: WindowStore) -> None:
    for key, start_ms in (("b", 10), ("a", 10), ("c", 0)):
        windows.put(key, 1, start_ms)
    assert [at for at, _ in windows.all()] == [("c", 0), ("a", 10), ("b", 10)]


def test_iteration_shows_the_store_as_it_was_when_it_changes_meanwhile(windows: WindowStore) -> None:
    for start_ms in (0, 10):
        windows.put("a", start_ms, start_ms)
    everything, some = windows.all(), windows.range("a")
    windows.expire(1_000)
    windows.put("a", 5, 5)
    assert [value for _, value in everything] == [0, 10]
    assert list(some) == [(0, 0), (10, 10)]


def test_entries_expire_oldest_first_when_stream_time_reaches_their_retention(
    windows: WindowStore,
) -> None:
    for key, start_ms in (("b", 10), ("a", 10), ("c", 0), ("d", 20)):
        windows.put(key, key, start_ms)
    assert windows.next_expiry_ms() == 100
    assert _expired(windows, 99) == []
    assert _expired(windows, 110) == [
        ((0, b"c"), ("c", 7)),
        ((10, b"a"), ("a", 7)),
        ((10, b"b"), ("b", 7)),
    ]
    assert [at for at, _ in windows.all()] == [("d", 20)]
    assert windows.next_expiry_ms() == 120
    windows.expire(120)
    assert windows.next_expiry_ms() is None


def test_expired_entries_leave_tombstones_when_their_change_was_drained(
    windows: WindowStore, context: TaskRecordContext
) -> None:
    windows.put("a", 1, 0)
    list(windows.drain_changes())
    windows.put("b", 2, 0)
    context.timestamp_ms = 150
    windows.expire(150)
    assert list(windows.drain_changes()) == [(b"a" + bytes(8), None, 150)]


def test_changes_come_once_in_order_of_first_change_when_drained(
    windows: WindowStore, context: TaskRecordContext
) -> None:
    windows.put("b", 1, 258)
    windows.put("a", 1, 0)
    context.timestamp_ms = 9
    windows.put("b", 2, 258)
    assert list(windows.drain_changes()) == [
        (b"b" + bytes.fromhex("0000000000000102"), b"2", 9),
        (b"a" + bytes(8), b"1", 7),
    ]
    assert list(windows.drain_changes()) == []


def test_tombstone_is_logged_when_an_entry_came_back_and_went_again(windows: WindowStore) -> None:
    windows.put("a", 1, 0)
    list(windows.drain_changes())
    for value in (None, 2, None):
        windows.put("a", value, 0)
    assert list(windows.drain_changes()) == [(b"a" + bytes(8), None, 7)]


def test_nothing_is_logged_when_the_store_is_not_logged(context: TaskRecordContext) -> None:
    windows = _store(context, logged=False)
    windows.put("a", 1, 0)
    windows.put("b", 1, 0)
    windows.delete("b", 0)
    assert windows.get("a", 0) == 1
    assert [entry_id for entry_id, _ in _expired(windows, 100)] == [(0, b"a")]
    assert list(windows.drain_changes()) == []


def test_deleted_ids_are_swept_when_they_outnumber_the_entries(windows: WindowStore) -> None:
    for start_ms in range(5_000):
        windows.put("a", 1, start_ms)
        windows.put("a", None, start_ms)
    windows.put("a", 1, 3)
    assert isinstance(windows.held, EntriesInMemory)
    assert windows.held._aged <= 1_003
    assert windows.next_expiry_ms() == 103


def test_user_error_is_explained_when_key_or_start_cannot_be(windows: WindowStore) -> None:
    with pytest.raises(StateStoreError, match="the key None"):
        windows.get(None, 0)
    with pytest.raises(StateStoreError, match="'noon' as a time"):
        windows.put("a", 1, "noon")  # type: ignore[arg-type]
    with pytest.raises(StateStoreError, match="as a time"):
        windows.put("a", 1, 2**63)


def test_error_names_the_store_when_a_value_does_not_fit(windows: WindowStore) -> None:
    windows.put("a", object(), 0)
    with pytest.raises(StateStoreError, match=r"'totals'.*does not fit"):
        list(windows.drain_changes())


def test_error_names_the_store_when_a_changelog_record_is_foreign(windows: WindowStore) -> None:
    with pytest.raises(StateStoreError, match=r"'totals'.*changelog record"):
        windows.restore(b"short", b"1", 0)
    with pytest.raises(StateStoreError, match=r"'totals'.*changelog record"):
        windows.restore(b"a" + bytes(8), b"{", 0)


def test_all_leave_oldest_first_when_ids_are_swept_while_entries_leave(windows: WindowStore) -> None:
    for start_ms in (0, 1):
        for key in "cab":
            windows.put(key, 1, start_ms)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        for start_ms in range(2_000, 4_000):  # what takes an entry leaves many stale ids behind
            windows.put("d", 1, start_ms)
            windows.put("d", None, start_ms)

    windows.expire(101, leave)
    assert left == [(start_ms, key) for start_ms in (0, 1) for key in (b"a", b"b", b"c")]
    assert windows.next_expiry_ms() is None


def test_none_is_lost_when_taking_an_entry_fails(windows: WindowStore) -> None:
    for key in "cab":
        windows.put(key, 1, 0)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        if entry_id[-1] == b"b":
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        windows.expire(100, leave)
    assert windows.next_expiry_ms() == 100
    windows.expire(100, leave)
    assert [key for _, key in left] == [b"a", b"b", b"c"]


def test_older_ones_leave_first_when_taking_an_entry_puts_them(windows: WindowStore) -> None:
    for key in "ab":
        windows.put(key, 1, 5)
    left: list[EntryId] = []

    def leave(entry_id: EntryId, _: object) -> None:
        left.append(entry_id)
        if entry_id == (5, b"a"):
            windows.put("z", 1, 4)

    windows.expire(105, leave)
    assert left == [(5, b"a"), (4, b"z"), (5, b"b")]
