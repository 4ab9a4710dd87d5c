from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_key_value_store
from airflow_kstreams.streams.state.stores.state_store import KeyValueStore
from tests.support.topology.bound_topology import BoundTopology

pytestmark = pytest.mark.promise("iterators-show-their-moment")

SPEC = StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json())

KEYS = st.text(max_size=2)
VALUES = st.none() | st.integers(min_value=0, max_value=5)
TIMES = st.integers(min_value=0, max_value=100)
#: A put (None deletes), or a drain of the changes.
STEPS = st.lists(st.tuples(KEYS, VALUES, TIMES) | st.just("drain"), max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def _content(store: KeyValueStore) -> dict[bytes, Any]:
    return {key.encode(): store.get_entry(key.encode()) for key, _ in store.all()}


@given(STEPS)
def test_store_equals_a_dict_when_used_alike(steps: list[Any]) -> None:
    context = TaskRecordContext()
    store = make_key_value_store(SPEC, context)
    model: dict[str, Any] = {}
    for step in steps:
        if step == "drain":
            list(store.drain_changes())
            continue
        key, value, context.timestamp_ms = step
        store.put(key, value)
        model.pop(key, None)
        if value is not None:
            model[key] = value
        assert store.get(key) == value
    assert dict(store.all()) == model
    assert [key for key, _ in store.all()] == sorted(model, key=str.encode)
    assert store.approximate_count() == len(model)


@given(STEPS, KEYS, KEYS)
def test_range_equals_a_filter_when_bounds_are_any(steps: list[Any], first: str, last: str) -> None:
    store = make_key_value_store(SPEC, TaskRecordContext())
    for step in steps:
        if step != "drain":
            store.put(step[0], step[1])
    inside = [(k, v) for k, v in store.all() if first.encode() <= k.encode() <= last.encode()]
    assert list(store.range(first, last)) == inside


@given(STEPS)
def test_store_equals_the_fold_of_its_changelog_when_restored_at_any_drain(steps: list[Any]) -> None:
    context = TaskRecordContext()
    store = make_key_value_store(SPEC, context)
    restored = make_key_value_store(SPEC, TaskRecordContext())
    for step in [*steps, "drain"]:
        if step != "drain":
            key, value, context.timestamp_ms = step
            store.put(key, value)
            continue
        changes = list(store.drain_changes())
        assert len({key for key, _, _ in changes}) == len(changes)
        for key_bytes, data, timestamp_ms in changes:
            restored.restore(key_bytes, data, timestamp_ms)
        assert _content(restored) == _content(store)
    assert list(restored.drain_changes()) == []


RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), TIMES) | st.just("flush"), max_size=40
)


@given(RECORDS)
def test_table_equals_a_direct_sum_when_flushed_anywhere(steps: list[Any]) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    sums = builder.stream("in").group_by_key().reduce(lambda old, new: old + new, store="sums")
    sums.to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    expected: dict[str, tuple[int, int]] = {}
    dirty: dict[str, None] = {}
    for step in [*steps, "flush"]:
        if step == "flush":
            bound.flush()
            assert bound.read("out") == [(key, *expected[key]) for key in dirty]
            dirty = {}
            continue
        key, value, time_ms = step
        bound.pipe("in", key, value, timestamp_ms=time_ms)
        total, newest = expected.get(key, (0, 0))
        expected[key] = (total + value, max(newest, time_ms))
        dirty[key] = None


@given(RECORDS)
def test_last_emission_per_key_is_the_same_when_cached_or_not(steps: list[Any]) -> None:
    last: list[dict[str, Any]] = []
    for cached in (True, False):
        spec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        table = (
            builder.stream("in")
            .group_by_key()
            .aggregate(int, lambda key, value, total: None if value == 0 else total + value, store=spec)
        )
        table.to_stream().send_to("out")
        bound = BoundTopology(builder.build())
        for step in steps:
            if step == "flush":
                bound.flush()
            else:
                bound.pipe("in", step[0], step[1], timestamp_ms=step[2])
        bound.flush()
        outputs = {output.key: (output.value, output.timestamp_ms) for output in bound.read("out")}
        # A key that came and went between two flushes was never there for a reader of the cached table.
        last.append({key: output for key, output in outputs.items() if output[0] is not None})
    assert last[0] == last[1]


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary(), JSON)
def test_value_comes_back_when_serialized(text: str, number: int, data: bytes, document: Any) -> None:
    pairs: list[tuple[Any, Any]] = [
        (serdes.string(), text),
        (serdes.int64(), number),
        (serdes.bytes(), data),
        (serdes.json(), document),
    ]
    for serde, value in pairs:
        assert serde.deserialize(serde.serialize(value)) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_int64_is_javas_long_when_written(number: int) -> None:
    assert serdes.int64().serialize(number) == number.to_bytes(8, "big", signed=True)


@given(st.integers(-(2**31), 2**31 - 1))
def test_int32_is_javas_int_when_written(number: int) -> None:
    assert serdes.int32().serialize(number) == number.to_bytes(4, "big", signed=True)
    assert serdes.int32().deserialize(serdes.int32().serialize(number)) == number


@given(st.floats(allow_nan=False))
def test_double_comes_back_bit_by_bit_when_serialized(number: float) -> None:
    back = serdes.double().deserialize(serdes.double().serialize(number))
    assert back.hex() == number.hex()


@given(JSON)
def test_document_comes_back_when_it_travels_as_msgpack(document: Any) -> None:
    assert serdes.msgpack().deserialize(serdes.msgpack().serialize(document)) == document


@given(st.binary(max_size=20).filter(lambda data: len(data) != 8))
def test_int64_refuses_bytes_when_their_number_is_not_8(data: bytes) -> None:
    with pytest.raises(struct.error):
        serdes.int64().deserialize(data)
