from __future__ import annotations

import sys
from typing import Any

import pytest

from airflow_kstreams import testing
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
    Windowed,
    serdes,
)
from airflow_kstreams.streams.errors import StoreSerdeError, TaskCorruptedError
from airflow_kstreams.testing import OutputRecord, TopologyTestDriver


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def read(driver: TopologyTestDriver, topic: str) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output(topic)]


def counts_by_word() -> Topology:
    made = builder()
    words = made.stream("lines").flat_map(lambda key, line: [(word, 1) for word in line.split()])
    words.group_by_key().count(store="words").to_stream().send_to("counts")
    return made.build()


def test_windowless_part_of_the_example_runs_when_written_as_users_write_it() -> None:
    from airflow_kstreams.streams import KStreamBuilder, serdes
    from airflow_kstreams.testing import TopologyTestDriver

    builder = KStreamBuilder()
    left = builder.stream("left", key_serde=serdes.string(), value_serde=serdes.json())
    right = builder.stream("right", key_serde=serdes.string(), value_serde=serdes.json())
    small, rest = left.branch(lambda k, v: v < 10, lambda k, v: True)
    small.group_by_key().count(store="small-counts").to_stream().send_to(
        "counts", key_serde=serdes.string(), value_serde=serdes.int64()
    )

    driver = TopologyTestDriver(builder.build(), application_id="demo")
    driver.pipe_input("left", key="a", value=1, timestamp_ms=100)  # partition=0 unless given
    driver.pipe_input("right", key="a", value=7, timestamp_ms=103)
    assert driver.store("small-counts").get("a") == 1
    assert [(r.key, r.value, r.timestamp_ms) for r in driver.read_output("counts")] == [("a", 1, 100)]
    assert right is not rest


def test_cached_table_emits_with_every_record_when_each_one_is_committed() -> None:
    made = builder()
    made.stream("in").group_by_key().count(store="n").to_stream().send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app")
    for timestamp_ms in (5, 9, 7):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=timestamp_ms)
    assert read(driver, "out") == [("a", 1, 5), ("a", 2, 9), ("a", 3, 9)]


def test_output_is_read_once_when_it_was_read_before() -> None:
    made = builder()
    made.stream("in").send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app")
    driver.pipe_input("in", key="a", value=1, timestamp_ms=1)
    assert read(driver, "out") == [("a", 1, 1)]
    assert read(driver, "out") == []
    driver.pipe_input("in", key="a", value=2, timestamp_ms=2)
    assert read(driver, "out") == [("a", 2, 2)]


def test_nulls_and_headers_travel_when_a_record_passes_through() -> None:
    made = builder()
    made.stream("in").send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app")
    driver.pipe_input("in", key=None, value=None, timestamp_ms=3, headers=[("h", b"1"), ("h", None)])
    assert driver.read_output("out") == [
        OutputRecord(key=None, value=None, timestamp_ms=3, headers=[("h", b"1"), ("h", None)], partition=0)
    ]


def test_records_go_on_when_they_reach_intermediate_topics() -> None:
    made = builder()
    made.stream("in").map_values(lambda v: v + 1).through("middle").map_values(lambda v: v * 10).send_to(
        "out"
    )
    driver = TopologyTestDriver(made.build(), application_id="app")
    driver.pipe_input("in", key="a", value=1, timestamp_ms=4)
    driver.pipe_input("middle", key="b", value=7, timestamp_ms=5)
    assert read(driver, "middle") == [("a", 2, 4)], "what the test piped in, the topology did not write"
    assert read(driver, "out") == [("a", 20, 4), ("b", 70, 5)]


def test_repartitioned_records_are_counted_when_the_key_changed() -> None:
    driver = TopologyTestDriver(counts_by_word(), application_id="app")
    driver.pipe_input("lines", key=None, value="to be or not to be", timestamp_ms=1)
    assert read(driver, "counts")[-1] == ("be", 2, 1)
    assert dict(driver.store("words").all()) == {"to": 2, "be": 2, "or": 1, "not": 1}
    by_logical_name = driver.read_output("words-repartition")
    assert [record.key for record in by_logical_name] == ["to", "be", "or", "not", "to", "be"]
    driver.pipe_input("app-words-repartition", key="be", value=1, timestamp_ms=2)
    assert driver.store("words").get("be") == 3


def test_keys_lie_where_java_puts_them_when_topics_have_several_partitions() -> None:
    driver = TopologyTestDriver(
        counts_by_word(), application_id="app", partitions={"lines": 3, "counts": 7, "words-repartition": 7}
    )
    driver.pipe_input("lines", key=None, value="21 foobar abc", timestamp_ms=1, partition=2)
    expected = {
        "21": (-973932308 & 0x7FFFFFFF) % 7,
        "foobar": (-790332482 & 0x7FFFFFFF) % 7,
        "abc": 479470107 % 7,
    }
    for topic in ("app-words-repartition", "counts", "app-words-changelog"):
        assert {record.key: record.partition for record in driver.read_output(topic)} == expected, topic
    for word, partition in expected.items():
        assert driver.store("words", partition=partition).get(word) == 1
        assert driver.store("words", partition=(partition + 1) % 7).get(word) is None


def test_repartition_topic_has_the_widest_sources_partitions_when_none_are_given() -> None:
    driver = TopologyTestDriver(counts_by_word(), application_id="app", partitions={"lines": 4})
    assert driver.store("words", partition=3).approximate_count() == 0
    with pytest.raises(ConfigError, match="has 4 tasks"):
        driver.store("words", partition=4)


def test_key_decides_when_no_partition_is_named() -> None:
    made = builder()
    made.stream("in").group_by_key().count(store="n")
    driver = TopologyTestDriver(made.build(), application_id="app", partitions={"in": 7})
    driver.pipe_input("in", key="abc", value=0, timestamp_ms=1)
    driver.pipe_bytes("in", key=b"abc", value=b"0", timestamp_ms=1)
    driver.pipe_records("in", [("abc", 0, 1)])
    assert driver.store("n", partition=479470107 % 7).get("abc") == 3


def test_windows_of_a_key_lie_in_its_partition_when_none_is_named() -> None:
    made, seen = builder(), list[int]()
    windows: Any = made.stream("in", key_serde=serdes.time_windowed(serdes.string(), 10))
    windows.foreach(lambda key, value, context: seen.append(context.partition))
    driver = TopologyTestDriver(made.build(), application_id="app", partitions={"in": 7})
    driver.pipe_input("in", key=Windowed("abc", 0, 10), value=0, timestamp_ms=1)
    driver.pipe_records("in", [(Windowed("abc", 10, 20), 0, 11)])
    assert seen == 2 * [479470107 % 7]


def test_tables_meet_by_foreign_key_when_their_topics_have_several_partitions() -> None:
    made = builder()
    orders, customers = made.table("orders"), made.table("customers")
    joined = orders.join(customers, lambda order, city: [order, city], foreign_key=lambda _, order: order)
    joined.to_stream().send_to("out")
    partitions = {"orders": 2, "customers": 3}
    with TopologyTestDriver(made.build(), application_id="app", partitions=partitions) as driver:
        for customer in ("ann", "bob", "cid", "dan"):
            driver.pipe_input("customers", key=customer, value="Rome", timestamp_ms=0)
            driver.pipe_input("orders", key=f"of {customer}", value=customer, timestamp_ms=1)
        found = [record.value for record in driver.read_output("out")]
    assert found == [[customer, "Rome"] for customer in ("ann", "bob", "cid", "dan")]


def test_keyless_records_take_turns_when_the_output_has_several_partitions() -> None:
    made = builder()
    made.stream("in").send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app", partitions={"out": 3})
    for number in range(4):
        driver.pipe_input("in", key=None, value=number, timestamp_ms=number)
    assert [record.partition for record in driver.read_output("out")] == [0, 1, 2, 0]


def test_changelog_holds_the_stores_changes_when_it_is_read() -> None:
    made = builder()
    numbers = made.stream("in").group_by_key()
    numbers.reduce(lambda total, v: None if v == 0 else total + v, store="sums").to_stream().send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app")
    for at, value in enumerate((1, 2, 0)):
        driver.pipe_input("in", key="a", value=value, timestamp_ms=at)
    assert read(driver, "app-sums-changelog") == [("a", 1, 0), ("a", 3, 1), ("a", None, 2)]
    assert read(driver, "out") == [("a", 1, 0), ("a", 3, 1), ("a", None, 2)]


class Keeping(Processor):
    """Stores each value and says at which offset it met it; reports at the start and the end."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = context.state_store("kept")
        context.forward("init", context.task_id)

    def process(self, record: ProcessorRecord) -> None:
        self.store.put(record.key, record.value)
        self.context.forward(
            record.key, f"{self.context.topic}-{self.context.partition}@{self.context.offset}"
        )

    def close(self) -> None:
        self.context.forward("close", self.context.task_id)


def keeping() -> Topology:
    text = serdes.string()
    return (
        TopologyBuilder()
        .add_source("in", "a", "b", key_serde=text, value_serde=text)
        .add_processor("keep", Keeping, "in")
        .add_state_store(StoreSpec(name="kept", key_serde=text, value_serde=text), "keep")
        .add_sink("middle-out", "middle", "keep", key_serde=text, value_serde=text)
        .add_source("middle-in", "middle", key_serde=text, value_serde=text)
        .add_sink("out", "out", "middle-in", key_serde=text, value_serde=text)
        .build()
    )


def test_processors_meet_offsets_per_partition_when_several_topics_are_read() -> None:
    driver = TopologyTestDriver(keeping(), application_id="app", partitions={"a": 2, "b": 2})
    driver.read_output("out")
    for topic, partition in (("a", 0), ("b", 1), ("a", 0), ("a", 1)):
        driver.pipe_input(topic, key="k", value="v", timestamp_ms=1, partition=partition)
    assert [record.value for record in driver.read_output("out")] == ["a-0@0", "b-1@0", "a-0@1", "a-1@0"]


def test_what_init_and_close_forward_goes_all_the_way_when_they_are_called() -> None:
    with TopologyTestDriver(keeping(), application_id="app") as driver:
        assert [(r.key, r.value) for r in driver.read_output("out")] == [("init", "0_0")]
    assert [(r.key, r.value) for r in driver.read_output("out")] == [("close", "0_0")]
    driver.close()
    assert driver.read_output("out") == []


def test_store_is_seen_in_order_when_it_is_read_by_range() -> None:
    driver = TopologyTestDriver(keeping(), application_id="app")
    for key in ("c", "a", "b"):
        driver.pipe_input("a", key=key, value=key * 2, timestamp_ms=1)
    view = driver.store("kept")
    assert list(view.range("a", "b")) == [("a", "aa"), ("b", "bb")]
    assert list(view.range("b", None)) == [("b", "bb"), ("c", "cc")]
    assert list(view.all()) == [("a", "aa"), ("b", "bb"), ("c", "cc")]
    assert view.approximate_count() == 3
    driver.pipe_input("b", key="d", value="dd", timestamp_ms=1)
    assert view.get("d") == "dd", "the view is live"


def test_buffering_does_not_hold_records_back_when_a_task_reads_several_topics() -> None:
    driver = TopologyTestDriver(
        keeping(), application_id="app", settings={"buffered.records.per.partition": 50}
    )
    driver.pipe_input("b", key="k", value="late", timestamp_ms=9_000)
    driver.pipe_input("a", key="k", value="early", timestamp_ms=1)
    assert driver.store("kept").get("k") == "early"


def test_a_record_costs_as_little_after_thousands_when_a_test_pipes_them() -> None:
    driver = TopologyTestDriver(counts_by_word(), application_id="app")
    at_work = [0, 0]

    def count(*_: Any) -> None:
        at_work[half] += 1

    for half in (0, 1):
        # A clock would tell of the machine; this tells how much Python has to do.
        sys.setprofile(count)
        for number in range(half * 2_500, half * 2_500 + 2_500):
            driver.pipe_input("lines", key=None, value=f"w{number % 10}", timestamp_ms=number)
        sys.setprofile(None)
    assert driver.store("words").get("w3") == 500
    first, second = (calls / 2_500 for calls in at_work)
    assert second < first * 1.01, "a record costs more, the more came before it"
    assert first < 1_300, f"{first:.0f} calls and returns for a record"


def test_every_public_name_is_documented_when_exported() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__doc__, name


def test_bytes_are_piped_as_they_are_when_the_source_may_not_decode_them() -> None:
    made = builder()
    made.stream("in").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_bytes("in", key=b"k", value=b" [1] ", timestamp_ms=5, headers=[("h", b"1")])
        (record,) = driver.read_output("out")
        assert (record.key, record.value, record.timestamp_ms, record.headers) == ("k", [1], 5, [("h", b"1")])
        with pytest.raises(RecordError, match="cannot decode in-0@1"):
            driver.pipe_bytes("in", key=b"k", value=b"{", timestamp_ms=6)
        with pytest.raises(TaskCorruptedError):
            driver.pipe_bytes("in", key=b"k", value=b"1", timestamp_ms=7)


def test_bytes_are_decoded_as_the_source_would_when_nothing_is_piped() -> None:
    made = builder()
    made.stream("in").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        assert driver.decode_input("in", key=b"k", value=b"[1]") == ("k", [1])
        assert driver.decode_input("in", key=None, value=None) == (None, None)
        with pytest.raises(ValueError, match=r"malformed|truncated"):
            driver.decode_input("in", key=None, value=b"{")
        assert driver.read_output("out") == []


def test_bytes_are_refused_when_the_topic_or_partition_is_unknown() -> None:
    made = builder()
    made.stream("in").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        with pytest.raises(TopologyError, match="does not read the topic 'other'"):
            driver.pipe_bytes("other", key=None, value=b"1", timestamp_ms=0)
        with pytest.raises(ConfigError, match="no partition 3"):
            driver.pipe_bytes("in", key=None, value=b"1", timestamp_ms=0, partition=3)


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({"processing.exception.handler": "dead-letter"}, "app-dead-letter"),
        (
            {
                "deserialization.exception.handler": "dead-letter",
                "errors.dead.letter.queue.topic.name": "refused",
            },
            "refused",
        ),
    ],
)
def test_no_dead_letter_is_read_when_no_record_failed(settings: dict[str, object], topic: str) -> None:
    driver = TopologyTestDriver(counts_by_word(), application_id="app", settings=settings)
    assert driver.read_output(topic) == []
    driver.pipe_input("lines", key=None, value="an ox", timestamp_ms=0)
    assert driver.read_output(topic) == []


def test_dead_letter_topic_is_unknown_when_no_handler_sends_there() -> None:
    driver = TopologyTestDriver(counts_by_word(), application_id="app")
    with pytest.raises(TopologyError, match="does not write the topic 'app-dead-letter'"):
        driver.read_output("app-dead-letter")


def _count_in(_: str, number: int, seen: dict[int, int]) -> dict[int, int]:
    return {**seen, number: seen.get(number, 0) + 1}


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@pytest.mark.parametrize("cached", [True, False])
def test_aggregate_is_refused_when_a_later_run_would_restore_another_one(storage: str, cached: bool) -> None:
    if storage == "rocksdb":
        pytest.importorskip("rocksdict")
    made = builder()
    store = StoreSpec(
        name="seen",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        storage=storage,  # type: ignore[arg-type]
        cached=cached,
    )
    made.stream("numbers").group_by_key().aggregate(dict, _count_in, store=store).to_stream().send_to("out")

    with TopologyTestDriver(made.build(), application_id="demo") as driver:
        with pytest.raises(StoreSerdeError, match=r"store 'seen', at a key of 1 B: .*type dict") as raised:
            driver.pipe_input("numbers", key="a", value=1, timestamp_ms=0)
        assert "serdes.json(dict[int,int])" in raised.value.fix
        assert driver.read_output("demo-seen-changelog") == []
