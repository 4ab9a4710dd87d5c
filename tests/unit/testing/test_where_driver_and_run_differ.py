"""Where the test driver and a run differ, case by case: the list of ``docs/explanation/testing.md``.

Everything else agrees: ``property/test_driver_against_runs.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    Serde,
    Topology,
    serdes,
)
from airflow_kstreams.streams.errors import TaskCorruptedError
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.kafka.in_process import Application, tasks_of

pytestmark = pytest.mark.promise("driver-gives-what-runs-give")

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
JSON = serdes.json()


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


@dataclass
class Runs:
    """Whole runs of a topology on the in-memory Kafka."""

    topology: Topology
    topics: Mapping[str, int]
    settings: Mapping[str, object] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=partial(ManualClock, now_ms=NOW_MS))

    def __post_init__(self) -> None:
        self.kafka = InMemoryKafka(clock=self.clock)
        for topic, count in self.topics.items():
            self.kafka.create_topic(topic, partitions=count)
        self.app = Application(
            application_id="app",
            topology=self.topology,
            on=self.kafka,
            clock=self.clock,
            settings={"settle.ms": 0, **self.settings},
        )

    def pipe(self, topic: str, *rows: tuple[str | None, Any, int], partition: int = 0) -> None:
        for key, value, timestamp_ms in rows:
            data = serdes.json().serialize(value)
            encoded = None if key is None else key.encode()
            self.kafka.append(topic, data, encoded, partition=partition, timestamp_ms=timestamp_ms)

    def read(self, topic: str, serde: Serde = JSON) -> list[Any]:
        return [serde.deserialize(value or b"") for value in self.kafka.values(topic)]


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in driver.read_output(topic)]


def merged() -> Topology:
    made = builder()
    made.stream("a").merge(made.stream("b")).group_by_key().count(store="n").to_stream().send_to("out")
    return made.build()


def test_single_records_are_slices_of_their_own_when_piped_outside_a_block() -> None:
    runs = Runs(merged(), {"a": 1, "b": 1, "out": 1})
    runs.pipe("a", ("k", 0, 2))
    runs.pipe("b", ("k", 0, 1))
    runs.app.run("run-1")
    assert runs.read("out", serdes.int64()) == [2], "a cached table emits at the end"
    with TopologyTestDriver(merged(), application_id="app") as driver:
        driver.pipe_input("a", key="k", value=0, timestamp_ms=2)
        driver.pipe_input("b", key="k", value=0, timestamp_ms=1)
        assert values(driver) == [1, 2]


class Noting(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.forward("k", f"init {context.task_id}")

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, record.value)

    def close(self) -> None:
        self._context.forward("k", f"close {self._context.task_id}")


def test_tasks_of_the_first_run_are_open_before_it_when_the_driver_was_made() -> None:
    made = builder()
    made.stream("in").process(Noting).send_to("out")
    runs = Runs(made.build(), {"in": 2, "out": 1})
    driver = TopologyTestDriver(made.build(), application_id="app", partitions={"in": 2})
    expected: dict[int, list[str]] = {
        1: ["init 0_0", "init 0_1", "a", "close 0_0", "close 0_1"],
        2: ["init 0_0", "a", "close 0_0"],
    }
    for number, ours in expected.items():
        runs.pipe("in", ("k", "a", number))
        runs.app.run(f"run-{number}", (0, number))
        with driver.run():
            driver.pipe_records("in", [("k", "a", number)])
        assert values(driver) == ours
    # The task without records is left out, by each run.
    assert runs.read("out") == ["init 0_0", "a", "close 0_0"] * 2


class Slow(Processor):
    """Takes a second for each record."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(1_000, clock="wall_clock", callback=lambda now_ms: context.forward("k", "timer"))

    def process(self, record: ProcessorRecord) -> None:
        self._clock.sleep(1)
        self._context.forward(record.key, record.value)
        self._context.commit()


def test_time_stands_still_when_a_block_is_processed() -> None:
    clock = ManualClock(now_ms=NOW_MS)
    made = builder()
    made.stream("in").process(partial(Slow, clock)).send_to("out")
    rows = [("k", number, NOW_MS + number) for number in range(3)]
    runs = Runs(made.build(), {"in": 1, "out": 1}, clock=clock)
    runs.pipe("in", *rows)
    runs.app.run("run-1")
    assert runs.read("out") == [0, "timer", 1, "timer", 2]
    driver = TopologyTestDriver(made.build(), application_id="app", wall_clock_ms=NOW_MS)
    with driver.run():
        driver.pipe_records("in", rows)
    assert values(driver) == [0, 1, 2]


def test_changelog_has_fewer_records_when_no_commit_interval_passes() -> None:
    clock = ManualClock(now_ms=NOW_MS)
    made = builder()
    slow = made.stream("in").peek(lambda key, value: clock.sleep(1))
    slow.group_by_key().count(store="n").to_stream().send_to("out")
    settings = {"commit.interval.ms": 100, "transaction.timeout.ms": 60_000}
    runs = Runs(made.build(), {"in": 1, "out": 1}, settings, clock)
    rows = [("k", 0, NOW_MS)] * 100
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_kstreams.streams.runtime.stream_task.CACHED_COMMIT_EVERY_RECORDS", 40)
        runs.pipe("in", *rows)
        runs.app.run("run-1")
        driver = TopologyTestDriver(made.build(), application_id="app", settings=settings)
        with driver.run():
            driver.pipe_records("in", rows)
    assert runs.read("out", serdes.int64()) == values(driver) == [40, 80, 100]
    assert runs.read("app-n-changelog", serdes.int64()) == [40, 80, 100]
    assert values(driver, "app-n-changelog") == [100]


def test_records_without_key_lie_elsewhere_when_the_producer_chooses() -> None:
    made = builder()
    made.stream("in").send_to("out")
    runs = Runs(made.build(), {"in": 1, "out": 2})
    runs.kafka.append("out", b'"another producer"', None, timestamp_ms=1)
    runs.pipe("in", (None, 0, 1))
    runs.app.run("run-1")
    driver = TopologyTestDriver(made.build(), application_id="app", partitions={"out": 2})
    with driver.run():
        driver.pipe_records("in", [(None, 0, 1), (None, 1, 2)])
    assert [record.partition for record in driver.read_output("out")] == [0, 1], "turns from 0 on"
    foreign, ours = sorted(runs.kafka.records("out"), key=lambda record: record.value() or b"")
    assert foreign.partition() != ours.partition(), "turns from where the topic's producers are"


def test_tasks_write_in_their_order_when_several_share_an_intermediate_partition() -> None:
    made = builder()
    made.stream("in").through("middle").send_to("out")
    topology = made.build()
    runs = Runs(topology, {"in": 2, "middle": 1, "out": 1})
    driver = TopologyTestDriver(topology, application_id="app", partitions={"in": 2})
    with driver.run():
        for partition in (0, 1):
            driver.pipe_records("in", [("k", partition, 1)], partition=partition)
            runs.pipe("in", ("k", partition, 1), partition=partition)
    slice_ = runs.app.begin("run-1")
    first, second, last = tasks_of(slice_)
    for task_id in (second, first, last):  # as they may be done side by side
        runs.app.task(slice_, task_id.subtopology, task_id.group)
    runs.app.finish("run-1")
    assert values(driver) == [0, 1]
    assert runs.read("out") == [1, 0]


def test_offsets_of_intermediate_topics_count_records_only_when_nothing_ends_transactions() -> None:
    made = builder()
    made.stream("in").through("middle").process(Places).send_to("out")
    runs = Runs(made.build(), {"in": 1, "middle": 1, "out": 1})
    driver = TopologyTestDriver(made.build(), application_id="app")
    for number in range(2):
        runs.pipe("in", ("k", number, 1))
        runs.app.run(f"run-{number}", (0, number))
        with driver.run():
            driver.pipe_records("in", [("k", number, 1)])
    assert values(driver) == [0, 1]
    assert runs.read("out") == [0, 2], "the end of the first run's transaction has an offset, too"


class Places(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, self._context.offset)


def test_all_that_is_piped_is_the_slice_when_runs_go_by_their_interval() -> None:
    made = builder()
    made.stream("in").send_to("out")
    settings = {"autostop.at": "interval_end"}
    runs = Runs(made.build(), {"in": 1, "out": 1}, settings)
    rows = [("k", 0, NOW_MS), ("k", 1, NOW_MS + 10)]
    runs.pipe("in", *rows)
    runs.app.run("run-1", interval_ms=(NOW_MS, NOW_MS + 10))
    assert runs.read("out") == [0]
    driver = TopologyTestDriver(made.build(), application_id="app", settings=settings)
    with driver.run():
        driver.pipe_records("in", rows)
    assert values(driver) == [0, 1]


def test_driver_is_of_no_use_when_a_record_fails_where_a_run_is_retried() -> None:
    broken = [True]

    def inverse(value: int) -> float:
        if broken:
            raise ZeroDivisionError("the service is down")
        return value

    made = builder()
    made.stream("in").map_values(inverse).send_to("out")
    runs = Runs(made.build(), {"in": 1, "out": 1})
    runs.pipe("in", ("k", 1, 1))
    driver = TopologyTestDriver(made.build(), application_id="app")
    with pytest.raises(RecordError):
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1)
    with pytest.raises(RecordError):
        runs.app.run("run-1")
    broken.clear()
    runs.app.run("run-1", (0, 2))
    assert runs.read("out") == [1]
    with pytest.raises(TaskCorruptedError):
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1)


def test_results_too_large_are_taken_when_the_driver_writes_them() -> None:
    made = builder()
    made.stream("in").map_values(lambda length: "x" * length).send_to("out")
    settings = {"production.exception.handler": "skip"}
    runs = Runs(made.build(), {"in": 1, "out": 1}, settings)
    rows = [("k", 3_000_000, 1), ("k", 1, 2)]
    runs.pipe("in", *rows)
    runs.app.run("run-1")
    assert runs.read("out") == ["x"], "the large one is left out"
    driver = TopologyTestDriver(made.build(), application_id="app", settings=settings)
    with driver.run():
        driver.pipe_records("in", rows)
    assert [len(value) for value in values(driver)] == [3_000_000, 1]


def test_results_of_any_time_are_taken_when_the_driver_writes_them() -> None:
    made = builder()
    made.stream("in").send_to("out")
    settings = {"production.exception.handler": "skip"}
    runs = Runs(made.build(), {"in": 1, "out": 1}, settings)
    rows = [("k", 1, NOW_MS + DAY_MS // 2), ("k", 2, NOW_MS)]
    runs.pipe("in", *rows)
    runs.app.run("run-1")
    assert runs.read("out") == [2], "the one that is dated beyond the topic's limit is left out"
    driver = TopologyTestDriver(made.build(), application_id="app", settings=settings)
    with driver.run():
        driver.pipe_records("in", rows)
    assert values(driver) == [1, 2]


def test_latest_time_counts_from_the_machines_clock_when_the_drivers_is_behind() -> None:
    made = builder()
    counted: list[int] = []
    made.stream("in").process(partial(Timed, counted)).send_to("out")
    row = ("k", 0, NOW_MS + 2 * DAY_MS)
    runs = Runs(made.build(), {"in": 1, "out": 1})
    runs.pipe("in", row)
    with pytest.raises(RecordError, match=r"max\.timestamp\.ahead\.ms"):
        runs.app.run("run-1")
    driver = TopologyTestDriver(made.build(), application_id="app", wall_clock_ms=NOW_MS)
    with driver.run():
        driver.pipe_records("in", [row])
    assert counted == [row[2]], "the machine's clock is later"


def test_list_names_each_case_when_it_is_read_by_users() -> None:
    page = (Path(__file__).parents[3] / "docs/explanation/testing.md").read_text()
    rows = [line for line in page.split("## Where driver and run differ")[1].splitlines() if "| `" in line]
    named = {row.rsplit("| `", 1)[1].removesuffix("` |") for row in rows}
    cases = {name for name in globals() if name.startswith("test_") and "list_names" not in name}
    assert {case for case in cases if any(case.startswith(f"test_{name}") for name in named)} == cases
    assert len(rows) == len(cases) + 1, "one line names another file's test"


class Timed(Processor):
    def __init__(self, counted: list[int]) -> None:
        self._counted = counted

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._counted.append(self._context.stream_time_ms)
