"""A value that its store's serde writes as None deletes the entry: the store is without it at once, the
changelog gets a tombstone, and what is below sees a deletion.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TumblingWindow,
    VersionedStoreSpec,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import StoreSerdeError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.serde.windowed import time_windowed
from airflow_kstreams.streams.state.stores.store_serdes import deletes_of
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("values-written-as-none-delete")
TEXT = serdes.string()
#: Writes 0 as None, as a serde of optional values writes an empty one.
NUMBERS: Serde[int] = Serde(
    id="numbers",
    serialize=lambda number: str(number).encode() if number else None,  # type: ignore[arg-type,return-value]
    deserialize=int,
)
#: Of lists, an empty one is written as None.
LISTS: Serde[list[int]] = Serde(
    id="lists",
    serialize=lambda numbers: bytes(numbers) or None,  # type: ignore[arg-type,return-value]
    deserialize=list,
)
STORAGES = pytest.mark.parametrize("storage", ["memory", "rocksdb"])
CACHED = pytest.mark.parametrize("cached", [True, False])


@pytest.fixture(autouse=True)
def _nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if "gave None" in record.getMessage()]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=TEXT, default_value_serde=serdes.int64())


def _spec(name: str = "s", *, storage: Storage, cached: bool = True, **more: Any) -> StoreSpec:
    return StoreSpec(name=name, key_serde=TEXT, value_serde=NUMBERS, storage=storage, cached=cached, **more)


def _values(driver: TopologyTestDriver, topic: str) -> list[Any]:
    return [record.value for record in driver.read_output(topic)]


class Putting(Processor):
    """Puts what it is given, and forwards what the store holds right after it.

    :param put: (store, record) -> None.
    :param get: (store, record) -> anything.
    """

    def __init__(self, put: Callable[[Any, Any], Any], get: Callable[[Any, Any], Any]) -> None:
        self._put, self._get = put, get

    def init(self, context: ProcessorContext) -> None:
        self._context, self._store = context, context.state_store("s")

    def process(self, record: ProcessorRecord) -> None:
        self._put(self._store, record)
        found = self._get(self._store, record)
        held = len(list(self._store.all()))
        self._context.forward(record.key, [found, held])


KEYED: tuple[Any, ...] = (
    StoreSpec,
    {},
    lambda store, record: store.put(record.key, record.value),
    lambda store, record: store.get(record.key),
)
UNLOGGED = (StoreSpec, {"logged": False}, *KEYED[2:])
IF_ABSENT = (*KEYED[:2], lambda store, record: store.put_if_absent(record.key, record.value), KEYED[3])
WINDOWED = (
    WindowStoreSpec,
    {"retention_ms": 1_000},
    lambda store, record: store.put(record.key, record.value, 0),
    lambda store, record: store.get(record.key, 0),
)
SESSIONS = (
    SessionStoreSpec,
    {"retention_ms": 1_000},
    lambda store, record: store.put(record.key, record.value, 0, 5),
    lambda store, record: store.get(record.key, 0, 5),
)
VERSIONED = (
    VersionedStoreSpec,
    {"history_ms": 1_000},
    lambda store, record: store.put(record.key, record.value, 7),
    lambda store, record: None if (found := store.get(record.key)) is None else found.value,
)


@STORAGES
@pytest.mark.parametrize("store", [KEYED, UNLOGGED, WINDOWED, SESSIONS, VERSIONED])
def test_entry_is_gone_at_once_when_a_processor_puts_a_value_that_is_written_as_none(
    storage: Storage, store: Any
) -> None:
    kind, more, put, get = store
    spec = kind(name="s", key_serde=TEXT, value_serde=NUMBERS, storage=storage, **more)
    builder = _builder()
    putting = functools.partial(Putting, put, get)
    builder.stream("in").process(putting, spec).send_to("out", value_serde=serdes.json())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (0, 3, 0, 0, 4):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == [[None, 0], [3, 1], [None, 0], [None, 0], [4, 1]]
        driver.pipe_input("in", key="a", value=0, timestamp_ms=8)
        if spec.logged and kind is not VersionedStoreSpec:
            assert _values(driver, "app-s-changelog")[-2:] == [4, None]
        assert list(driver.store("s").all()) == []
        driver.restart()
        assert list(driver.store("s").all()) == []


@STORAGES
def test_value_is_put_when_one_that_is_written_as_none_was(storage: Storage) -> None:
    _, _, put, get = IF_ABSENT
    builder = _builder()
    putting = functools.partial(Putting, put, get)
    builder.stream("in").process(putting, _spec(storage=storage)).send_to("out", value_serde=serdes.json())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (0, 3, 0):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == [[None, 0], [3, 1], [3, 1]]


@STORAGES
def test_version_ends_when_one_that_is_written_as_none_follows(storage: Storage) -> None:
    spec = VersionedStoreSpec(
        name="s", key_serde=TEXT, value_serde=NUMBERS, storage=storage, history_ms=1_000
    )
    builder = _builder()
    builder.table("in", store=spec).to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value, time_ms in ((3, 10), (0, 20), (4, 30), (0, 15)):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=time_ms)
        assert _values(driver, "out") == [3, None, 4, None]
        for _ in range(2):
            versions = [(found.value, found.timestamp_ms) for _, found in driver.store("s").all()]
            assert versions == [(3, 10), (4, 30)]
            driver.restart()


@STORAGES
@CACHED
def test_group_is_gone_when_its_aggregate_is_written_as_none(storage: Storage, cached: bool) -> None:
    builder = _builder()
    sums = (
        builder.stream("in")
        .group_by_key()
        .reduce(lambda one, other: one + other, store=_spec(storage=storage, cached=cached))
    )
    sums.to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (0, 3, -3, 5):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == [3, None, 5]
        assert _values(driver, "app-s-changelog") == [3, None, 5]
        driver.pipe_input("in", key="a", value=-5, timestamp_ms=7)
        assert driver.store("s").get("a") is None
        assert driver.store("s").approximate_count() == 0


@STORAGES
@CACHED
def test_group_is_gone_when_its_aggregate_became_one_that_is_written_as_none_in_place(
    storage: Storage, cached: bool
) -> None:
    def taken(key: str, value: int, numbers: list[int]) -> list[int]:
        numbers.append(value) if value else numbers.clear()
        return numbers

    spec = StoreSpec(name="s", key_serde=TEXT, value_serde=LISTS, storage=storage, cached=cached)
    builder = _builder()
    lists = builder.stream("in").group_by_key().aggregate(list, taken, store=spec)
    lists.to_stream().send_to("out", value_serde=serdes.json())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (0, 3, 4, 0, 5):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == [[3], [3, 4], None, [5]]
        assert _values(driver, "app-s-changelog") == [[3], [3, 4], None, [5]]


@STORAGES
@CACHED
@pytest.mark.parametrize("tracked", [False, True])
def test_what_came_and_went_is_nothing_when_one_run_did_both(
    storage: Storage, cached: bool, tracked: bool
) -> None:
    builder = _builder()
    sums = (
        builder.stream("in")
        .group_by_key()
        .reduce(lambda one, other: one + other, store=_spec(storage=storage, cached=cached))
    )
    sums.to_stream().send_to("out", value_serde=serdes.int64())
    if tracked:
        sums.map_values(str).to_stream().send_to("below", value_serde=TEXT)
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        with driver.run():
            for value in (3, -3):
                driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == ([] if cached else [3, None])
        assert list(driver.store("s").all()) == []
        with driver.run():
            for value in (3, -3, 4):
                driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == ([4] if cached else [3, None, 4])
        with driver.run():
            for value in (1, -5):
                driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == ([None] if cached else [5, None])
        assert list(driver.store("s").all()) == []


@STORAGES
@CACHED
def test_count_is_gone_when_it_is_written_as_none(storage: Storage, cached: bool) -> None:
    odd: Serde[int] = Serde(
        id="odd",
        serialize=lambda n: str(n).encode() if n % 2 else None,  # type: ignore[arg-type,return-value]
        deserialize=int,
    )
    spec = StoreSpec(name="s", key_serde=TEXT, value_serde=odd, storage=storage, cached=cached)
    builder = _builder()
    builder.stream("in").group_by_key().count(store=spec).to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for _ in range(3):
            driver.pipe_input("in", key="a", value=1, timestamp_ms=7)
        assert _values(driver, "out") == [1, None, 1]


@STORAGES
@CACHED
@pytest.mark.parametrize(
    "window",
    [
        TumblingWindow(size_ms=100, grace_ms=100),
        SessionWindow(gap_ms=100, grace_ms=100),
        SlidingWindow(size_ms=100, grace_ms=100),
    ],
)
@pytest.mark.parametrize("tracked", [False, True])
def test_window_is_gone_when_its_aggregate_is_written_as_none(
    storage: Storage, cached: bool, window: Any, tracked: bool
) -> None:
    builder = _builder()
    grouped = builder.stream("in").group_by_key().windowed_by(window)
    table = grouped.reduce(lambda one, other: one + other, store=_spec(storage=storage, cached=cached))
    table.to_stream().map(lambda key, value: (key.key, value)).send_to("out")
    if tracked:
        table.map_values(lambda value: value).to_stream().map(lambda key, value: (key.key, value)).send_to(
            "below"
        )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (0, 3, -3, 5):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=7)
        assert _values(driver, "out") == [3, None, 5]
        if tracked:
            assert _values(driver, "below") == [3, None, 5]
        assert _values(driver, "app-s-changelog") == [3, None, 5]
        driver.pipe_input("in", key="a", value=-5, timestamp_ms=7)
        assert list(driver.store("s").all()) == []


@STORAGES
@CACHED
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("steps", [0, 1])
def test_entry_of_a_table_is_gone_when_its_value_is_written_as_none(
    storage: Storage, cached: bool, tracked: bool, steps: int
) -> None:
    builder = _builder()
    spec = _spec(storage=storage, cached=cached)
    if steps:
        table = builder.table("in").map_values(lambda value: value - 1, store=spec)
    else:
        table = builder.stream("in").map_values(lambda value: value - 1).to_table(store=spec)
    table.to_stream().send_to("out", value_serde=serdes.int64())
    if tracked:
        sums = table.group_by(lambda key, value: ("all", value), value_serde=serdes.int64()).reduce(
            lambda one, other: one + other, lambda one, other: one - other, store="sums"
        )
        sums.to_stream().send_to("sums", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key, value in (("b", 1), ("a", 1), ("a", 4), ("b", 9), ("a", 1), ("a", 6)):
            driver.pipe_input("in", key=key, value=value, timestamp_ms=7)
        assert _values(driver, "out") == [3, 8, None, 5]
        assert _values(driver, "app-s-changelog") == [3, 8, None, 5]
        assert dict(driver.store("s").all()) == {"b": 8, "a": 5}
        if tracked:
            assert driver.store("sums").get("all") == 13
        driver.pipe_input("in", key="a", value=1, timestamp_ms=8)
        assert dict(driver.store("s").all()) == {"b": 8}
        driver.restart()
        assert dict(driver.store("s").all()) == {"b": 8}


@STORAGES
@CACHED
def test_group_of_a_table_is_gone_when_its_aggregate_is_written_as_none(
    storage: Storage, cached: bool
) -> None:
    builder = _builder()
    groups = builder.table("in").group_by(lambda key, value: ("all", value), value_serde=serdes.int64())
    sums = groups.reduce(
        lambda one, other: one + other,
        lambda one, other: one - other,
        store=_spec(storage=storage, cached=cached),
    )
    sums.to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key, value in (("a", 0), ("a", 3), ("b", -3), ("b", 4)):
            driver.pipe_input("in", key=key, value=value, timestamp_ms=7)
        given = _values(driver, "out")
        assert given[:2] == [3, None]
        assert given[-1] == 4  # Nothing is left of a sum that was forgotten with its group.
        assert driver.store("s").get("all") == 4


def test_the_serdes_of_this_package_are_not_asked() -> None:
    for serde in (
        serdes.bytes(),
        serdes.string(),
        serdes.int32(),
        serdes.int64(),
        serdes.double(),
        serdes.json(),
        serdes.json(dict[str, int]),
        serdes.msgpack(),
        time_windowed(TEXT, 10),
    ):
        assert deletes_of(serde) is None
    deletes = deletes_of(NUMBERS)
    assert deletes is not None
    assert [deletes(0), deletes(1)] == [True, False]


@pytest.mark.error_example("KS-STATE-002")
def test_value_that_does_not_fit_is_refused_at_the_commit_as_ever() -> None:
    def write(value: Any) -> Any:
        raise TypeError("no number")

    spec = StoreSpec(name="s", key_serde=TEXT, value_serde=Serde(id="own", serialize=write, deserialize=int))
    builder = _builder()
    builder.stream("in").group_by_key().reduce(lambda one, other: one, store=spec)
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(StoreSerdeError, match="no number"),
    ):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=7)


def test_join_of_streams_refuses_a_value_that_is_written_as_none() -> None:
    builder = _builder()
    left, right = (builder.stream(topic).with_window(SlidingWindow(size_ms=100)) for topic in ("in", "other"))
    joined = left.join(right, lambda one, other: one, value_serde=NUMBERS, other_value_serde=NUMBERS)
    joined.send_to("out", value_serde=serdes.int64())
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(StoreSerdeError, match=r"cannot be read back by serdes\.numbers"),
    ):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=7)
