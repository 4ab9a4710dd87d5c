"""The versioned store, and what is joined with it, against a search of everything that was put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, VersionedRecord, VersionedStoreSpec, serdes
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.examples import examples
from tests.support.topology.bound_topology import BoundTopology

pytestmark = pytest.mark.promise("streams-meet-the-version-of-their-time")

HISTORY_MS = 10
KEYS = ["a", "b"]
TIMES = st.integers(0, 40)


class Put(NamedTuple):
    key: str
    value: int | None
    time_ms: int


PUTS = st.builds(Put, st.sampled_from(KEYS), st.none() | st.integers(0, 9), TIMES)
#: A put, a drain of the changes, or a restart: a store restored from the changelog takes over.
STEPS = st.lists(PUTS | st.sampled_from(["drain", "restart"]), max_size=40)


class Oracle:
    """Remembers every put that was taken, and searches them."""

    def __init__(self, history_ms: int = HISTORY_MS) -> None:
        self.history_ms = history_ms
        self.taken: list[Put] = []
        self.time_ms = -1

    def put(self, put: Put) -> bool:
        if put.time_ms < self.time_ms - self.history_ms:
            return False
        self.time_ms = max(self.time_ms, put.time_ms)
        self.taken.append(put)
        return True

    def times(self, key: str) -> list[int]:
        return sorted({put.time_ms for put in self.taken if put.key == key})

    def latest(self, key: str) -> VersionedRecord[int] | None:
        times = self.times(key)
        return self._of(key, times[-1]) if times else None

    def as_of(self, key: str, time_ms: int) -> VersionedRecord[int] | None:
        before = [each for each in self.times(key) if each <= time_ms]
        if not before or (time_ms < self.time_ms - self.history_ms and before[-1] != self.times(key)[-1]):
            return None
        return self._of(key, before[-1])

    def _of(self, key: str, time_ms: int) -> VersionedRecord[int] | None:
        value = [put.value for put in self.taken if (put.key, put.time_ms) == (key, time_ms)][-1]
        later = [each for each in self.times(key) if each > time_ms]
        return None if value is None else VersionedRecord(value, time_ms, later[0] if later else None)


def _spec(storage: Storage = "memory", history_ms: int = HISTORY_MS) -> VersionedStoreSpec[str, int]:
    return VersionedStoreSpec(
        name="v",
        key_serde=serdes.string(),
        value_serde=serdes.int64(),
        history_ms=history_ms,
        storage=storage,
    )


def _drain(store: Any, log: dict[bytes, tuple[bytes, int]]) -> None:
    for key, data, time_ms in store.drain_changes():
        if data is None:
            assert key in log, "a tombstone of what the changelog does not hold"
            del log[key]
        else:
            log[key] = (data, time_ms)


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@settings(deadline=None, max_examples=examples(30))
@given(steps=STEPS, history=st.sampled_from([(0, 1), (1, 1), (HISTORY_MS, 1), (1_000, 100)]))
def test_store_answers_like_a_search_of_all_puts_when_they_come_in_any_order_with_restarts(
    storage: Storage, steps: list[Any], history: tuple[int, int]
) -> None:
    # Of a long history, versions leave some time after they are out of reach.
    history_ms, unit_ms = history
    spec, oracle = _spec(storage, history_ms), Oracle(history_ms)
    store: Any = make_store(spec, TaskRecordContext())
    log: dict[bytes, tuple[bytes, int]] = {}
    for step in steps:
        if isinstance(step, Put):
            put = step._replace(time_ms=step.time_ms * unit_ms)
            assert store.put(*put) == oracle.put(put)
        else:
            _drain(store, log)
        if step == "restart":
            store = make_store(spec, TaskRecordContext())
            # Compacted: the last record of each key, and in any order, as expansions bring them.
            for changelog_key, (data, time_ms) in sorted(log.items()):
                # Kafka's client writes the time 0 as 1.
                store.restore(changelog_key, data, max(1, time_ms))
            assert list(store.drain_changes()) == []
        for key in KEYS:
            assert store.get(key) == oracle.latest(key)
            for number in range(-1, 42, 1 if storage == "memory" else 4):
                time_ms = number * unit_ms
                assert store.get(key, time_ms) == oracle.as_of(key, time_ms), (key, time_ms)
    for _, version in store.all():
        assert version.valid_to_ms is None or version.valid_to_ms >= oracle.time_ms - history_ms * 65 / 64
    if hasattr(store, "close"):
        store.close()


@given(puts=st.lists(PUTS, max_size=30), key=st.sampled_from(KEYS), time_ms=TIMES)
def test_delete_returns_the_version_of_its_time_and_ends_it(puts: list[Put], key: str, time_ms: int) -> None:
    store: Any = make_store(_spec(), TaskRecordContext())
    oracle = Oracle()
    for put in puts:
        store.put(*put)
        oracle.put(put)
    before, in_time = oracle.as_of(key, time_ms), time_ms >= oracle.time_ms - HISTORY_MS
    assert store.delete(key, time_ms) == (before if in_time else None)
    oracle.put(Put(key, None, time_ms))
    assert store.get(key) == oracle.latest(key)
    assert store.get(key, time_ms) == oracle.as_of(key, time_ms)


#: (topic, key, value, time): of the table, or of the stream.
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["t", "s"]),
        st.sampled_from([*KEYS, None]),
        st.none() | st.integers(0, 9),
        TIMES,
    ),
    max_size=40,
)


def _joins(storage: Storage) -> KStreamBuilder[str, Any]:
    builder: KStreamBuilder[str, Any] = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.json()
    )
    spec: Any = VersionedStoreSpec(
        name="v",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        history_ms=HISTORY_MS,
        storage=storage,
    )
    table, stream = builder.table("t", store=spec), builder.stream("s")
    stream.join(table, _pair).send_to("inner")
    stream.left_join(table, _pair).send_to("left")
    odd = table.filter(lambda key, value: value % 2 == 1).map_values(lambda value: -value)
    stream.left_join(odd, _pair).send_to("odd")
    table.to_stream().send_to("changes")
    table.group_by(lambda key, value: ("all", value), value_serde=serdes.json()).reduce(
        lambda total, value: total + value, lambda total, value: total - value, store="sum"
    ).to_stream().send_to("sums")
    table.left_join(builder.table("u"), _pair).to_stream().send_to("tables")
    return builder


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _expected(rows: Sequence[Any]) -> dict[str, list[Any]]:
    oracle = Oracle()
    found: dict[str, list[Any]] = {name: [] for name in ("inner", "left", "odd", "changes", "tables")}
    for topic, key, value, time_ms in rows:
        if topic == "t" and key is not None:
            before = oracle.latest(key)
            if not oracle.put(Put(key, value, time_ms)):
                continue
            found["changes"].append((key, value, time_ms))
            newest = time_ms == oracle.times(key)[-1]
            if newest and (before is not None or value is not None):
                found["tables"].append((key, None if value is None else [value, None], time_ms))
        elif topic == "s" and value is not None:
            version = None if key is None else oracle.as_of(key, time_ms)
            theirs = None if version is None else version.value
            odd = -theirs if theirs is not None and theirs % 2 else None
            if theirs is not None:
                found["inner"].append((key, [value, theirs], time_ms))
            found["left"].append((key, [value, theirs], time_ms))
            found["odd"].append((key, [value, odd], time_ms))
    return found


@given(ROWS)
def test_streams_meet_the_version_of_their_time_and_tables_the_latest_when_records_come_in_any_order(
    rows: list[Any],
) -> None:
    bound = BoundTopology(_joins("memory").build())
    for topic, key, value, time_ms in rows:
        bound.pipe(topic, key, value, timestamp_ms=time_ms)
    for topic, results in _expected(rows).items():
        assert [tuple(result) for result in bound.read(topic)] == results, topic


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@settings(max_examples=examples(25), deadline=None)
@given(rows=ROWS, cuts=st.sets(st.integers(0, 40)))
def test_results_are_those_of_a_search_when_runs_are_cut_anywhere(
    storage: Storage, rows: list[Any], cuts: set[int]
) -> None:
    expected = _expected(rows)
    with TopologyTestDriver(_joins(storage).build(), application_id="app") as driver:
        for number, (topic, key, value, time_ms) in enumerate(rows):
            if number in cuts:
                driver.restart()
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        for topic, results in expected.items():
            found = [(each.key, each.value, each.timestamp_ms) for each in driver.read_output(topic)]
            assert found == results, topic
