"""Whole slices in the test driver: several records of a topic, and the blocks that are runs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    ConfigError,
    FixedGroups,
    KStreamBuilder,
    KStreamsError,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("driver-gives-what-runs-give")


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in driver.read_output(topic)]


def priced() -> Topology:
    made = builder()
    prices = made.table("prices", store="prices")
    made.stream("orders").join(prices, lambda order, price: [order, price]).send_to("out")
    return made.build()


def windowed() -> Topology:
    made = builder()
    folded = made.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
    folded.count(store="n").suppress().to_stream().send_to("out")
    return made.build()


def test_records_of_a_slice_look_ahead_when_they_are_piped_together() -> None:
    records = [("a", 0, 12), ("a", 0, 5), ("a", 0, 30)]
    with TopologyTestDriver(windowed(), application_id="app") as driver:
        driver.pipe_records("in", records)
        assert values(driver) == [1, 1], "the second record is no later than the slice lets it be"
    with TopologyTestDriver(windowed(), application_id="app") as driver:
        for key, value, timestamp_ms in records:
            driver.pipe_input("in", key=key, value=value, timestamp_ms=timestamp_ms)
        assert values(driver) == [1], "one by one, the second record is late"


def test_partitions_are_read_by_time_when_keys_spread_the_records_over_them() -> None:
    made = builder()
    made.stream("in").send_to("out")
    settings = {"buffered.records.per.partition": 1}
    one = TopologyTestDriver(made.build(), application_id="app", settings=settings)
    one.pipe_records("in", [("a", 1, 9), ("a", 2, 1)])
    assert values(one) == [1, 2], "the order of a partition stays"

    text = serdes.string()

    grouped = KStreamBuilder(
        default_key_serde=text, default_value_serde=text, partition_grouper=FixedGroups(1)
    )
    grouped.stream("in").send_to("out")
    both = TopologyTestDriver(grouped.build(), application_id="app", partitions={"in": 2})
    keys = ("21", "abc")  # of partitions 1 and 0, murmur2 says
    both.pipe_records("in", [(keys[0], "late", 9), (keys[1], "early", 3)], partition=None)
    assert values(both) == ["early", "late"]


def test_table_is_joined_by_time_when_a_run_reads_both_topics() -> None:
    with TopologyTestDriver(priced(), application_id="app") as driver:
        with driver.run():
            driver.pipe_records("orders", [("a", 1, 15), ("a", 2, 25)])
            driver.pipe_input("prices", key="a", value=5, timestamp_ms=10)
            driver.pipe_bytes("prices", key=b"a", value=b"6", timestamp_ms=20)
            assert values(driver) == [], "nothing is processed before the block's end"
            assert driver.store("prices").get("a") is None
        assert values(driver) == [[1, 5], [2, 6]]
        assert driver.store("prices").get("a") == 6


class Noting(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.forward("init", context.task_id)

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, record.value)

    def close(self) -> None:
        self._context.forward("close", self._context.task_id)


def noting() -> Topology:
    made = builder()
    made.stream("in").process(Noting).through("middle").process(Noting).send_to("out")
    return made.build()


def keys_of(driver: TopologyTestDriver, topic: str) -> list[Any]:
    return [record.key for record in driver.read_output(topic)]


def test_each_block_is_a_run_when_processors_note_begin_and_end() -> None:
    with TopologyTestDriver(noting(), application_id="app") as driver:
        with driver.run():
            driver.pipe_input("in", key="a", value=0, timestamp_ms=1)
        assert keys_of(driver, "middle") == ["init", "a", "close"]
        driver.read_output("out")
        with driver.run():
            driver.pipe_input("in", key="b", value=0, timestamp_ms=2)
        assert keys_of(driver, "middle") == ["init", "b", "close"]
        assert keys_of(driver, "out") == ["init", "init", "b", "close", "close"]
    assert keys_of(driver, "middle") == [], "a run that did not begin does not end"


def test_run_of_single_records_ends_first_when_a_block_follows() -> None:
    with TopologyTestDriver(noting(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=0, timestamp_ms=1)
        with driver.run():
            driver.pipe_input("in", key="b", value=0, timestamp_ms=2)
        driver.pipe_input("in", key="c", value=0, timestamp_ms=3)
        assert keys_of(driver, "middle") == ["init", "a", "close", "init", "b", "close", "init", "c"]
        driver.restart()
        driver.restart()
        assert keys_of(driver, "middle") == ["close", "init", "close", "init"]


def test_nothing_happens_when_a_run_has_no_records() -> None:
    with TopologyTestDriver(noting(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=0, timestamp_ms=1)
        with driver.run():
            pass
        with driver.run():
            driver.pipe_records("in", [])
        driver.pipe_records("in", [])
        assert keys_of(driver, "middle") == ["init", "a"]


def test_records_are_dropped_when_the_block_raises() -> None:
    with TopologyTestDriver(priced(), application_id="app") as driver:
        with pytest.raises(RuntimeError, match="of the test"), driver.run():
            driver.pipe_input("prices", key="a", value=5, timestamp_ms=1)
            raise RuntimeError("of the test")
        driver.pipe_input("orders", key="a", value=1, timestamp_ms=2)
        driver.pipe_input("prices", key="a", value=6, timestamp_ms=3)
        driver.pipe_input("orders", key="a", value=2, timestamp_ms=4)
        assert values(driver) == [[2, 6]]


@pytest.mark.parametrize("step", ["restart", "run", "close", "advance_wall_clock"])
def test_step_is_refused_when_the_driver_is_in_a_block(step: str) -> None:
    driver = TopologyTestDriver(priced(), application_id="app")
    with driver.run():
        driver.pipe_input("prices", key="a", value=5, timestamp_ms=1)
        with pytest.raises(ConfigError, match=r"block of run\(\)"):
            _take(driver, step)
    assert driver.store("prices").get("a") == 5


def _take(driver: TopologyTestDriver, step: str) -> None:
    match step:
        case "run":
            with driver.run():
                pass
        case "advance_wall_clock":
            driver.advance_wall_clock(1)
        case _:
            getattr(driver, step)()


@pytest.mark.parametrize(
    ("records", "kind", "text"),
    [
        ("abc", ConfigError, "records is of type str, expected (key, value, timestamp_ms) of each"),
        (5, ConfigError, "records is of type int"),
        ({"a": 1}, ConfigError, "records is of type dict"),
        ([("a", 1, 0), ("a", 1)], ConfigError, "records[1] is of type tuple and length 2"),
        ([5], ConfigError, "records[0] is of type int, expected"),
        (["abc"], ConfigError, "records[0] is of type str and length 3"),
        ([("a", 1, 0), ("a", 1, 1.5)], ConfigError, "timestamp_ms of records[1] is 1.5"),
        ([("a", 1, -2)], ConfigError, "timestamp_ms of records[0] is -2"),
        (
            [("a", 1, 0), (5, 1, 0)],
            RecordError,
            "cannot encode the key of records[1], of type int, for topic",
        ),
        ([("a", object(), 0)], RecordError, "cannot encode the value of records[0], of type object"),
    ],
)
@pytest.mark.parametrize("in_block", [True, False])
def test_nothing_is_written_when_a_record_of_several_is_wrong(
    records: Any, kind: type[KStreamsError], text: str, in_block: bool
) -> None:
    made = builder()
    made.stream("in").process(Offsets).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        if in_block:
            with driver.run():
                with pytest.raises(kind) as caught:
                    driver.pipe_records("in", records)
                driver.pipe_records("in", [("a", 1, 1)])
        else:
            with pytest.raises(kind) as caught:
                driver.pipe_records("in", records)
            driver.pipe_records("in", [("a", 1, 1)])
        assert text in str(caught.value)
        assert caught.value.fix
        assert values(driver) == [0]


class Offsets(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, self._context.offset)


def test_topic_or_partition_is_refused_when_several_records_are_piped() -> None:
    with TopologyTestDriver(priced(), application_id="app") as driver:
        with pytest.raises(TopologyError, match="did you mean 'orders'"):
            driver.pipe_records("order", [("a", 1, 1)])
        with pytest.raises(ConfigError, match="no partition 1"):
            driver.pipe_records("orders", [("a", 1, 1)], partition=1)


def test_driver_is_not_used_further_when_a_record_of_a_run_fails() -> None:
    made = builder()
    made.stream("in").map_values(lambda n: 1 // n).send_to("out")
    settings = {"commit.every.records": 1}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        with pytest.raises(RecordError, match="in-0@1"), driver.run():
            driver.pipe_records("in", [("a", 1, 1), ("a", 0, 2), ("a", 1, 3)])
        assert values(driver) == [1], "what was committed before stays"
        with pytest.raises(KStreamsError, match="failed at an earlier record"):
            driver.pipe_input("in", key="a", value=1, timestamp_ms=4)
