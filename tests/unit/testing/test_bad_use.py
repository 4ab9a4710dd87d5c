from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    StateStoreError,
    StoreSpec,
    Topology,
    TopologyBuilder,
    serdes,
)
from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    RecordError,
    TaskCorruptedError,
    TopologyError,
)
from airflow_kstreams.streams.kstream.operators.stateless import PassThrough
from airflow_kstreams.testing import TopologyTestDriver


def inverses() -> Topology:
    """Of whole numbers; a zero fails after its neighbours were written."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    numbers = builder.stream("numbers", value_serde=serdes.int64())
    numbers.send_to("seen")
    numbers.group_by_key().count(store="met").to_stream().send_to("counts")
    numbers.map_values(lambda n: 1 / n).through("middle").map_values(lambda f: 1 / (f - 1)).send_to("out")
    return builder.build()


def piped(**given: Any) -> Callable[[TopologyTestDriver], object]:
    record = {"key": "a", "value": 2, "timestamp_ms": 1, **given}
    topic = record.pop("topic", "numbers")
    return lambda driver: driver.pipe_input(topic, **record)


@pytest.mark.parametrize(
    ("use", "kind", "text"),
    [
        (piped(topic="number"), TopologyError, "does not read the topic 'number'; did you mean 'numbers'?"),
        (piped(topic="out"), TopologyError, "pipe into a topic it reads: middle, numbers"),
        (piped(value="2"), RecordError, "cannot encode the value, of type str, for topic 'numbers'"),
        (piped(value=2**63), RecordError, "with serdes.int64"),
        (piped(key=5), RecordError, "cannot encode the key, of type int"),
        (piped(partition=1), ConfigError, "topic 'numbers' has no partition 1: its partitions are 0 to 0"),
        (piped(partition=-1), ConfigError, "has no partition -1"),
        (piped(timestamp_ms=-2), ConfigError, "timestamp_ms is -2"),
        (piped(timestamp_ms=2**63), ConfigError, "timestamp_ms is 9223372036854775808"),
        (piped(timestamp_ms=1.5), ConfigError, "timestamp_ms is 1.5"),
        (piped(headers={"h": b"1"}), ConfigError, "a header is 'h'"),
        (piped(headers=[("h", "1")]), ConfigError, "expected a pair of a text and bytes or None"),
        (lambda d: d.read_output("ot"), TopologyError, "does not write the topic 'ot'; did you mean 'out'?"),
        (
            lambda d: d.read_output("numbers"),
            TopologyError,
            "a topic it writes: app-met-changelog, counts",
        ),
        (
            lambda d: d.store("mat"),
            TopologyError,
            "no store 'mat'; did you mean 'met'? [KS-APP-003]\nWhat to do: stores",
        ),
        (lambda d: d.store("met", partition=1), ConfigError, "its subtopology has 1 task"),
        (lambda d: d.store("met").get(5), StateStoreError, "store 'met' was asked for keys of type int"),
        (lambda d: d.store("met").get(None), StateStoreError, "was asked for the key None"),
        (lambda d: d.store("met").range("a", 5), StateStoreError, "keys of type str and int"),
    ],
)
def test_misuse_is_refused_and_the_driver_goes_on_when_the_test_is_wrong(
    use: Callable[[TopologyTestDriver], object], kind: type[KStreamsError], text: str
) -> None:
    driver = TopologyTestDriver(inverses(), application_id="app")
    with pytest.raises(kind) as caught:
        use(driver)
    assert text in str(caught.value)
    assert caught.value.fix
    driver.pipe_input("numbers", key="a", value=2, timestamp_ms=1)
    assert [(r.value, r.partition) for r in driver.read_output("out")] == [(-2.0, 0)]
    assert driver.store("met").get("a") == 1


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"application_id": "no good"}, ConfigError, "cannot name Kafka topics"),
        ({"settings": {"commit.every.record": 1}}, ConfigError, "commit.every.record"),
        ({"partitions": {"nmbers": 2}}, ConfigError, "no topic of the topology; did you mean 'numbers'?"),
        ({"partitions": {"numbers": 0}}, ConfigError, "gives topic 'numbers' 0 partitions"),
        ({"partitions": {"numbers": "2"}}, ConfigError, "gives topic 'numbers' '2' partitions"),
        ({"partitions": 3}, ConfigError, "partitions= is 3, expected the count by topic"),
        ({"settings": "a=1"}, ConfigError, "the settings are of type str, expected values by dotted names"),
        ({"topology": 5}, TopologyError, "is given a int, expected a Topology"),
        ({"topology": KStreamBuilder()}, TopologyError, "call builder.build()"),
        ({"topology": TopologyBuilder()}, TopologyError, "call builder.build()"),
        ({"topology": inverses}, TopologyError, "call it, if it makes one: inverses()"),
        ({"partitions": {"app-met-changelog": 2}}, ConfigError, "names the changelog 'app-met-changelog'"),
        (
            {
                "settings": {
                    "processing.exception.handler": "dead-letter",
                    "errors.dead.letter.queue.topic.name": "numbers",
                }
            },
            ConfigError,
            "the dead-letter topic 'numbers' is also read by the topology",
        ),
    ],
)
def test_driver_is_not_made_when_its_arguments_cannot_be(
    given: dict[str, Any], kind: type[KStreamsError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        TopologyTestDriver(**{"topology": inverses(), "application_id": "app", **given})
    assert text in str(caught.value)
    assert caught.value.fix


def test_unequal_counts_are_refused_when_a_store_needs_them_equal() -> None:
    bytes_ = serdes.bytes()
    topology = (
        TopologyBuilder()
        .add_source("in", "a", "b")
        .add_operator("idle", PassThrough(type="idle"), "in", stores=["s"])
        .add_state_store(StoreSpec(name="s", key_serde=bytes_, value_serde=bytes_))
        .build()
    )
    with pytest.raises(TopologyError, match="'a' has 2 and 'b' has 1"):
        TopologyTestDriver(topology, application_id="app", partitions={"a": 2})


@pytest.mark.error_example("KS-TASK-003")
def test_nothing_of_a_failed_record_is_visible_when_its_commit_was_aborted() -> None:
    driver = TopologyTestDriver(inverses(), application_id="app")
    driver.pipe_input("numbers", key="a", value=4, timestamp_ms=1)
    view = driver.store("met")
    with pytest.raises(RecordError, match=r"processing failed for numbers-0@1 .*ZeroDivisionError"):
        driver.pipe_input("numbers", key="a", value=0, timestamp_ms=2)
    assert [r.value for r in driver.read_output("seen")] == [4]
    assert [r.value for r in driver.read_output("counts")] == [1]
    assert [r.value for r in driver.read_output("app-met-changelog")] == [1]
    later: list[Callable[[], object]] = [
        lambda: driver.pipe_input("numbers", key="a", value=2, timestamp_ms=3),
        lambda: driver.store("met"),
        lambda: view.get("a"),
    ]
    for use in later:
        with pytest.raises(TaskCorruptedError, match="task 0_0 failed at an earlier record") as caught:
            use()
        assert caught.value.task_id == "0_0"
    driver.close()


def test_upstream_commit_stays_when_the_record_fails_downstream() -> None:
    driver = TopologyTestDriver(inverses(), application_id="app")
    with pytest.raises(RecordError, match="processing failed for middle-0@0"):
        driver.pipe_input("numbers", key="a", value=1, timestamp_ms=1)
    assert [r.value for r in driver.read_output("middle")] == [1.0]
    assert driver.read_output("out") == []


def test_driver_is_refused_when_it_is_closed() -> None:
    driver = TopologyTestDriver(inverses(), application_id="app")
    driver.pipe_input("numbers", key="a", value=2, timestamp_ms=1)
    view = driver.store("met")
    driver.close()
    for use in (piped(), lambda d: d.store("met"), lambda d: view.get("a")):
        with pytest.raises(ConfigError, match="the driver is closed"):
            use(driver)
    assert len(driver.read_output("seen")) == 1


def test_reader_must_say_how_when_two_sinks_write_a_topic_differently() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    numbers = builder.stream("numbers")
    numbers.send_to("out", value_serde=serdes.int64())
    numbers.send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    driver.pipe_input("numbers", key="a", value=3, timestamp_ms=1)
    with pytest.raises(TopologyError, match="'out' is written with several pairs of serdes, by 'KSTREAM-"):
        driver.read_output("out")
    with pytest.raises(RecordError, match="cannot decode out-0@1") as caught:
        driver.read_output("out", key_serde=serdes.string(), value_serde=serdes.int64())
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("out", 0, 1)
    read = driver.read_output("out", key_serde=serdes.string(), value_serde=serdes.bytes())
    assert [record.value for record in read] == [(3).to_bytes(8, "big"), b"3"]
