from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorContext, ProcessorRecord, serdes
from airflow_kstreams.streams.errors import RecordError, TopologyError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.processor.punctuation import Punctuation
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("punctuation-comes-once")

IN = TopicPartition("in", 0)


class Ticking(Processor):
    """Forwards ("tick", punctuation time) and what it sees of the moment."""

    def __init__(self, *schedules: tuple[int, str], callback: bool = False) -> None:
        self.schedules = schedules
        self.by_callback = callback

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        for interval_ms, clock in self.schedules:
            callback = self.called if self.by_callback else None
            context.schedule(interval_ms, clock=clock, callback=callback)  # type: ignore[arg-type]

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward("record", record.timestamp_ms)

    def punctuate(self, stream_time_ms: int) -> None:
        self.context.forward("tick", stream_time_ms)

    def called(self, time_ms: int) -> None:
        self.context.forward("called", time_ms)


def topology(make: Callable[[], Processor]) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").process(make).send_to("out")
    return builder.build()


def outputs(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in driver.read_output("out")]


def test_each_multiple_comes_once_when_stream_time_passes_it() -> None:
    with TopologyTestDriver(topology(lambda: Ticking((10, "stream_time"))), application_id="app") as driver:
        for timestamp_ms in (5, 9, 10, 12, 8, 35, 35):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=timestamp_ms)
        seen = outputs(driver)
    ticks = [value for key, value in seen if key == "tick"]
    assert ticks == [10, 20, 30]
    assert seen[3] == ("tick", 10), "after the record that brought stream time there"


def test_first_multiple_is_the_first_records_time_when_it_lies_on_one() -> None:
    with TopologyTestDriver(topology(lambda: Ticking((10, "stream_time"))), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=1_000)
        assert outputs(driver) == [("record", 1_000), ("tick", 1_000)]


def test_punctuations_come_in_the_order_of_time_when_there_are_several() -> None:
    make = lambda: Ticking((10, "stream_time"), (15, "stream_time"))  # noqa: E731
    with TopologyTestDriver(topology(make), application_id="app") as driver:
        for timestamp_ms in (1, 31):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=timestamp_ms)
        assert [v for k, v in outputs(driver) if k == "tick"] == [10, 15, 20, 30, 30]


class Jumping(Ticking):
    """Calls every second, in one of the ways over jumps."""

    def __init__(self, jumps: Any) -> None:
        super().__init__()
        self.jumps = jumps

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(1_000, jumps=self.jumps)


@pytest.mark.promise("long-jumps-end-the-task")
def test_error_names_both_times_and_the_interval_when_stream_time_jumps_over_too_many_multiples() -> None:
    with TopologyTestDriver(topology(lambda: Jumping("each")), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=1_700_000_000)
        driver.pipe_input("in", key="k", value=0, timestamp_ms=1_700_000_000 + 10_000_000)
        assert len([key for key, _ in outputs(driver) if key == "tick"]) == 10_001
        with pytest.raises(TopologyError) as refused:
            driver.pipe_input("in", key="k", value=0, timestamp_ms=1_700_000_000_000)
    said = str(refused.value)
    assert "every 1000 ms" in said
    assert "from 1970-01-20T19:00:00.000+00:00 to 2023-11-14T22:13:20.000+00:00" in said
    assert "1,698,290,000 calls" in said
    assert 'jumps="last"' in said


@pytest.mark.promise("long-jumps-end-the-task")
def test_last_multiple_alone_comes_when_a_jump_is_to_bring_one_call() -> None:
    with TopologyTestDriver(topology(lambda: Jumping("last")), application_id="app") as driver:
        for timestamp_ms in (1_700_000_001, 1_700_000_000_500, 1_700_000_000_999, 1_700_000_001_000):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=timestamp_ms)
        ticks = [value for key, value in outputs(driver) if key == "tick"]
    assert ticks == [1_700_000_000_000, 1_700_000_001_000]


def test_callback_is_called_instead_when_one_is_given() -> None:
    make = lambda: Ticking((10, "stream_time"), callback=True)  # noqa: E731
    with TopologyTestDriver(topology(make), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=10)
        assert outputs(driver) == [("record", 10), ("called", 10)]


def test_wall_clock_ticks_once_when_several_intervals_passed() -> None:
    with TopologyTestDriver(topology(lambda: Ticking((10, "wall_clock"))), application_id="app") as driver:
        for by_ms in (9, 1, 35, 4, 1):
            driver.advance_wall_clock(by_ms)
        assert outputs(driver) == [("tick", 10), ("tick", 45), ("tick", 50)]


def test_wall_clock_starts_where_the_driver_says_when_given() -> None:
    made = topology(lambda: Ticking((10, "wall_clock")))
    with TopologyTestDriver(made, application_id="app", wall_clock_ms=1_000) as driver:
        driver.advance_wall_clock(10)
        assert outputs(driver) == [("tick", 1_010)]


@pytest.mark.parametrize("clock", ["stream_time", "wall_clock"])
def test_nothing_comes_any_more_when_it_was_cancelled(clock: Any) -> None:
    class Once(Ticking):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            self.scheduled: Punctuation = context.schedule(10, clock=clock)

        def punctuate(self, stream_time_ms: int) -> None:
            super().punctuate(stream_time_ms)
            self.scheduled.cancel()
            self.scheduled.cancel()

    with TopologyTestDriver(topology(Once), application_id="app") as driver:
        for timestamp_ms in (10, 20, 50):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=timestamp_ms)
            driver.advance_wall_clock(10)
        assert len([key for key, _ in outputs(driver) if key == "tick"]) == 1


@pytest.mark.parametrize("clock", ["stream_time", "wall_clock"])
def test_punctuation_is_forgotten_when_it_was_cancelled(clock: Any) -> None:
    callbacks: list[weakref.ref[Any]] = []

    class Rescheduling(Ticking):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: ProcessorRecord) -> None:
            def callback(now_ms: int) -> None: ...

            callbacks.append(weakref.ref(callback))
            self.context.schedule(10, clock=clock, callback=callback).cancel()

    with TopologyTestDriver(topology(Rescheduling), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=1)
        gc.collect()
        assert [callback() for callback in callbacks] == [None]


def test_there_is_no_record_and_the_time_is_the_punctuations_when_it_runs() -> None:
    seen: list[Any] = []

    class Looking(Ticking):
        def punctuate(self, stream_time_ms: int) -> None:
            context = self.context
            seen.append((context.topic, context.partition, context.offset, context.headers))
            seen.append((context.timestamp_ms, context.stream_time_ms, context.wall_clock_ms))
            super().punctuate(stream_time_ms)

    with TopologyTestDriver(
        topology(lambda: Looking((10, "stream_time"))), application_id="app", wall_clock_ms=7
    ) as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=15, headers=[("h", b"1")])
        driver.pipe_input("in", key="k", value=0, timestamp_ms=29)
        assert seen == [(None, -1, -1, []), (20, 29, 7)]
        assert [r.timestamp_ms for r in driver.read_output("out")] == [15, 29, 20]


def ticks_of(times: dict[TopicPartition, PartitionTimes], *timestamps: int) -> list[int]:
    """Run one attempt over some records and return the punctuations of a ten-millisecond schedule."""
    sent: list[int] = []
    made = topology(lambda: Ticking((10, "stream_time")))
    task = StreamTask(
        made,
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, len(timestamps))},
        produce=lambda topic, value, key, *rest: sent.append(int(value)) if key == b"tick" else None,
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(partition_times=times),
    )
    task.restored()
    task.open()
    task.add(
        IN,
        [
            FakeRecord(at=n, key_bytes=b"k", value_bytes=b"1", timestamp_ms=t)
            for n, t in enumerate(timestamps)
        ],
    )
    while task.process(2):
        pass
    times.update(task.progress.partition_times)
    return sent


def test_no_multiple_comes_twice_or_never_when_a_run_ends_between_them() -> None:
    times: dict[TopicPartition, PartitionTimes] = {}
    assert ticks_of(times, 5, 10, 23) == [10, 20]
    assert ticks_of(times, 24, 28) == []
    assert ticks_of(times, 30, 47) == [30, 40]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval_ms": 0}, "interval of 0 ms"),
        ({"interval_ms": 1.5}, "interval of 1.5 ms"),
        ({"interval_ms": 5, "clock": "lunar"}, "the clock 'lunar'"),
        ({"interval_ms": 5}, "no punctuate method"),
    ],
)
def test_schedule_is_refused_when_it_cannot_be(arguments: dict[str, Any], message: str) -> None:
    class Silent(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(**arguments)

        def process(self, record: ProcessorRecord) -> None:
            """Do nothing."""

    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(topology(Silent), application_id="app")


def test_node_is_named_when_a_punctuation_fails() -> None:
    class Failing(Ticking):
        def punctuate(self, stream_time_ms: int) -> None:
            raise ZeroDivisionError

    driver = TopologyTestDriver(topology(lambda: Failing((10, "stream_time"))), application_id="app")
    with pytest.raises(RecordError, match=r"no record .*'KSTREAM-PROCESSOR-0000000001'"):
        driver.pipe_input("in", key="k", value=0, timestamp_ms=10)
