from __future__ import annotations

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SessionStore,
    SessionStoreSpec,
    TopologyBuilder,
    TumblingWindow,
    Windowed,
    WindowStore,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

WINDOWS = WindowStoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=20)
SESSIONS = SessionStoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=20)


class Remember(Processor):
    """Keeps the newest value of each key in windows of 10 ms and in sessions of one moment."""

    def init(self, context: ProcessorContext) -> None:
        self.windows: WindowStore = context.state_store("w")
        self.sessions: SessionStore = context.state_store("s")

    def process(self, record: ProcessorRecord) -> None:
        start_ms = record.timestamp_ms // 10 * 10
        self.windows.put(record.key, record.value, start_ms)
        self.sessions.put(record.key, record.value, record.timestamp_ms, record.timestamp_ms)


class Look(Processor):
    """Reads another's windows."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.windows: WindowStore = context.state_store("w")

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, list(self.windows.range(record.key)))


def test_entries_expire_by_stream_time_when_a_processor_keeps_them() -> None:
    topology = (
        TopologyBuilder()
        .add_source("in", "in", key_serde=serdes.string(), value_serde=serdes.json())
        .add_processor("remember", Remember, "in")
        .add_processor("look", Look, "remember")
        .add_state_store(WINDOWS, "remember", "look")
        .add_state_store(SESSIONS, "remember")
        .build()
    )
    driver = TopologyTestDriver(topology, application_id="app")
    for key, time_ms in (("a", 5), ("b", 19)):
        driver.pipe_input("in", key=key, value=time_ms, timestamp_ms=time_ms)
    assert list(driver.store("w").all()) == [(("a", 0), 5), (("b", 10), 19)]
    driver.pipe_input("in", key="c", value=25, timestamp_ms=25)
    assert list(driver.store("w").all()) == [(("b", 10), 19), (("c", 20), 25)]
    assert [windowed for windowed, _ in driver.store("s").all()] == [
        Windowed("a", 5, 5),
        Windowed("b", 19, 19),
        Windowed("c", 25, 25),
    ]
    driver.pipe_input("in", key="d", value=26, timestamp_ms=26)
    assert driver.store("s").get("a", 5, 5) is None


def test_table_expires_its_own_windows_when_a_processor_reads_them() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = stream.group_by_key().windowed_by(window).count(store="w")
    stream.process(Look, counts.store).send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    counts.suppress().to_stream().send_to("final")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    for time_ms in (1, 2, 15, 16):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=time_ms)
    assert [record.value for record in driver.read_output("out")] == [
        [[0, 1]],
        [[0, 2]],
        [[10, 1]],
        [[10, 2]],
    ]
    assert [(record.key, record.value) for record in driver.read_output("final")] == [
        (Windowed("a", 0, 10), 2)
    ]
