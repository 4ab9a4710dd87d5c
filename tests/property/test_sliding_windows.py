"""Folds by sliding windows give what Kafka Streams' steps give, and what the windows' definition says."""

from __future__ import annotations

from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, StoreSpec, Topology, serdes
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.sliding_windows import Arrival, SlidingWindowsOfJava, held_by_definition

ARRIVALS = st.lists(
    st.tuples(st.sampled_from("xy"), st.integers(1, 30), st.integers(0, 99)), min_size=1, max_size=20
)
SIZES = st.integers(0, 9)
KEYS = serdes.time_windowed(serdes.string(), 0)


def topology(window: SlidingWindow, *, cached: bool, final: bool = False) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    spec = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    table = builder.stream("in").group_by_key().windowed_by(window).aggregate(list, _noted, store=spec)
    (table.suppress() if final else table).to_stream().send_to("out")
    return builder.build()


def _noted(key: str, value: int, seen: list[int]) -> list[int]:
    seen.append(value)  # an aggregator may change what it is given
    return seen


@settings(max_examples=examples(100), deadline=None)
@given(arrivals=ARRIVALS, size_ms=SIZES, grace_ms=st.integers(0, 12))
def test_each_record_changes_the_windows_that_java_changes(
    arrivals: list[Arrival], size_ms: int, grace_ms: int
) -> None:
    java = SlidingWindowsOfJava(size_ms, grace_ms)
    built = topology(SlidingWindow(size_ms=size_ms, grace_ms=grace_ms), cached=False)
    with TopologyTestDriver(built, application_id="app") as driver:
        for key, time_ms, value in arrivals:
            wanted = java.arrive(key, time_ms, value)
            driver.pipe_input("in", key=key, value=value, timestamp_ms=time_ms)
            found = [
                (record.key.key, record.key.start_ms, record.value, record.timestamp_ms)
                for record in driver.read_output("out", key_serde=KEYS)
            ]
            assert sorted(found) == sorted(wanted)


@settings(max_examples=examples(60), deadline=None)
@given(arrivals=ARRIVALS, size_ms=SIZES, cached=st.booleans(), data=st.data())
def test_windows_hold_what_their_definition_says_however_runs_are_cut(
    arrivals: list[Arrival], size_ms: int, *, cached: bool, data: st.DataObject
) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    built = topology(SlidingWindow(size_ms=size_ms, grace_ms=100), cached=cached)
    app = Application(application_id="app", topology=built, on=kafka, settings={"settle.ms": 0})
    for number, (key, time_ms, value) in enumerate(arrivals):
        kafka.append("in", b"%d" % value, key.encode(), timestamp_ms=time_ms)
        if data.draw(st.booleans()):
            app.run(f"run-{number}")
    app.run("last")
    last: dict[Any, list[int]] = {}
    for record in kafka.records("out"):
        windowed = KEYS.deserialize(record.key() or b"")
        last[windowed.key, windowed.start_ms] = sorted(serdes.json().deserialize(record.value() or b""))
    assert last == held_by_definition(arrivals, size_ms)
    event(f"{len(last) // 10 * 10}+ windows")


@settings(max_examples=examples(60), deadline=None)
@given(arrivals=ARRIVALS, size_ms=SIZES, grace_ms=st.integers(0, 12), restarts=st.sets(st.integers(0, 20)))
@example(  # the record at 16 comes late for the window that the one at 17 ended
    arrivals=[("y", 17, 0), ("x", 19, 0), ("y", 16, 0), ("y", 18, 0), ("y", 20, 0)],
    size_ms=3,
    grace_ms=0,
    restarts=set(),
)
def test_each_window_is_emitted_once_with_its_last_value_when_results_are_final(
    arrivals: list[Arrival], size_ms: int, grace_ms: int, restarts: set[int]
) -> None:
    java = SlidingWindowsOfJava(size_ms, grace_ms)
    wanted: dict[tuple[str, int], list[int]] = {}
    built = topology(SlidingWindow(size_ms=size_ms, grace_ms=grace_ms), cached=True, final=True)
    with TopologyTestDriver(built, application_id="app") as driver:
        for number, (key, time_ms, value) in enumerate([*arrivals, ("z", 1_000, 0)]):
            for window_key, start_ms, values, _ in java.arrive(key, time_ms, value):
                wanted[window_key, start_ms] = values
            driver.pipe_input("in", key=key, value=value, timestamp_ms=time_ms)
            if number in restarts:
                driver.restart()
        found = [
            ((record.key.key, record.key.start_ms), record.value)
            for record in driver.read_output("out", key_serde=KEYS)
        ]
    assert len(found) == len(dict(found))
    assert dict(found) == {window: values for window, values in wanted.items() if window[0] != "z"}
