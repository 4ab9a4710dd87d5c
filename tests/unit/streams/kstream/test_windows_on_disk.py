"""Windows, sessions and joins whose stores lie in RocksDB: the same outputs as in memory, over restarts, and
files that the next run goes on with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("storage-changes-no-result")

KEYS = ("a", "b", "c", "d")
Define = Callable[[Storage], Topology]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(storage: Storage) -> StoreSpec:
    return StoreSpec(
        name="kept", key_serde=serdes.string(), value_serde=serdes.json(), storage=storage, cached=False
    )


def _windows(window: Any) -> Define:
    keys = (
        serdes.session_windowed(serdes.string())
        if isinstance(window, SessionWindow)
        else serdes.time_windowed(serdes.string(), window.size_ms)
    )

    def define(storage: Storage) -> Topology:
        builder = _builder()
        table = builder.stream("in").group_by_key().windowed_by(window).count(store=_spec(storage))
        table.to_stream().send_to("updates", key_serde=keys)
        table.suppress().to_stream().send_to("out", key_serde=keys)
        return builder.build()

    return define


def _outer_join(storage: Storage) -> Topology:
    builder = _builder()
    left = builder.stream("in").with_window(SlidingWindow(size_ms=7, grace_ms=5), storage=storage)
    right = builder.stream("others").with_window(SlidingWindow(size_ms=3, grace_ms=20), storage=storage)
    left.outer_join(right, lambda one, other: [one, other], name="pairs").send_to("out")
    return builder.build()


DEFINITIONS = {
    "tumbling": _windows(TumblingWindow(size_ms=10, grace_ms=5)),
    "tumbling and flushed": _windows(TumblingWindow(size_ms=10, grace_ms=5, at_run_end="flush")),
    "hopping": _windows(HoppingWindow(size_ms=10, advance_ms=4, grace_ms=0)),
    "sessions": _windows(SessionWindow(gap_ms=4, grace_ms=3)),
    "outer join": _outer_join,
}


def _records(seed: int) -> list[tuple[str, str, int, int]]:
    """Return (topic, key, value, timestamp_ms): out of order, with ties, and some that are late."""
    draw, time_ms, records = random.Random(seed), 100, []
    for value in range(120):
        time_ms += draw.choice((0, 0, 1, 2, 15))
        topic = draw.choice(("in", "in", "others"))
        records.append((topic, draw.choice(KEYS), value, max(1, time_ms - draw.choice((0, 0, 3, 30)))))
    return records


@pytest.mark.parametrize("name", DEFINITIONS)
def test_outputs_are_those_of_memory_when_stores_lie_in_rocksdb_and_tasks_restart(name: str) -> None:
    found = []
    for storage in ("memory", "rocksdb"):
        topology = DEFINITIONS[name](storage)
        topics = [topic for topic in ("updates", "out") if name != "outer join" or topic == "out"]
        with TopologyTestDriver(topology, application_id="app") as driver:
            for number, (topic, key, value, time_ms) in enumerate(_records(7)):
                if topic == "in" or name == "outer join":
                    driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
                if number % 40 == 39:
                    driver.restart()
            written = {topic: driver.read_output(topic) for topic in topics}
        found.append(
            {topic: [(r.key, r.value, r.timestamp_ms) for r in records] for topic, records in written.items()}
        )
    assert found[1] == found[0]
    assert found[0]["out"]


@pytest.mark.parametrize("name", ["tumbling", "sessions", "outer join"])
def test_next_run_goes_on_with_the_files_and_replays_nothing(name: str, tmp_path: Path) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "others", "updates", "out"):
        kafka.create_topic(topic)
    app = Application(
        application_id="app",
        topology=DEFINITIONS[name]("rocksdb"),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, "state.dir": str(tmp_path)},
    )
    in_memory = InMemoryKafka()
    for topic in ("in", "others", "updates", "out"):
        in_memory.create_topic(topic)
    other = Application(
        application_id="app",
        topology=DEFINITIONS[name]("memory"),
        on=in_memory,
        clock=in_memory.clock,
        settings={"settle.ms": 0},
    )
    for run in range(3):
        for topic, key, value, time_ms in _records(7)[40 * run : 40 * run + 40]:
            for each in (kafka, in_memory):
                each.append(topic, str(value).encode(), key.encode(), timestamp_ms=time_ms)
        slice_ = app.begin(f"run {run}")
        reports = app.tasks(slice_)
        app.finish(f"run {run}")
        assert [report.restored for report in reports] == [0] * len(reports)
        other.run(f"run {run}")
    for topic in ("updates", "out"):
        ours, theirs = ([(r.key(), r.value()) for r in each.records(topic)] for each in (kafka, in_memory))
        assert ours == theirs


def test_storage_of_a_join_is_refused_when_there_is_no_such_one() -> None:
    with pytest.raises(TopologyError, match=r"with_window at .*storage='disk'(.|\n)*one of: memory, rocksdb"):
        _outer_join("disk")  # type: ignore[arg-type]
