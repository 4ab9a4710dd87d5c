"""Whole topologies on registry serdes, in the tasks that a run uses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    StoreSpec,
    TumblingWindow,
    Windowed,
    serdes,
)
from airflow_kstreams.streams.errors import ConfigError, RecordError
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.kafka.registries import (
    FLIGHT,
    FLIGHT_2,
    FLIGHT_JSON,
    avro_string,
    framed,
    message_class,
    new_registry,
)

TOTAL = json.dumps({"title": "Total", "type": "object", "properties": {"delay": {"type": "integer"}}})


def test_formats_meet_in_one_topology_when_each_topic_has_its_own() -> None:
    registry = new_registry()
    flight = message_class("Flight")
    builder = KStreamBuilder(default_key_serde=serdes.string())
    flights = builder.stream("flights", value_serde=registry.avro(FLIGHT))
    flights.map_values(lambda value: flight(**value)).send_to(
        "as-protobuf", value_serde=registry.protobuf(flight)
    )
    flights.send_to("as-json", value_serde=registry.json_schema(FLIGHT_JSON))
    totals = flights.group_by(lambda key, value: value["carrier"]).aggregate(
        lambda: {"delay": 0},
        lambda key, value, total: {"delay": total["delay"] + value["delay"]},
        store="totals",
        value_serde=registry.json_schema(TOTAL),
    )
    totals.to_stream().send_to("totals-out")

    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("flights", key="1", value={"carrier": "UA", "delay": 12}, timestamp_ms=1)
        driver.pipe_input("flights", key="2", value={"carrier": "UA"}, timestamp_ms=2)

        written = [record.value for record in driver.read_output("as-protobuf")]
        assert [(message.carrier, message.delay) for message in written] == [("UA", 12), ("UA", 0)]
        assert driver.read_output("as-json")[0].value == {"carrier": "UA", "delay": 12}
        assert [(r.key, r.value) for r in driver.read_output("totals-out")] == [
            ("UA", {"delay": 12}),
            ("UA", {"delay": 12}),
        ]
        assert driver.store("totals").get("UA") == {"delay": 12}
        assert [r.value for r in driver.read_output("app-totals-changelog")] == [{"delay": 12}] * 2

    assert sorted(registry.client().get_subjects()) == [
        "app-totals-changelog-value",
        "app-totals-repartition-value",
        "as-json-value",
        "as-protobuf-value",
        "flights-value",
        "totals-out-value",
    ]


def test_bytes_are_confluents_when_a_topology_writes_them() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=serdes.json()).send_to("out", value_serde=registry.avro('"string"'))
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="1", value="UA", timestamp_ms=1)
        read = driver.read_output("out", value_serde=serdes.bytes())
    assert [record.value for record in read] == [framed(1, avro_string("UA"))]


def test_serde_is_bound_to_the_topic_when_a_test_reads_with_its_own() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=registry.avro(FLIGHT)).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="1", value={"carrier": "UA", "delay": 3}, timestamp_ms=1)
        read = driver.read_output("out", value_serde=registry.avro(FLIGHT_2))
    assert [record.value for record in read] == [{"carrier": "UA", "delay": 3.0, "origin": "?"}]


def test_each_topic_has_its_own_subject_when_a_source_reads_several() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("east", "west", value_serde=registry.avro(FLIGHT)).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for topic in ("east", "west"):
            driver.pipe_input(topic, key="1", value={"carrier": topic, "delay": 1}, timestamp_ms=1)
            driver.pipe_input(topic, key="1", value=None, timestamp_ms=1)
        east, no_east, west, no_west = [record.value for record in driver.read_output("out")]
    assert (east, west) == ({"carrier": "east", "delay": 1}, {"carrier": "west", "delay": 1})
    assert (no_east, no_west) == (None, None)
    assert sorted(registry.client().get_subjects()) == ["east-value", "out-value", "west-value"]


def test_table_is_found_by_key_when_keys_have_a_schema() -> None:
    registry = new_registry()
    code = registry.avro('"string"')
    builder = KStreamBuilder(default_key_serde=code, default_value_serde=registry.avro('"string"'))
    names = builder.table("airlines", store="airlines")
    builder.stream("flights").join(names, lambda flight, name: f"{flight} by {name}").send_to("out")

    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("airlines", key="UA", value="United", timestamp_ms=1)
        driver.pipe_input("flights", key="UA", value="UA 1", timestamp_ms=2)
        assert [(r.key, r.value) for r in driver.read_output("out")] == [("UA", "UA 1 by United")]
        assert driver.store("airlines").get("UA") == "United"


class Latest(Processor):
    """Keeps and forwards the latest value of each key."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = context.state_store("latest")

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, self.store.get(record.key))
        self.store.put(record.key, record.value)


def test_processor_uses_its_store_when_key_and_value_have_schemas() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=registry.avro('"string"'))
    spec = StoreSpec(
        name="latest", key_serde=registry.avro('"string"'), value_serde=registry.json_schema(FLIGHT_JSON)
    )
    builder.stream("in", value_serde=registry.avro(FLIGHT)).process(Latest, spec).send_to(
        "out", value_serde=registry.avro(FLIGHT)
    )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for delay in (1, 2):
            driver.pipe_input("in", key="a", value={"carrier": "UA", "delay": delay}, timestamp_ms=delay)
        assert [r.value for r in driver.read_output("out")] == [None, {"carrier": "UA", "delay": 1}]
        assert list(driver.store("latest").all()) == [("a", {"carrier": "UA", "delay": 2})]
        assert [r.key for r in driver.read_output("app-latest-changelog")] == ["a", "a"]


def pipe_bad_value(value_serde: Any, value: Any) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=serdes.json()).send_to("out", value_serde=value_serde)
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="1", value=value, timestamp_ms=1)


def test_record_is_at_fault_when_its_value_does_not_fit() -> None:
    with pytest.raises(RecordError, match=r"cannot encode .* topic 'out' of in-0@0 .*carrier must be string"):
        pipe_bad_value(new_registry().avro(FLIGHT), {"delay": 1})


def test_no_record_is_at_fault_when_the_schema_is_not_registered() -> None:
    with pytest.raises(ConfigError, match="does not take avro") as caught:
        pipe_bad_value(new_registry().avro(FLIGHT, auto_register_schemas=False), {"carrier": "UA"})
    assert "register the schema first" in caught.value.fix


def test_record_is_at_fault_when_its_bytes_are_of_another_format() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=serdes.json()).send_to("middle")
    builder.stream("middle", value_serde=registry.avro(FLIGHT)).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    with pytest.raises(RecordError, match=r"cannot decode middle-0@0 .* expected 00 and a schema's id"):
        driver.pipe_input("in", key="1", value={"carrier": "UA"}, timestamp_ms=1)


def test_driver_says_what_the_registry_says_when_a_test_pipes_or_reads() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("in", value_serde=registry.avro()).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    with pytest.raises(ConfigError, match="no schema to write the values of topic 'in'"):
        driver.pipe_input("in", key="1", value={"carrier": "UA"}, timestamp_ms=1)


SKIP = {"deserialization.exception.handler": "skip", "processing.exception.handler": "skip"}


def test_record_is_skipped_when_it_is_at_fault_and_the_policy_says_so() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    flight = registry.avro(FLIGHT)
    builder.stream("plain").send_to("foreign")
    builder.stream("foreign", value_serde=flight).send_to("out")
    builder.stream("in").send_to("out", value_serde=flight)
    with TopologyTestDriver(builder.build(), application_id="app", settings=SKIP) as driver:
        driver.pipe_input("plain", key="bytes of another format", value={"carrier": "UA"}, timestamp_ms=1)
        driver.pipe_input("in", key="value that does not fit", value={"delay": 1}, timestamp_ms=1)
        driver.pipe_input("in", key="good", value={"carrier": "UA", "delay": 1}, timestamp_ms=1)
        assert [record.key for record in driver.read_output("out")] == ["good"]


@pytest.mark.promise("registry-faults-skip-no-record")
def test_no_record_is_skipped_when_the_registry_is_at_fault() -> None:
    serde = new_registry().avro(FLIGHT, auto_register_schemas=False)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").send_to("out", value_serde=serde)
    driver = TopologyTestDriver(builder.build(), application_id="app", settings=SKIP)
    with pytest.raises(ConfigError, match="does not take avro"):
        driver.pipe_input("in", key="1", value={"carrier": "UA"}, timestamp_ms=1)


class SendByName(Processor):
    """Sends each value to a topic by name, twice: in the sink's serde, and in one of its own."""

    def __init__(self, own: Serde) -> None:
        self.own = own

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.send("out", record.key, record.value)
        self.context.send("elsewhere", b"k", record.value, value_serde=self.own)


def test_serde_is_bound_to_the_topic_when_a_processor_sends_by_name() -> None:
    registry = new_registry()
    flight = registry.avro(FLIGHT)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    stream.process(lambda: SendByName(flight)).send_to("out", key_serde=serdes.string(), value_serde=flight)
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="1", value={"carrier": "UA", "delay": 3}, timestamp_ms=1)
        assert [r.value for r in driver.read_output("out")] == [{"carrier": "UA", "delay": 3}]
        elsewhere = driver.read_output("elsewhere", key_serde=serdes.bytes(), value_serde=flight)
        assert [r.value for r in elsewhere] == [{"carrier": "UA", "delay": 3}]
    assert sorted(registry.client().get_subjects()) == ["elsewhere-value", "out-value"]


def test_window_store_and_windowed_keys_are_bound_when_keys_have_a_schema() -> None:
    registry = new_registry()
    code = registry.avro('"string"')
    builder = KStreamBuilder(default_key_serde=code, default_value_serde=registry.avro(FLIGHT))
    counts = (
        builder.stream("flights").group_by_key().windowed_by(TumblingWindow(size_ms=10)).count(store="counts")
    )
    counts.to_stream().send_to("out", key_serde=serdes.time_windowed(code, 10), value_serde=serdes.int64())

    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for timestamp_ms in (1, 2, 11):
            driver.pipe_input("flights", key="UA", value={"carrier": "UA"}, timestamp_ms=timestamp_ms)
        assert [(r.key, r.value) for r in driver.read_output("out")] == [
            (Windowed("UA", 0, 10), 1),
            (Windowed("UA", 0, 10), 2),
            (Windowed("UA", 10, 20), 1),
        ]
        log = driver.read_output("app-counts-changelog")
        assert [(r.key, r.value) for r in log] == [(("UA", 0), 1), (("UA", 0), 2), (("UA", 10), 1)]
    assert sorted(registry.client().get_subjects()) == [
        "app-counts-changelog-key",
        "flights-key",
        "flights-value",
        "out-key",
    ]


def test_cause_is_the_registrys_when_a_store_cannot_log_its_values() -> None:
    registry = new_registry()
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    value_serde = registry.avro(FLIGHT, auto_register_schemas=False)
    latest = StoreSpec(name="latest", key_serde=serdes.string(), value_serde=value_serde)
    builder.stream("flights").group_by_key().reduce(lambda old, new: new, store=latest)
    driver = TopologyTestDriver(builder.build(), application_id="app")
    with pytest.raises(ConfigError, match="for the values of topic 'app-latest-changelog'"):
        driver.pipe_input("flights", key="1", value={"carrier": "UA"}, timestamp_ms=1)
