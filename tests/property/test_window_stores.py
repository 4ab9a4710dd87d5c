from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams import SessionStoreSpec, StoreSpec, Windowed, WindowStoreSpec, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store

WINDOWS = WindowStoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=10)
SESSIONS = SessionStoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=10)
SPECS = [WINDOWS, SESSIONS]

KEYS = st.text(max_size=2)
TIMES = st.integers(0, 30)
#: A put of (key, start, length, value; None deletes), an expiry by stream time, a drain of the changes.
PUTS = st.tuples(KEYS, TIMES, st.integers(0, 5), st.none() | st.integers(0, 5))
STEPS = st.lists(PUTS | TIMES | st.just("drain"), max_size=40)


def _times(spec: StoreSpec, put: Any) -> tuple[int, ...]:
    _, start_ms, length_ms, _ = put
    return (start_ms, start_ms + length_ms) if spec is SESSIONS else (start_ms,)


def _apply(store: Any, context: TaskRecordContext, step: Any) -> None:
    """Do what a step says; the number of the step serves as the timestamp."""
    context.timestamp_ms += 1
    if isinstance(step, int):
        store.expire(step)
    elif step != "drain":
        store.put(step[0], step[3], *_times(store.spec, step))


@pytest.mark.parametrize("spec", SPECS)
@given(steps=STEPS)
def test_store_equals_a_dict_when_used_alike(spec: StoreSpec, steps: list[Any]) -> None:
    context = TaskRecordContext()
    store: Any = make_store(spec, context)
    model: dict[tuple[Any, ...], Any] = {}
    for step in steps:
        _apply(store, context, step)
        if isinstance(step, int):
            last = 1 if spec is WINDOWS else 2
            model = {at: v for at, v in model.items() if at[last] + 10 + (last - 1) > step}
        elif step == "drain":
            list(store.drain_changes())
        else:
            at = (step[0], *_times(spec, step))
            model.pop(at, None)
            if step[3] is not None:
                model[at] = step[3]
            assert store.get(*at) == step[3]
        assert store.approximate_count() == len(model)
        ages = [at[1] + 10 if spec is WINDOWS else at[2] + 11 for at in model]
        assert store.next_expiry_ms() == min(ages, default=None)
    found = [(tuple(at), value) for at, value in store.all()]
    order = (lambda at: (at[1], at[0].encode())) if spec is WINDOWS else _by_end
    assert found == [(at, model[at]) for at in sorted(model, key=order)]


def _by_end(at: tuple[Any, ...]) -> tuple[int, int, bytes]:
    return at[2], at[1], at[0].encode()


@pytest.mark.parametrize("spec", SPECS)
@given(steps=STEPS)
def test_store_equals_the_fold_of_its_changelog_when_restored_at_any_drain(
    spec: StoreSpec, steps: list[Any]
) -> None:
    context = TaskRecordContext()
    store: Any = make_store(spec, context)
    restored: Any = make_store(spec, TaskRecordContext())
    log: dict[bytes, bytes | None] = {}
    for step in [*steps, "drain"]:
        _apply(store, context, step)
        if step != "drain":
            continue
        changes = list(store.drain_changes())
        assert len({key for key, _, _ in changes}) == len(changes)
        for key_bytes, data, timestamp_ms in changes:
            # A tombstone of what the log does not hold says nothing.
            assert data is not None or log.get(key_bytes) is not None
            log[key_bytes] = data
            restored.restore(key_bytes, data, timestamp_ms)
        assert restored.entries() == store.entries()
        assert restored.next_expiry_ms() == store.next_expiry_ms()
    assert list(restored.drain_changes()) == []


@pytest.mark.parametrize("spec", SPECS)
@given(puts=st.lists(PUTS, max_size=30), key=KEYS, low=st.none() | TIMES, high=st.none() | TIMES)
def test_range_equals_a_filter_when_bounds_are_any(
    spec: StoreSpec, puts: list[Any], key: str, low: int | None, high: int | None
) -> None:
    context = TaskRecordContext()
    store: Any = make_store(spec, context)
    for put in puts:
        _apply(store, context, put)
    found = list(store.range(key, low, high))
    inside: list[Any] = []
    for at, value in store.all():
        start_ms, end_ms = (at[1], at[2]) if spec is SESSIONS else (at[1], at[1])
        if at[0] == key and (low is None or end_ms >= low) and (high is None or start_ms <= high):
            inside.append((at if spec is SESSIONS else at[1], value))
    assert found == inside


@given(KEYS, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_changelog_keys_are_windowed_keys_when_serialized(key: str, start_ms: int, end_ms: int) -> None:
    data = key.encode()
    windows: Any = make_store(WINDOWS, TaskRecordContext())
    sessions: Any = make_store(SESSIONS, TaskRecordContext())
    windowed = Windowed(key, start_ms, end_ms)
    hourly = serdes.time_windowed(serdes.string(), 3_600_000)
    start, end = start_ms.to_bytes(8, "big", signed=True), end_ms.to_bytes(8, "big", signed=True)
    assert windows.changelog_key((start_ms, data)) == hourly.serialize(windowed) == data + start
    assert windows.entry_id(data + start) == (start_ms, data)
    assert hourly.deserialize(data + start) == Windowed(key, start_ms, start_ms + 3_600_000)
    session_keys = serdes.session_windowed(serdes.string())
    id_ = (end_ms, start_ms, data)
    assert sessions.changelog_key(id_) == session_keys.serialize(windowed) == data + end + start
    assert sessions.entry_id(data + end + start) == id_
    assert session_keys.deserialize(data + end + start) == windowed
