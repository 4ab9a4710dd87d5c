"""What an exploration shows, on samples made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airflow_kstreams.explore import Exploration, Sample, SampleRecord, explore
from airflow_kstreams.explore.sample_run import MOST_RESTARTS
from airflow_kstreams.streams import (
    ConfigError,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TopologyError,
    TumblingWindow,
    serdes,
)
from tests.unit.streams.graph.test_nodes import addressed


def record(
    key: str, value: Any, offset: int, *, topic: str = "orders", partition: int = 0, at: int = -1
) -> Any:
    """A record of JSON; text as value stands for itself; its timestamp is its offset unless given."""
    return SampleRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key.encode(),
        value=value if isinstance(value, bytes) else msgspec.json.encode(value),
        timestamp_ms=offset if at < 0 else at,
    )


def sample(*records: SampleRecord, **partitions: int) -> Sample:
    return Sample(records=records, partitions=partitions)


def totals(price: Any = lambda order: order["cents"]) -> Topology:
    """Orders above nothing, rekeyed by customer, summed."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    priced = builder.stream("orders").filter(lambda _, order: order["cents"] > 0)
    cents = priced.map(lambda _, order: (order["customer"], price(order)))
    cents.group_by_key().reduce(lambda total, one: total + one, store="totals").to_stream().send_to("out")
    return builder.build()


ORDERS = sample(
    record("1", {"customer": "ann", "cents": 250}, 17),
    record("2", {"customer": "bob", "cents": 0}, 18),
    record("3", {"customer": "ann", "cents": 50}, 21),
    orders=1,
)
MAP = "KSTREAM-MAP-0000000002"


def test_records_of_a_node_are_those_it_forwarded_when_asked_by_name() -> None:
    seen = explore(totals(), sample=ORDERS)
    assert seen.nodes == tuple(node.name for node in totals().nodes)
    assert seen[MAP].to_pylist() == [
        {"key": "ann", "value": 250, "timestamp_ms": 17, "topic": "orders", "partition": 0, "offset": 17},
        {"key": "ann", "value": 50, "timestamp_ms": 21, "topic": "orders", "partition": 0, "offset": 21},
    ]
    # Behind an intermediate topic a record still tells which input led there.
    assert [(one.key, one.value, one.offset) for one in seen.outputs("out")] == [
        ("ann", 250, 17),
        ("ann", 300, 21),
    ]
    assert seen.outputs("out").to_pylist() == seen[seen.nodes[-1]].to_pylist()


def test_counts_tell_what_came_went_and_was_lost_when_summed_up() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("orders").group_by_key().count(store="n").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    keyless = SampleRecord(topic="orders", offset=0, key=None, value=b"1", timestamp_ms=0)
    seen = explore(builder.build(), sample=sample(keyless, record("k", 1, 1)))
    source, count, *_, sink = seen.nodes
    numbers = [
        (c.records_in, c.records_out, c.dropped, c.failed) for c in map(seen.counts, (source, count, sink))
    ]
    assert numbers == [(2, 2, 0, 0), (2, 1, 1, 0), (1, 1, 0, 0)]
    assert "2 of orders" in str(seen)
    assert "reads orders" in str(seen.summary())
    assert "writes out" in str(seen.summary())


def test_tables_changes_are_shown_by_their_new_values_and_once_when_tables_lie_below() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    table = builder.table("orders")
    table.filter(lambda key, value: value > 1).to_stream().send_to("out")
    table.map_values(lambda value: -value).to_stream().send_to("negative")
    seen = explore(builder.build(), sample=sample(record("k", 1, 1), record("k", 2, 2), record("k", 3, 3)))
    kept, filtered = (
        next(node for node in seen.nodes if node.startswith(kind)) for kind in ("KTABLE-SOURCE", "KTABLE-F")
    )
    assert [one.value for one in seen[kept]] == [1, 2, 3]
    assert [one.value for one in seen[filtered]] == [2, 3]
    assert (seen.counts(kept).records_out, seen.counts(filtered).records_in) == (3, 3)
    assert [one.value for one in seen.outputs("negative")] == [-1, -2, -3]


def test_records_of_a_global_table_come_first_whatever_their_time_is() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    names = builder.global_table("names")
    orders = builder.stream("orders")
    orders.left_join(names, lambda order, name: [order, name], key=lambda key, order: key).send_to("out")
    records = [record("k", 1, 1), record("l", 2, 2), record("k", "ann", 9, topic="names")]
    unreadable = record("l", b"{", 10, topic="names")
    seen = explore(builder.build(), sample=sample(*records, unreadable))
    assert [one.value for one in seen.outputs("out")] == [[1, "ann"], [2, None]]
    assert [failed.node for failed in seen.errors] == ["global table names"]


def test_records_run_by_timestamp_then_topic_then_partition_when_there_are_several_partitions() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("a", "b").send_to("out")
    shuffled = sample(
        record("b", 0, 0, topic="b", at=5),
        record("a1", 0, 0, topic="a", partition=1, at=9),
        record("a1-late", 0, 1, topic="a", partition=1, at=4),
        record("a0", 0, 0, topic="a", at=9),
        record("b1", 0, 0, topic="b", partition=1, at=9),
    )
    seen = explore(builder.build(), sample=shuffled)
    # The late one stands behind a1 in its partition and waits for it.
    assert [one.key for one in seen.outputs("out")] == ["b", "a0", "a1", "a1-late", "b1"]


def test_a_failing_record_is_shown_and_left_out_when_a_function_raises() -> None:
    broken = sample(*ORDERS.records[:1], record("x", {"customer": "eve"}, 19), *ORDERS.records[2:])
    seen = explore(totals(), sample=broken)
    (failure,) = seen.errors
    assert (failure.origin, failure.node) == ("orders-0@19", "KSTREAM-FILTER-0000000001")
    assert isinstance(failure.error, KeyError)
    assert [one.value for one in seen.outputs("out")] == [250, 300]
    assert seen.counts("KSTREAM-FILTER-0000000001").failed == 1
    assert "orders-0@19" in str(seen)


def test_a_failing_record_is_shown_at_its_source_when_it_cannot_be_decoded() -> None:
    seen = explore(totals(), sample=sample(record("x", b"no json", 3), *ORDERS.records))
    (failure,) = seen.errors
    assert (failure.origin, failure.node) == ("orders-0@3", "KSTREAM-SOURCE-0000000000")
    assert seen.counts("KSTREAM-SOURCE-0000000000").records_in == 3
    assert [one.value for one in seen.outputs("out")] == [250, 300]


def test_a_failing_record_is_shown_at_the_sink_when_it_cannot_be_encoded() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("orders").map_values(lambda order: order["cents"])
    stream.send_to("numbers", value_serde=serdes.int64())
    stream.send_to("all")
    seen = explore(
        builder.build(), sample=sample(record("a", {"cents": "ten"}, 0), record("b", {"cents": 5}, 1))
    )
    (failure,) = seen.errors
    assert failure.node == "KSTREAM-SINK-0000000002"
    assert [one.value for one in seen.outputs("numbers")] == [5]
    assert [one.value for one in seen.outputs("all")] == ["ten", 5]


class Unsaved(Processor):
    """Keeps what its store's serde cannot encode for the key ``bad``."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = context.state_store("seen")

    def process(self, record: ProcessorRecord) -> None:
        count = (self.store.get("n") or 0) + 1
        self.store.put("n", "many" if record.key == "bad" else count)
        self.context.forward(record.key, count)


def unsaved() -> Topology:
    spec = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.int64())
    builder = TopologyBuilder().add_source("in", "orders", key_serde=serdes.string())
    builder.add_processor("p", Unsaved, "in", stores=["seen"]).add_state_store(spec)
    return builder.add_sink("out", "out", "p", key_serde=serdes.string(), value_serde=serdes.json()).build()


def test_a_record_that_breaks_a_task_leaves_nothing_behind_when_the_others_go_on() -> None:
    keys = ["a", "bad", "b", "bad", "c"]
    seen = explore(unsaved(), sample=sample(*(record(key, 0, n) for n, key in enumerate(keys))))
    assert [(one.key, one.value) for one in seen.outputs("out")] == [("a", 1), ("b", 2), ("c", 3)]
    assert [failure.origin for failure in seen.errors] == ["orders-0@1", "orders-0@3"]
    assert seen.counts("p").records_in == 3


def test_exploring_ends_and_says_so_when_too_many_records_break_the_task() -> None:
    count = MOST_RESTARTS + 5
    seen = explore(unsaved(), sample=sample(*(record("bad", 0, n) for n in range(count))))
    assert len(seen.errors) == MOST_RESTARTS
    assert seen.notes == (
        f"stopped after {MOST_RESTARTS} records that left a task unusable: not run were the last 5 records "
        "of the sample",
    )


def test_a_record_is_shown_as_it_was_when_an_aggregate_changes_in_place() -> None:
    def collect(_key: str, order: Any, seen: list[Any]) -> list[Any]:
        seen.append(order["cents"])
        return seen

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("orders").group_by_key()
    grouped.aggregate(list, collect, store="seen").to_stream().send_to("out")
    seen = explore(builder.build(), sample=sample(record("k", {"cents": 1}, 0), record("k", {"cents": 2}, 1)))
    assert [one.value for one in seen.outputs("out")] == [[1], [1, 2]]


class Splitter(Processor):
    """Hands records to one child by name; speaks when it starts, is flushed and closes."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.forward("k", "hello", to="small", timestamp_ms=1)

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value, to="small" if record.value < 10 else "large-out")

    def close(self) -> None:
        self.context.forward("k", "bye", to="large-out", timestamp_ms=2)


def test_children_are_found_by_name_when_a_processor_forwards_to_one() -> None:
    builder = TopologyBuilder().add_source(
        "in", "orders", key_serde=serdes.string(), value_serde=serdes.json()
    )
    builder.add_processor("split", Splitter, "in")
    builder.add_sink("small", "small", "split", key_serde=serdes.string(), value_serde=serdes.json())
    builder.add_sink("large-out", "large", "split", key_serde=serdes.string(), value_serde=serdes.json())
    seen = explore(builder.build(), sample=sample(record("a", 5, 0), record("b", 50, 1)))
    assert [(one.value, one.origin) for one in seen["small"]] == [("hello", "(no record)"), (5, "orders-0@0")]
    assert [(one.value, one.origin) for one in seen["large-out"]] == [
        (50, "orders-0@1"),
        ("bye", "(no record)"),
    ]
    assert [one.value for one in seen["split"]] == ["hello", 5, 50, "bye"]
    assert seen.errors == ()


def test_outputs_stand_in_the_order_written_when_two_sinks_write_one_topic() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    small, rest = builder.stream("orders").branch(lambda _, value: value < 10, lambda *_: True)
    small.send_to("out")
    rest.send_to("out")
    seen = explore(builder.build(), sample=sample(record("a", 50, 0), record("b", 5, 1), record("c", 60, 2)))
    assert [one.value for one in seen.outputs("out")] == [50, 5, 60]


def test_join_finds_its_table_when_topics_have_several_partitions() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    names = builder.table("names", store="names")
    builder.stream("orders").join(names, lambda order, name: [name, order]).send_to("out")
    rows = [record("k", "Ann", 0, topic="names", partition=2, at=1), record("k", 7, 0, partition=2, at=2)]
    seen = explore(builder.build(), sample=sample(*rows, orders=3, names=3))
    assert [one.value for one in seen.outputs("out")] == [["Ann", 7]]
    with pytest.raises(TopologyError, match="names"):
        explore(builder.build(), sample=sample(*rows, orders=3, names=4))


def test_a_topic_that_does_not_exist_yet_suits_the_others_when_it_is_joined() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    names = builder.table("names", store="names")
    builder.stream("orders").through("checked").join(names, lambda order, name: [name, order]).send_to("out")
    rows = [record("k", "Ann", 0, topic="names", at=1), record("k", 7, 0, at=2)]
    driver_partition = 3  # of the key "k" among 4, as Java's producer picks it
    rows = [msgspec.structs.replace(row, partition=driver_partition) for row in rows]
    seen = explore(builder.build(), sample=sample(*rows, orders=4, names=4))
    assert seen.errors == ()
    assert len(seen.outputs("checked")) == 1


def test_notes_tell_when_sample_and_topology_read_different_topics() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("orders", "returns").send_to("out")
    seen = explore(builder.build(), sample=sample(record("a", 1, 0), record("b", 1, 0, topic="visits")))
    assert seen.notes == (
        "the sample has no record of 'returns'",
        "the topology does not read 'visits', of which the sample has 1 record",
    )
    assert len(seen.outputs("out")) == 1


def test_unknown_names_are_refused_when_asked_for() -> None:
    seen = explore(totals(), sample=ORDERS)
    with pytest.raises(TopologyError, match=r"KSTREAM-MAP-0000000009.*did you mean 'KSTREAM-MAP-0000000002'"):
        seen["KSTREAM-MAP-0000000009"]
    with pytest.raises(TopologyError, match="does not write the topic 'in'"):
        seen.outputs("in")
    assert MAP in seen
    assert "nope" not in seen
    assert [*seen] == [*seen.nodes]


def test_exploring_is_refused_when_there_is_neither_sample_nor_kafka() -> None:
    with pytest.raises(ConfigError, match="no sample"):
        explore(totals())


def test_an_init_that_fails_is_raised_when_exploring() -> None:
    class Broken(Unsaved):
        def init(self, context: ProcessorContext) -> None:
            raise RuntimeError("no such file")

    builder = TopologyBuilder().add_source("in", "orders").add_processor("p", Broken, "in")
    topology = builder.add_sink("out", "out", "p").build()
    with pytest.raises(RecordError, match="no such file"):
        explore(topology, sample=ORDERS)


def test_rerun_uses_the_same_sample_when_the_topology_was_edited() -> None:
    seen = explore(totals(), sample=ORDERS)
    again = seen.rerun(totals(price=lambda order: 2 * order["cents"]))
    assert isinstance(again, Exploration)
    assert again.sample is seen.sample
    assert [one.value for one in again.outputs("out")] == [500, 600]
    assert not seen.rerun(totals()).diff(seen)


def test_html_shows_text_as_it_is_when_in_a_notebook() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("orders").send_to("out")
    bold = sample(record("<b>k</b>", "<script>\x1b[31m", 0), record("x", b"{", 1))
    seen = explore(builder.build(), sample=bold)
    shown = seen.outputs("out")._repr_html_()
    assert "&lt;b&gt;k&lt;/b&gt;" in shown
    assert "<script>" not in shown
    assert "orders-0@1" in seen._repr_html_()
    assert "\x1b" not in str(seen.outputs("out"))


def test_fields_have_columns_when_all_values_have_the_same_few() -> None:
    seen = explore(totals(), sample=ORDERS)
    columns = seen["KSTREAM-SOURCE-0000000000"].table().columns
    assert columns == ("input record", "key", "value.customer", "value.cents", "timestamp")
    assert seen[MAP].table().columns == ("input record", "key", "value", "timestamp")
    first = seen["KSTREAM-SOURCE-0000000000"].table(rows=1)
    assert first.rows == [("orders-0@17", "'1'", "'ann'", "250", "1970-01-01 00:00:00.017")]
    assert first.more == 2


class Alarm(Processor):
    """Sends what is large to a topic by name; speaks on every second of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(1000, callback=lambda now_ms: context.forward("tick", now_ms))

    def process(self, record: ProcessorRecord) -> None:
        if record.value > 10:
            self.context.send(
                "alarms", record.key, record.value, key_serde=serdes.string(), value_serde=serdes.json()
            )
            self.context.send("out", record.key, record.value)


def test_records_are_seen_when_sent_by_name_or_by_a_punctuation() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("orders").process(Alarm).send_to("out")
    seen = explore(builder.build(), sample=sample(record("a", 50, 0, at=10), record("b", 5, 1, at=1500)))
    assert [(one.key, one.value, one.origin) for one in seen.outputs("alarms")] == [
        (b"a", b"50", "orders-0@0")
    ]
    assert [(one.key, one.value, one.origin) for one in seen.outputs("out")] == [
        ("a", 50, "orders-0@0"),
        ("tick", 1000, "orders-0@1"),
    ]
    assert seen.topics == ("out", "alarms")
    assert seen.errors == ()


def test_window_is_seen_when_it_closes_at_the_end() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("orders").group_by_key().windowed_by(TumblingWindow(size_ms=10)).count(store="n")
    counts.to_stream().map(lambda windowed, n: (windowed.key, n)).send_to("out", value_serde=serdes.int64())
    rows = sample(record("k", 1, 0, at=1), record("k", 1, 1, at=2), record("k", 1, 2, at=11))
    assert [one.value for one in explore(builder.build(), sample=rows).outputs("out")] == [1, 2, 1]


def test_serdes_know_their_topics_when_their_bytes_depend_on_them() -> None:
    builder = KStreamBuilder(default_key_serde=addressed(), default_value_serde=addressed())
    counts = builder.stream("orders").group_by(lambda _, value: value).count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    rows = [
        SampleRecord(
            topic="orders", offset=n, key=b"orders/key/k", value=b"orders/value/" + value, timestamp_ms=n
        )
        for n, value in enumerate([b"a", b"b", b"a"])
    ]
    seen = explore(builder.build(), sample=sample(*rows, record("k", b"elsewhere/value/c", 3)))
    assert [(one.key, one.value) for one in seen.outputs("out")] == [("a", 1), ("b", 1), ("a", 2)]
    assert [failure.origin for failure in seen.errors] == ["orders-0@3"]
