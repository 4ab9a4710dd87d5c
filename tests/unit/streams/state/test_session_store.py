from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import SessionStore, SessionStoreSpec, StateStoreError, Windowed, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext


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
