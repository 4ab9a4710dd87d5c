from __future__ import annotations

import struct
from typing import Any

import pytest

from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from airflow_kstreams.streams.state.stores.making import make_store

FAR_MS = 2**62


class Clock:
    """The stream time of a join, and the wake-ups its store asked for."""

    def __init__(self) -> None:
        self.now_ms = -1
        self.woken: list[int] = []

    def follow(self, store: JoinStore) -> JoinStore:
        store.follow(lambda: self.now_ms, lambda: self.now_ms, self.woken.append)
        return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> JoinStore:
    return clock.follow(_store())


def _store(*, retention_ms: int = 10_000, logged: bool = True) -> JoinStore:
    spec = JoinStoreSpec(
        name="j-left",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        retention_ms=retention_ms,
        logged=logged,
    )
    store: Any = make_store(spec, TaskRecordContext())
    assert isinstance(store, JoinStore)
    return store


def _key(key: bytes, time_ms: int, number: int) -> bytes:
    return key + time_ms.to_bytes(8, "big", signed=True) + number.to_bytes(8, "big")


def _found(store: JoinStore, key: bytes, first_ms: int, last_ms: int) -> list[Any]:
    return [value for _, _, value in store.find(key, first_ms, last_ms)]


def test_elements_are_found_by_time_then_arrival_when_put_in_another_order(store: JoinStore) -> None:
    for value, time_ms in (("c1", 30), ("a", 10), ("b1", 20), ("c2", 30), ("b2", 20), ("d", 40)):
        store.put(b"k", time_ms, value, False)
    store.put(b"other", 20, "x", False)
    assert _found(store, b"k", 0, 100) == ["a", "b1", "b2", "c1", "c2", "d"]
    assert _found(store, b"k", 20, 30) == ["b1", "b2", "c1", "c2"]
    assert _found(store, b"k", 21, 29) == []
    assert _found(store, b"k", 30, 29) == []
    assert _found(store, b"k", 41, 99) == []
    assert _found(store, b"k", 0, 9) == []
    assert _found(store, b"absent", 0, 100) == []


def test_element_is_not_read_when_it_is_beyond_retention_but_still_in_memory(
    store: JoinStore, clock: Clock
) -> None:
    store.put(b"k", 100, "old", False)
    store.put(b"k", 101, "kept", False)
    clock.now_ms = 10_100
    assert store.get("k") == [(100, "old"), (101, "kept")]
    clock.now_ms = 10_101
    assert store.approximate_count() == 2
    assert store.get("k") == [(101, "kept")]
    assert list(store.all()) == [("k", [(101, "kept")])]
    clock.now_ms = 10_102
    assert list(store.all()) == []


def test_reads_give_lists_by_serialized_key_when_several_keys_have_elements(store: JoinStore) -> None:
    for at, key in enumerate((b"c", b"a", b"b", b"a")):
        store.put(key, 10 - at, at, False)
    assert store.get("a") == [(7, 3), (9, 1)]
    assert store.get("absent") == []
    assert [key for key, _ in store.all()] == ["a", "b", "c"]
    assert list(store.range("b", None)) == [("b", [(8, 2)]), ("c", [(10, 0)])]
    assert [key for key, _ in store.range("a", "b")] == ["a", "b"]
    assert store.approximate_count() == 4
    rows = store.all()
    store.put(b"d", 0, 4, False)
    assert len(list(rows)) == 3


def test_key_none_is_refused_when_read(store: JoinStore) -> None:
    with pytest.raises(StateStoreError, match="j-left"):
        store.get(None)


def test_changes_have_the_documented_bytes_when_drained(store: JoinStore) -> None:
    store.put(b"k", 258, {"n": 1}, False)
    store.put(b"k", -1, 2, True)
    store.put(b"\xff\x00", 3, 3, False)
    assert list(store.drain_changes()) == [
        (b"k" + bytes([0, 0, 0, 0, 0, 0, 1, 2]) + bytes(8), b'\x00{"n":1}', 258),
        (b"k" + b"\xff" * 8 + bytes([0] * 7 + [1]), b"\x012", -1),
        (b"\xff\x00" + struct.pack(">qQ", 3, 2), b"\x003", 3),
    ]
    assert list(store.drain_changes()) == []


def test_element_is_logged_again_when_it_found_its_partner(store: JoinStore) -> None:
    store.put(b"k", 1, "a", True)
    store.put(b"k", 2, "b", True)
    list(store.drain_changes())
    store.match(b"k", store.find(b"k", 2, 2))
    assert list(store.drain_changes()) == [(_key(b"k", 2, 1), b'\x00"b"', 2)]
    store.match(b"k", store.find(b"k", 2, 2))
    assert list(store.drain_changes()) == []
    assert store.release(FAR_MS) == [(b"k", (1, 0, "a"))]
    assert list(store.drain_changes()) == [(_key(b"k", 1, 0), b'\x00"a"', 1)]


def test_waiting_elements_are_released_by_time_when_their_moment_has_come(
    store: JoinStore, clock: Clock
) -> None:
    assert store.first_waiting_ms() is None
    for value, time_ms in (("c", 30), ("a", 10), ("b", 20), ("a2", 10)):
        store.put(b"k", time_ms, value, True)
    store.put(b"k", 5, "no", False)
    assert clock.woken == [30, 10]
    assert store.first_waiting_ms() == 10
    store.match(b"k", store.find(b"k", 20, 20))
    assert [element[2] for _, element in store.release(10)] == []
    assert [element[2] for _, element in store.release(30)] == ["a", "a2"]
    assert store.first_waiting_ms() == 30
    store.match(b"k", store.find(b"k", 30, 30))
    assert store.first_waiting_ms() is None
    assert _found(store, b"k", 0, 100) == ["no", "a", "a2", "b", "c"]


def test_elements_are_removed_a_period_at_a_time_in_order_when_stream_time_has_passed(
    store: JoinStore,
) -> None:
    # Periods of 10_000 // 8 = 1_250 ms: the first ends before 1_250, and is kept up to 11_250.
    for value, (key, time_ms) in enumerate(
        [(b"b", 1_249), (b"a", 7), (b"b", 7), (b"a", 1_250), (b"c", 0), (b"b", 2_500)]
    ):
        store.put(key, time_ms, value, False)
    list(store.drain_changes())
    store.remove_expired(11_249)
    assert store.approximate_count() == 6
    store.remove_expired(11_250)
    assert store.approximate_count() == 2
    tombstones = [(b"c", 0, 4), (b"a", 7, 1), (b"b", 7, 2), (b"b", 1_249, 0)]
    assert list(store.drain_changes()) == [(_key(*place), None, place[1]) for place in tombstones]
    assert [list(rows) for rows in (store.all(),)] == [[("a", [(1_250, 3)]), ("b", [(2_500, 5)])]]
    store.remove_expired(FAR_MS)
    assert store.approximate_count() == 0
    assert [key for key, _, _ in store.drain_changes()] == [_key(b"a", 1_250, 3), _key(b"b", 2_500, 5)]


def test_nothing_is_logged_when_an_element_came_and_went_between_two_drains(store: JoinStore) -> None:
    store.put(b"k", 0, "before", False)
    list(store.drain_changes())
    store.put(b"k", 0, "between", False)
    store.remove_expired(FAR_MS)
    assert list(store.drain_changes()) == [(_key(b"k", 0, 0), None, 0)]


def test_periods_last_a_second_at_least_when_retention_is_short(store: JoinStore) -> None:
    assert _store(retention_ms=10).period_ms == 1_000
    assert store.period_ms == 1_250


def test_changes_are_not_collected_when_the_store_is_not_logged(clock: Clock) -> None:
    store = clock.follow(_store(logged=False))
    store.put(b"k", 1, "a", True)
    store.put(b"k", 1, "b", True)
    store.match(b"k", store.find(b"k", 1, 1)[:1])
    assert store.release(FAR_MS) == [(b"k", (1, 1, "b"))]
    store.remove_expired(FAR_MS)
    assert list(store.drain_changes()) == []
    assert store.approximate_count() == 0


def test_restored_elements_stand_in_their_order_and_are_no_changes(store: JoinStore) -> None:
    records = [
        (_key(b"k", 20, 3), b'\x00"c"'),
        (_key(b"k", 10, 7), b'\x01"b"'),
        (_key(b"k", 10, 2), b'\x01"a"'),
        (_key(b"k", 30, 4), b'\x01"gone"'),
        (_key(b"k", 10, 2), b'\x00"a"'),
        (_key(b"k", 30, 4), None),
        (_key(b"x", 1, 9), b'\x00"x"'),
        (_key(b"x", 1, 9), None),
        (_key(b"y", 1, 11), None),
    ]
    for key, value in records:
        store.restore(key, value, 0)
    assert list(store.all()) == [("k", [(10, "a"), (10, "b"), (20, "c")])]
    assert list(store.drain_changes()) == []
    assert store.first_waiting_ms() == 10
    # The next arrival comes behind all of them, those removed included.
    store.put(b"k", 10, "d", False)
    assert _found(store, b"k", 10, 10) == ["a", "b", "d"]
    assert [key for key, _, _ in store.drain_changes()] == [_key(b"k", 10, 12)]
    assert store.release(FAR_MS) == [(b"k", (10, 7, "b"))]
    list(store.drain_changes())
    store.remove_expired(FAR_MS)
    assert [(key, value) for key, value, _ in store.drain_changes()] == [
        (_key(b"k", 10, 2), None),
        (_key(b"k", 10, 7), None),
        (_key(b"k", 10, 12), None),
        (_key(b"k", 20, 3), None),
    ]


def test_drain_names_the_store_when_a_value_does_not_fit(store: JoinStore) -> None:
    store.put(b"k", 1, object(), False)
    with pytest.raises(StateStoreError, match=r"j-left.*serdes\.json"):
        list(store.drain_changes())


@pytest.mark.parametrize(
    ("key", "value"), [(_key(b"k", 1, 1), b"\x00{"), (b"short", b"\x001"), (_key(b"k", 1, 1), b"")]
)
def test_restore_names_the_store_when_bytes_are_of_another_format(
    store: JoinStore, key: bytes, value: bytes
) -> None:
    with pytest.raises(StateStoreError, match=r"j-left.*serdes\.json"):
        store.restore(key, value, 5)
