"""Key-value stores of every storage against a plain dict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import StoreSpec, serdes
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.state_store import PersistentStore
from tests.support.examples import examples
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("stores-are-their-changelogs")

SPEC = StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json())

MAKERS: dict[str, Callable[[TaskRecordContext], Any]] = {
    "memory": lambda context: InMemoryKeyValueStore(SPEC, context),
    "rocksdb": lambda context: RocksDBKeyValueStore(SPEC, context),
    "rocksdb keeping 2": lambda context: RocksDBKeyValueStore(SPEC, context, kept_entries=2),
}
storages = pytest.mark.parametrize("storage", MAKERS)
few = settings(max_examples=examples(40), deadline=None)

KEYS = st.sampled_from(["", "a", "aa", "b", "c", "ä"])
VALUES = st.none() | st.integers(0, 5)
BOUNDS = st.none() | KEYS
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "put_if_absent"]), KEYS, VALUES, st.integers(0, 100)),
        st.tuples(st.just("delete"), KEYS, st.none(), st.integers(0, 100)),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("drain")),
        st.tuples(st.just("iterate"), BOUNDS, BOUNDS),
        st.tuples(st.just("advance"), st.integers(0, 3)),
    ),
    max_size=40,
)


@dataclass
class Model:
    """A store as a dict of (value, timestamp), and the log of what was drained."""

    entries: dict[str, tuple[Any, int]] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    iterators: list[tuple[Iterator[Any], list[Any]]] = field(default_factory=list)

    def put(self, key: str, value: Any, now: int) -> None:
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = (value, now)

    def between(self, low: str | None, high: str | None) -> list[tuple[str, Any]]:
        return [
            (key, self.entries[key][0])
            for key in sorted(self.entries, key=str.encode)
            if (low is None or low.encode() <= key.encode())
            and (high is None or key.encode() <= high.encode())
        ]

    def folded(self) -> dict[bytes, tuple[bytes, int]]:
        """What a reader of the changelog holds."""
        last = {key: (data, timestamp_ms) for key, data, timestamp_ms in self.log}
        return {key: (data, at) for key, (data, at) in last.items() if data is not None}

    def serialized(self) -> dict[bytes, tuple[bytes, int]]:
        return {key.encode(): (str(value).encode(), at) for key, (value, at) in self.entries.items()}


def play(store: Any, context: TaskRecordContext, model: Model, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", key, value, now):
            context.timestamp_ms = now
            store.put(key, value)
            model.put(key, value, now)
        case ("put_if_absent", key, value, now):
            context.timestamp_ms = now
            found = model.entries.get(key, (None,))[0]
            assert store.put_if_absent(key, value) == found
            if found is None:
                model.put(key, value, now)
        case ("delete", key, _, now):
            context.timestamp_ms = now
            assert store.delete(key) == model.entries.pop(key, (None,))[0]
        case ("get", key):
            assert store.get(key) == model.entries.get(key, (None,))[0]
        case ("drain",):
            changes = list(store.drain_changes())
            assert len({key for key, _, _ in changes}) == len(changes)
            model.log += changes
            assert model.folded() == model.serialized()
        case ("iterate", low, high):
            model.iterators.append((store.range(low, high), model.between(low, high)))
        case ("advance", count):
            for iterator, expected in model.iterators:
                for _ in range(min(count, len(expected))):
                    assert next(iterator) == expected.pop(0)


@storages
@few
@given(steps=STEPS)
def test_store_equals_a_dict_when_used_alike(storage: str, steps: list[tuple[Any, ...]]) -> None:
    context = TaskRecordContext()
    store = MAKERS[storage](context)
    model = Model()
    with closing(store) if isinstance(store, PersistentStore) else nullcontext():
        for step in [*steps, ("drain",), ("iterate", None, None)]:
            play(store, context, model, step)
        for iterator, expected in model.iterators:
            assert list(iterator) == expected, "an iterator sees the content at its creation"
        if storage == "memory":
            assert store.approximate_count() == len(model.entries)


@storages
@few
@given(steps=STEPS, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_restored_store_goes_on_like_the_one_that_was_lost_when_replayed_in_any_batches(
    storage: str, steps: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    context = TaskRecordContext()
    lost, model = InMemoryKeyValueStore(SPEC, context), Model()
    for step in [*steps, ("drain",)]:
        play(lost, context, model, step)
    store = MAKERS[storage](context)
    log = [
        FakeRecord(at=number, key_bytes=key, value_bytes=data, timestamp_ms=at)
        for number, (key, data, at) in enumerate(model.log)
    ]
    model.iterators.clear()
    with closing(store) if isinstance(store, PersistentStore) else nullcontext():
        edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
        for start, end in itertools.pairwise(edges):
            store.restore_batch(log[start:end])
        assert list(store.drain_changes()) == []
        for key, entry in model.entries.items():
            assert store.get_entry(key.encode()) == entry
        assert list(store.all()) == model.between(None, None)
        for step in [*steps, ("drain",)]:
            play(store, context, model, step)
        for iterator, expected in model.iterators:
            assert list(iterator) == expected
