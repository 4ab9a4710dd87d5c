"""Records dated far in the future, which move no stream time and hold no cut, and records dated in seconds:
they are counted or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.report.results import result_of_summary
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes, timestamps
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.ports import Clock, TopicPartition
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.crash import Crash
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once

pytestmark = pytest.mark.promise("far-ahead-moves-no-time")

T = TypeVar("T")
T0 = 1_600_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
#: A record dated in microseconds.
MICROSECONDS = T0 * 1_000


def copied(extractor: TimestampExtractor | None = None) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in", timestamps=extractor).send_to("out")
    return builder.build()


def counted(extractor: TimestampExtractor | None = None) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in", timestamps=extractor).group_by_key()
    windows = grouped.windowed_by(TumblingWindow(size_ms=HOUR))
    windows.count(store="counts").to_stream().map(lambda key, count: (key.key, count)).send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=T0))
    for topic in ("in", "out"):
        kafka.create_topic(topic, message_timestamp_after_max_ms=str(2**63 - 1))
    return kafka


def application(
    kafka: InMemoryKafka, topology: Topology, settings: Mapping[str, object] | None = None
) -> Application:
    return Application(
        application_id="app",
        topology=topology,
        on=kafka,
        clock=kafka.clock,
        settings={"autostop.at": "eol", **(settings or {})},
    )


def publish(kafka: InMemoryKafka, *times_ms: int) -> None:
    """Write a record at each time, which its value says, too."""
    for time_ms in times_ms:
        kafka.append("in", b'{"ms": %d}' % time_ms, b"a", timestamp_ms=time_ms)


FIELD = timestamps.value_field("ms")


@pytest.mark.parametrize("extractor", [None, FIELD])
def test_run_fails_with_the_settings_name_when_windows_depend_on_a_time_far_ahead(
    kafka: InMemoryKafka, extractor: TimestampExtractor | None
) -> None:
    publish(kafka, T0, MICROSECONDS)
    with pytest.raises(RecordError, match=r"in-0@1.*max\.timestamp\.ahead\.ms"):
        application(kafka, counted(extractor)).run("one")


@pytest.mark.parametrize("extractor", [None, FIELD])
def test_later_runs_lose_nothing_when_a_record_far_ahead_was_skipped(
    kafka: InMemoryKafka, extractor: TimestampExtractor | None
) -> None:
    app = application(kafka, counted(extractor), {"processing.exception.handler": "skip"})
    publish(kafka, T0, MICROSECONDS)
    first = app.run("one")
    publish(kafka, T0 + 1, T0 + 2)
    second = app.run("two")
    assert ([t.records_dropped for t in first.tasks], [t.records_dropped for t in second.tasks]) == ([1], [0])
    assert kafka.values("out") == [b"1", b"3"]


def test_record_far_ahead_is_a_dead_letter_as_it_was_consumed_when_the_handler_says_so(
    kafka: InMemoryKafka,
) -> None:
    app = application(kafka, counted(), {"processing.exception.handler": "dead-letter"})
    publish(kafka, MICROSECONDS, T0)
    assert [task.records_dead_lettered for task in app.run("one").tasks] == [1]
    assert kafka.values("app-dead-letter") == [b'{"ms": %d}' % MICROSECONDS]
    assert kafka.values("out") == [b"1"]


@pytest.mark.parametrize("extractor", [None, FIELD])
def test_record_far_ahead_is_processed_and_counted_when_nothing_goes_by_stream_time(
    kafka: InMemoryKafka, extractor: TimestampExtractor | None
) -> None:
    publish(kafka, T0, MICROSECONDS, T0 + 1)
    summary = application(kafka, copied(extractor)).run("one")
    assert (len(kafka.values("out")), summary.records_in, summary.records_misdated) == (3, 3, 1)
    assert ["implausible times in 1 record of in" in warning for warning in summary.warnings] == [True]
    assert result_of_summary(summary)["records_misdated"] == 1
    assert summary.partition_times["in-0"].latest_ms == T0 + 1


@pytest.mark.promise("implausible-times-are-said")
@pytest.mark.parametrize("extractor", [None, FIELD])
@pytest.mark.parametrize("make", [copied, counted])
def test_records_in_seconds_are_counted_and_their_topic_is_named(
    kafka: InMemoryKafka, make: Callable[..., Topology], extractor: TimestampExtractor | None
) -> None:
    publish(kafka, *(T0 // 1_000 + 3_600 * hour for hour in range(6)))
    summary = application(kafka, make(extractor)).run("one")
    assert summary.records_misdated == 6
    (warning,) = summary.warnings
    assert warning.startswith("implausible times in 6 records of in: seconds, taken for milliseconds")
    assert (
        "in-0 has come to 1970-01-19T12:26:58.000+00:00, which as seconds is 2020-09-13T17:26:40" in warning
    )


@pytest.mark.promise("implausible-times-are-said")
def test_continuous_task_says_once_that_its_records_are_dated_in_seconds(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    publish(kafka, *(T0 // 1_000 + 3_600 * hour for hour in range(6)))
    continuous = SwitchingApplication(
        topology=copied(), cluster=kafka, clock=kafka.clock, settings={"commit.interval.ms": "1000"}
    )
    running = continuous.run_continuously("c-1")
    for _ in range(3):
        running.rounds(2)
        kafka.clock.sleep(2)
        publish(kafka, T0 // 1_000)
    running.stop()
    said = [record.getMessage() for record in caplog.records if "implausible" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("task 0_0: implausible times in 7 records of in: seconds")
    assert "which as seconds is 2020-09-13T17:26:40" in said[0]


@pytest.mark.promise("implausible-times-are-said")
def test_driver_says_once_that_records_are_dated_in_seconds(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(copied(), application_id="app") as driver:
        with driver.run():
            driver.pipe_records("in", [("a", {"ms": 0}, T0 // 1_000 + 3_600 * hour) for hour in range(6)])
            driver.pipe_records("in", [("a", {"ms": 0}, T0 // 1_000)])
        said = [record.getMessage() for record in caplog.records if "implausible" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("task 0_0: implausible times in 7 records of in: seconds")


@pytest.mark.promise("implausible-times-are-said")
def test_records_in_seconds_are_counted_among_others(kafka: InMemoryKafka) -> None:
    publish(kafka, T0, T0 // 1_000, T0 + 1)
    summary = application(kafka, copied()).run("one")
    assert (summary.records_misdated, len(summary.warnings)) == (1, 1)


@pytest.mark.promise("implausible-times-are-said")
@pytest.mark.parametrize(
    "way_out",
    [timestamps.value_field("ms", unit="s"), timestamps.extract(lambda record: record.timestamp_ms * 1_000)],
)
def test_hours_are_their_own_windows_when_the_source_says_that_times_are_seconds(
    kafka: InMemoryKafka, way_out: TimestampExtractor
) -> None:
    publish(kafka, *((T0 - DAY) // 1_000 + 3_600 * hour for hour in range(6)))
    summary = application(kafka, counted(way_out)).run("one")
    assert (summary.records_misdated, summary.warnings) == (0, ())
    assert kafka.values("out") == [b"1"] * 6


@pytest.mark.promise("implausible-times-are-said")
@pytest.mark.parametrize("time_ms", [0, 1_000, 86_400_000, 4_102_444_800, T0])
def test_nothing_is_said_of_times_that_are_no_seconds_of_this_century(
    kafka: InMemoryKafka, time_ms: int
) -> None:
    publish(kafka, time_ms)
    summary = application(kafka, counted()).run("one")
    assert (summary.records_misdated, summary.warnings) == (0, ())


def test_count_goes_on_when_an_attempt_resumes_in_the_middle_of_the_slice(kafka: InMemoryKafka) -> None:
    publish(kafka, MICROSECONDS, T0, MICROSECONDS, T0, MICROSECONDS)
    app = application(kafka, copied(), {"commit.every.records": 2})
    slice_ = app.begin("one")

    def die() -> None:
        raise Crash

    app.interceptor = Once("writer.commit", 2, die)
    with pytest.raises(Crash):
        app.tasks(slice_)
    app.interceptor = None
    app.tasks(slice_)
    assert app.finish("one").records_misdated == 3


def test_bound_is_relative_to_the_moment_of_the_freeze_when_a_slice_is_processed_later(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, T0 + DAY, T0 + 2 * DAY)
    app = application(kafka, copied())
    slice_ = app.begin("one")
    kafka.clock.sleep(30 * 24 * 3_600)
    app.tasks(slice_)
    assert app.finish("one").records_misdated == 1


def test_every_time_is_taken_when_there_is_no_bound(kafka: InMemoryKafka) -> None:
    publish(kafka, T0, MICROSECONDS)
    summary = application(kafka, counted(), {"max.timestamp.ahead.ms": -1}).run("one")
    assert (summary.partition_times["in-0"].latest_ms, summary.records_misdated) == (MICROSECONDS, 0)


def test_repartitioned_records_may_be_as_late_as_the_clock_when_a_slice_is_retried_days_later(
    kafka: InMemoryKafka,
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    now = builder.stream("in", timestamps=timestamps.wall_clock()).select_key(lambda _key, _value: "b")
    windows = now.group_by_key().windowed_by(TumblingWindow(size_ms=HOUR)).count(store="counts")
    windows.to_stream().map(lambda key, count: (key.key, count)).send_to("out")
    app = application(kafka, builder.build())
    publish(kafka, T0)
    slice_ = app.begin("one")
    kafka.clock.sleep(30 * 24 * 3_600)
    app.tasks(slice_)
    summary = app.finish("one")
    assert ([task.records_dropped for task in summary.tasks], summary.records_misdated) == ([0, 0], 0)
    assert kafka.values("out") == [b"1"]


def test_repartitioned_record_is_refused_when_its_own_time_lies_far_ahead(kafka: InMemoryKafka) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    moved = builder.stream("in").select_key(lambda _key, _value: "b").group_by_key()
    moved.windowed_by(TumblingWindow(size_ms=HOUR)).count(store="counts")
    publish(kafka, MICROSECONDS)
    with pytest.raises(RecordError, match=r"app-counts-repartition-0@0.*max\.timestamp\.ahead\.ms"):
        application(kafka, builder.build()).run("one")


def test_bound_is_the_intervals_end_when_a_backfill_keeps_to_it(kafka: InMemoryKafka) -> None:
    interval = (T0 - 1_000 * DAY, T0 - 1_000 * DAY + HOUR)
    for value_ms, time_ms in ((interval[1] + DAY + 1, interval[0]), (interval[1] + DAY, interval[0] + 1)):
        kafka.append("in", b'{"ms": %d}' % value_ms, b"a", timestamp_ms=time_ms)
    app = application(kafka, copied(FIELD), {"autostop.at": "interval"})
    assert app.run("one", interval_ms=interval).records_misdated == 1


def test_cut_is_held_by_no_record_when_it_is_dated_far_ahead(kafka: InMemoryKafka) -> None:
    end = T0 - HOUR
    publish(kafka, MICROSECONDS, end - 2, end - 1, end, end + 1)
    app = application(kafka, copied(), {"autostop.at": "interval_end"})
    (part,) = app.run("one", interval_ms=(end - HOUR, end)).inputs
    assert (part.topic_partition, part.start_offset, part.stop_offset) == (TopicPartition("in", 0), 0, 3)


class SlowReads:
    """An interceptor under which each fetch takes a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if name == "reader.poll":
            self.clock.sleep(1)
        return effect()


def test_record_that_cuts_nothing_moves_no_time_however_long_a_begin_takes(kafka: InMemoryKafka) -> None:
    """What the cut passes over as dated far ahead, the tasks take as that, too."""
    publish(kafka, *(T0 + DAY + seconds * 1_000 for seconds in range(100, -1, -1)))
    app = application(kafka, copied(), {"autostop.at": "interval_end"})
    slow = replace(app, interceptor=SlowReads(kafka.clock))
    summary = slow.run("one", interval_ms=(T0 - HOUR, T0))
    (part,) = summary.inputs
    assert part.stop_offset == 100
    assert summary.records_misdated == 100


def test_driver_refuses_a_record_dated_in_microseconds() -> None:
    with TopologyTestDriver(counted(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value={}, timestamp_ms=T0)
        with pytest.raises(RecordError, match=r"max\.timestamp\.ahead\.ms"):
            driver.pipe_input("in", key="a", value={}, timestamp_ms=MICROSECONDS)
