from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    GlobalKTable,
    KStreamBuilder,
    RecordError,
    SlidingWindow,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.figures.record_counts import LeftOut
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("global-tables-stand-still-in-a-run")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _destination(key: str | None, value: str) -> str | None:
    return None if value == "-" else value


def _both(value: str, name: str | None) -> str:
    return f"{value}:{name}"


def _joined(call: str, *, rekeyed: bool = False) -> Topology:
    builder = _builder()
    airports, flights = builder.global_table("airports"), builder.stream("flights")
    if rekeyed:
        flights = flights.select_key(lambda key, value: value)
    getattr(flights, call)(airports, _both, key=_destination).send_to("out")
    return builder.build()


def _read(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in driver.read_output("out")]


@pytest.mark.parametrize(
    ("call", "expected", "left_out"),
    [
        ("join", ["JFK:New York", "JFK:New York"], {("null", 2), ("unmatched", 1)}),
        (
            "left_join",
            ["JFK:New York", "LAX:None", "-:None", "JFK:New York"],
            {("null", 1)},
        ),
    ],
)
def test_record_is_joined_with_the_entry_that_it_names(
    call: str, expected: list[str], left_out: set[tuple[str, int]]
) -> None:
    with TopologyTestDriver(_joined(call), application_id="app", partitions={"airports": 3}) as driver:
        for number, airport in enumerate(("JFK", "BOS")):
            driver.pipe_input("airports", key=airport, value="New York", timestamp_ms=99, partition=number)
        for key, value in (("1", "JFK"), ("2", "LAX"), ("3", "-"), ("4", None), (None, "JFK")):
            driver.pipe_input("flights", key=key, value=value, timestamp_ms=0)
        assert [value for _, value in _read(driver)] == expected
        assert {(each.rule, each.records) for each in driver.counts.left_out} == left_out


def test_table_is_what_it_was_when_the_run_began_in_each_run() -> None:
    with TopologyTestDriver(_joined("left_join"), application_id="app") as driver:
        for name in ("one", "two", None):
            with driver.run():
                driver.pipe_input("flights", key="1", value="JFK", timestamp_ms=0)
                driver.pipe_input("airports", key="JFK", value="before", timestamp_ms=9)
                driver.pipe_input("airports", key="JFK", value=name, timestamp_ms=9)
        assert [value for _, value in _read(driver)] == ["JFK:one", "JFK:two", "JFK:None"]


def test_table_stays_when_a_run_ends_and_the_next_one_begins() -> None:
    with TopologyTestDriver(_joined("left_join"), application_id="app") as driver:
        driver.pipe_input("airports", key="JFK", value="New York", timestamp_ms=0)
        driver.pipe_input("airports", key=None, value="nowhere", timestamp_ms=0)
        driver.restart()
        driver.pipe_input("flights", key="1", value="JFK", timestamp_ms=0)
        assert [value for _, value in _read(driver)] == ["JFK:New York"]


def test_error_names_the_serde_that_the_named_key_does_not_fit() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream: Any = builder.stream("in")
    numbered = builder.global_table("t", key_serde=serdes.int64())
    stream.join(numbered, lambda value, other: value, key=lambda key, value: value).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    with pytest.raises(RecordError, match=r"key: the function returned str, .* are serdes.int64"):
        driver.pipe_input("in", key="1", value="a", timestamp_ms=0)


def test_stream_is_not_repartitioned_and_partition_counts_need_not_fit() -> None:
    plan = _joined("join", rekeyed=True).plan("app")
    assert (plan.inputs, plan.repartition_topics, plan.globals) == (("flights",), {}, ("airports",))
    assert plan.subtopologies[0].copartitioned == ()
    partitions = {"airports": 2, "flights": 3}
    with TopologyTestDriver(_joined("join"), application_id="app", partitions=partitions) as driver:
        driver.pipe_input("airports", key="JFK", value="New York", timestamp_ms=0, partition=1)
        for partition in range(3):
            driver.pipe_input("flights", key="1", value="JFK", timestamp_ms=0, partition=partition)
        assert len(_read(driver)) == 3


def test_hash_holds_topic_and_serdes() -> None:
    hashes = set()
    for topic, serde in (("a", serdes.string()), ("b", serdes.string()), ("a", serdes.json())):
        builder = _builder()
        table = builder.global_table(topic, value_serde=serde)
        builder.stream("in").join(table, _both, key=_destination).send_to("out")
        hashes.add(builder.build().topology_hash())
    assert len(hashes) == 3


def test_join_is_refused_when_it_cannot_be() -> None:
    builder = _builder()
    table, stream = builder.global_table("airports"), builder.stream("flights")
    assert isinstance(table, GlobalKTable)
    with pytest.raises(TopologyError, match="does not say which entry a record names"):
        stream.join(table, _both)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="GlobalKTable of another builder"):
        stream.join(_builder().global_table("airports"), _both, key=_destination)
    with pytest.raises(TopologyError, match="key= for a join on the records' own keys"):
        stream.join(builder.table("names"), _both, key=_destination)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="given str as key, expected a function"):
        stream.join(table, _both, key="key")  # type: ignore[call-overload]


def test_pattern_is_refused_when_it_matches_the_topic() -> None:
    builder = _builder()
    flights = builder.stream(pattern="air.*")
    flights.join(builder.global_table("airports"), _both, key=_destination).send_to("out")
    with pytest.raises(TopologyError, match="which is a global table"):
        builder.build()


def test_windowed_stream_is_joined_as_any_other() -> None:
    builder = _builder()
    flights = builder.stream("flights").with_window(SlidingWindow(size_ms=1))
    flights.join(builder.global_table("airports"), _both, key=_destination).send_to("out")
    with pytest.raises(TopologyError, match="key= for a join on the records' own keys"):
        flights.join(flights, _both, key=_destination)  # type: ignore[call-overload]
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for topic, key, value in (("airports", "JFK", "New York"), ("flights", "1", "JFK")):
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=0)
        assert _read(driver) == [("1", "JFK:New York")]


@pytest.mark.parametrize("does", ["reads", "writes"])
def test_topic_is_refused_when_the_topology_reads_or_writes_it_besides(does: str) -> None:
    builder = _builder()
    joined = builder.stream("flights").join(builder.global_table("airports"), _both, key=_destination)
    joined.send_to("airports" if does == "writes" else "out")
    if does == "reads":
        builder.stream("airports").send_to("copy")
    with pytest.raises(TopologyError, match=rf"{does} the topic 'airports', which is a global table"):
        builder.build()


def test_topic_is_refused_when_it_is_the_engines() -> None:
    builder = _builder()
    table = builder.table("flights", store="by-number")
    changelog = builder.global_table("app-by-number-changelog")
    table.to_stream().join(changelog, _both, key=_destination).send_to("out")
    with pytest.raises(TopologyError, match="'app-by-number-changelog' is the engine's"):
        builder.build().plan("app")


def test_storage_is_refused_when_there_is_none_such() -> None:
    with pytest.raises(TopologyError, match=r"global_table\('airports'\) at .*test_global_table.py:\d+ has"):
        _builder().global_table("airports", storage="disk")  # type: ignore[call-overload]


def test_table_is_described_as_in_kafka_streams_and_drawn_beside_what_uses_it() -> None:
    topology = _joined("join")
    assert topology.describe().endswith(
        """
  Sub-topology: 1 for global store (will not generate tasks)
    Source: airports-source (topics: [airports])
      --> airports-table
    Processor: airports-table (stores: [airports])
      --> none
      <-- airports-source
"""
    )
    drawn = topology.to_mermaid()
    assert 'table0[("airports")]:::store' in drawn
    assert "node1 -.- table0" in drawn
    assert "global table" in topology.to_svg()


def test_records_without_key_are_counted_with_the_run_that_reads_the_table() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = made.global_table("names")
    made.stream("codes").left_join(names, lambda code, name: name, key=lambda key, code: code).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("names", key=None, value="nobody", timestamp_ms=0)
        driver.pipe_input("codes", key="k", value="a", timestamp_ms=0)
        assert LeftOut("global table names", "null", 1) in driver.counts.left_out
