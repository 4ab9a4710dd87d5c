from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams import (
    KGroupedStream,
    KStreamBuilder,
    KTable,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output


class Delays(msgspec.Struct):
    flights: int = 0
    worst: int = 0


def _add(_: str, delay: int, delays: Delays) -> Delays:
    delays.flights += 1
    delays.worst = max(delays.worst, delay)
    return delays


def _store(*, cached: bool, value_serde: serdes.Serde | None = None) -> StoreSpec:
    return StoreSpec(
        name="table", key_serde=serdes.string(), value_serde=value_serde or serdes.json(), cached=cached
    )


def _bind(fold: Any) -> BoundTopology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped: KGroupedStream = builder.stream("in").group_by_key()
    table: KTable = fold(grouped)
    table.to_stream().send_to("out")
    return BoundTopology(builder.build())


def _last_or_delete(_: Any, value: Any) -> Any:
    return None if value == "delete" else value


def test_table_emits_the_newest_value_once_per_key_when_cached() -> None:
    bound = _bind(lambda grouped: grouped.count(store=_store(cached=True)))
    for key, time_ms in (("b", 1), ("a", 9), ("b", 5), ("b", 3)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    assert bound.read("out") == []
    bound.flush()
    assert bound.read("out") == [Output("b", 3, 5), Output("a", 1, 9)]
    bound.flush()
    assert bound.read("out") == []


def test_table_emits_with_every_record_when_not_cached() -> None:
    bound = _bind(lambda grouped: grouped.count(store=_store(cached=False)))
    for key, time_ms in (("b", 1), ("b", 5), ("b", 3)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    assert bound.read("out") == [Output("b", 1, 1), Output("b", 2, 5), Output("b", 3, 5)]
    bound.flush()
    assert bound.read("out") == []


def test_other_children_keep_the_records_time_when_a_table_emits_an_older_entrys() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    stream.group_by_key().count(store=_store(cached=False)).to_stream().send_to("counts")
    stream.send_to("copy")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=50)
    bound.pipe("in", "a", 1, timestamp_ms=20)
    assert [output.timestamp_ms for output in bound.read("counts")] == [50, 50]
    assert [output.timestamp_ms for output in bound.read("copy")] == [50, 20]


@pytest.mark.parametrize("fold", ["count", "reduce", "aggregate"])
def test_records_are_dropped_and_counted_when_key_or_value_is_null(fold: str) -> None:
    folds = {
        "count": lambda grouped: grouped.count(store="table"),
        "reduce": lambda grouped: grouped.reduce(_last_or_delete, store="table"),
        "aggregate": lambda grouped: grouped.aggregate(list, lambda k, v, a: [*a, v], store="table"),
    }
    bound = _bind(folds[fold])
    bound.pipe("in", None, 1)
    bound.pipe("in", "a", None)
    bound.pipe("in", None, None)
    bound.flush()
    assert bound.read("out") == []
    assert bound.dropped == 3
    assert bound.stores["table"].approximate_count() == 0


def test_reduce_starts_from_the_first_value_when_the_key_is_new() -> None:
    bound = _bind(lambda grouped: grouped.reduce(lambda old, new: f"{old}-{new}", store="table"))
    for value in "xyz":
        bound.pipe("in", "a", value)
    assert bound.stores["table"].get("a") == "x-y-z"


def test_aggregate_starts_anew_per_key_when_the_aggregate_is_changed_in_place() -> None:
    serde = serdes.json(Delays)
    bound = _bind(lambda grouped: grouped.aggregate(Delays, _add, store="table", value_serde=serde))
    for key, delay in (("UA", 5), ("B6", 1), ("UA", 3)):
        bound.pipe("in", key, delay, timestamp_ms=delay)
    bound.flush()
    assert bound.read("out") == [
        Output("UA", Delays(flights=2, worst=5), 5),
        Output("B6", Delays(flights=1, worst=1), 1),
    ]


def test_fold_goes_on_when_the_store_was_restored() -> None:
    bound = _bind(lambda grouped: grouped.count(store="table"))
    bound.stores["table"].restore(b"a", serdes.int64().serialize(41), 100)
    bound.pipe("in", "a", 0, timestamp_ms=7)
    bound.flush()
    assert bound.read("out") == [Output("a", 42, 100)]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("fold", ["reduce", "aggregate"])
def test_table_emits_none_when_a_key_is_deleted(fold: str, cached: bool) -> None:
    store = _store(cached=cached)
    folds = {
        "reduce": lambda grouped: grouped.reduce(_last_or_delete, store=store),
        "aggregate": lambda grouped: grouped.aggregate(
            dict, lambda k, v, a: _last_or_delete(a, v), store=store
        ),
    }
    bound = _bind(folds[fold])
    bound.pipe("in", "a", "x", timestamp_ms=8)
    bound.flush()
    bound.read("out")
    list(bound.stores["table"].drain_changes())
    bound.pipe("in", "a", "delete", timestamp_ms=5)
    bound.flush()
    assert bound.read("out") == [Output("a", None, 8)]
    assert [(key, value) for key, value, _ in bound.stores["table"].drain_changes()] == [(b"a", None)]
    bound.pipe("in", "a", "y", timestamp_ms=6)
    bound.flush()
    assert bound.read("out") == [Output("a", "y", 6)]


def test_nothing_is_emitted_when_a_key_comes_and_goes_between_commit_points() -> None:
    bound = _bind(lambda grouped: grouped.reduce(_last_or_delete, store="table"))
    for value in ("x", "delete", "y", "delete"):
        bound.pipe("in", "a", value)
    bound.flush()
    assert bound.read("out") == []


def test_newest_value_is_emitted_when_a_key_is_deleted_and_comes_back() -> None:
    bound = _bind(lambda grouped: grouped.reduce(_last_or_delete, store="table"))
    bound.pipe("in", "a", "x")
    bound.flush()
    for value in ("delete", "y"):
        bound.pipe("in", "a", value, timestamp_ms=3)
    bound.flush()
    assert bound.read("out") == [Output("a", "x", 0), Output("a", "y", 3)]


def test_aggregate_that_stays_none_is_no_change_when_the_key_is_new() -> None:
    for cached in (True, False):
        store = _store(cached=cached)
        bound = _bind(lambda grouped, s=store: grouped.aggregate(dict, lambda k, v, a: None, store=s))
        bound.pipe("in", "a", 1)
        bound.flush()
        assert bound.read("out") == []
        assert list(bound.stores["table"].drain_changes()) == []


def test_second_table_sees_the_first_ones_changes_when_both_flush() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    counts.group_by(lambda key, count: key[0], key_serde=serdes.string()).reduce(
        lambda old, new: old + new, store="sums"
    ).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for key in ("a1", "a2", "a1", "b1"):
        bound.pipe("in", key, 0, timestamp_ms=4)
    bound.flush()
    assert bound.read("out") == [Output("a", 3, 4), Output("b", 1, 4)]


def test_second_tables_entry_is_its_own_when_the_first_changes_its_aggregate_in_place() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    first = builder.stream("in").group_by_key()
    delays = first.aggregate(Delays, _add, store=_store(cached=False, value_serde=serdes.json(Delays)))
    delays.to_stream().filter(lambda k, v: True).group_by_key().reduce(lambda old, new: old, store="earliest")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1)
    bound.pipe("in", "a", 2)
    assert bound.stores["table"].get("a") == Delays(flights=2, worst=2)
    assert bound.stores["earliest"].get("a") == Delays(flights=1, worst=1)


class Forget(Processor):
    """Deletes each key from a table's store."""

    def init(self, context: ProcessorContext) -> None:
        self._table = context.state_store("table")

    def process(self, record: ProcessorRecord) -> None:
        self._table.delete(record.key)


def test_table_emits_none_when_a_processor_deletes_its_key() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    table = stream.group_by_key().count(store="table")
    table.to_stream().send_to("out")
    stream.filter(lambda k, v: v == "forget").process(Forget, table.store)
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", "x")
    bound.flush()
    bound.read("out")
    bound.pipe("in", "a", "forget", timestamp_ms=9)
    bound.flush()
    assert bound.read("out") == [Output("a", None, 9)]


def test_time_of_an_earlier_deletion_is_forgotten_when_a_processor_deletes_the_key_later() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    stream.group_by_key().reduce(_last_or_delete, store="table").to_stream().send_to("out")
    stream.filter(lambda k, v: v == "forget").process(Forget, "table")
    bound = BoundTopology(builder.build())
    for time_ms, value in enumerate(("x", "delete", "y", "forget"), start=1):
        bound.pipe("in", "a", value, timestamp_ms=time_ms)
        bound.flush()
    assert bound.read("out") == [
        Output("a", "x", 1),
        Output("a", None, 2),
        Output("a", "y", 3),
        Output("a", None, 4),
    ]


def test_deletion_has_the_last_records_time_when_another_table_emitted_older_entries() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    grouped.count(store="first").to_stream().send_to("counts")
    grouped.count(store="table").to_stream().send_to("out")
    stream.filter(lambda k, v: v == "forget").process(Forget, "table")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", "x", timestamp_ms=1)
    bound.flush()
    bound.read("out")
    bound.pipe("in", "a", "forget", timestamp_ms=8)
    bound.pipe("in", "b", "x", timestamp_ms=3)
    bound.pipe("in", "a", "forget", timestamp_ms=9)
    bound.flush()
    assert bound.read("counts")[-1] == Output("b", 1, 3)
    assert bound.read("out") == [Output("a", None, 9), Output("b", 1, 3)]


def test_two_tables_in_one_store_are_refused_when_built() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="table")
    with pytest.raises(TopologyError, match=r"two tables are kept in the store 'table'"):
        grouped.count(store="table")


def test_store_spec_is_taken_whole_when_given() -> None:
    spec = _store(cached=False)
    with pytest.raises(TopologyError, match=r"serdes\.int64.*'table'.*serdes\.json"):
        _bind(lambda grouped: grouped.reduce(max, store=spec, value_serde=serdes.int64()))
    assert _bind(lambda grouped: grouped.reduce(max, store=spec)).topology.stores == (spec,)


def test_store_is_called_after_what_it_reads_and_is_when_no_name_is_given() -> None:
    (store,) = _bind(lambda grouped: grouped.count()).topology.stores
    assert store.name == "in-count"


@pytest.mark.parametrize(("cached", "headers"), [(True, []), (False, [("trace", b"1")])])
def test_update_has_the_headers_of_its_record_only_when_the_table_is_not_cached(
    *, cached: bool, headers: list[Any]
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store=_store(cached=cached))
    counts.to_stream().send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        with driver.run():
            driver.pipe_input("in", key="a", value=0, timestamp_ms=1, headers=[("trace", b"1")])
        assert [record.headers for record in driver.read_output("out")] == [headers]


def collected(key: str, value: int, found: list[int]) -> None:
    found.append(value)


@pytest.mark.parametrize(
    "window",
    [
        None,
        TumblingWindow(size_ms=10),
        SlidingWindow(size_ms=10),
        SessionWindow(gap_ms=10),
    ],
)
@pytest.mark.parametrize("below", ["stream", "nothing"])
def test_log_says_once_that_an_aggregator_returns_nothing(
    window: Any, below: str, caplog: pytest.LogCaptureFixture
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    group: Any = builder.stream("in").group_by_key()
    group = group if window is None else group.windowed_by(window)
    mergers = [lambda key, one, other: one + other] if isinstance(window, SessionWindow) else []
    table = group.aggregate(list, collected, *mergers, name="all")
    if below == "stream":
        table.to_stream().send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key in ("a", "b", "a"):
            driver.pipe_input("in", key=key, value=1, timestamp_ms=20)
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"node 'all' \([a-z ]*aggregate at .*\.py:\d+\) gave None for a key that has no", line)
    assert line.endswith("must return it")


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
def test_log_says_nothing_when_an_aggregator_deletes_what_is_there(
    cached: bool, tracked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def kept(key: str, value: int, sum_: int) -> int | None:
        return sum_ + value or None

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    spec = StoreSpec(name="sums", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    table = builder.stream("in").group_by_key().aggregate(int, kept, store=spec, name="sums")
    (table.filter(lambda key, value: True, store="some") if tracked else table).to_stream().send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in (1, -1, 1):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=20)
        assert not caplog.records
        for _ in range(2):
            driver.pipe_input("in", key="b", value=0, timestamp_ms=20)
    assert [
        "node 'sums' (" in record.getMessage() and "gave None" in record.getMessage()
        for record in caplog.records
    ] == [True]
