"""Stream time comes to the moment of the run at its end, on a Kafka in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    RetryPolicy,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.errors import ConfigError, RunError, TopologyError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.runtime.stream_task import InlineExecution
from airflow_kstreams.streams.windows import RunEnd
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked

pytestmark = pytest.mark.promise(
    "windows-close-in-their-run", "quiet-runs-publish-what-is-due", "undated-sources-are-not-advanced"
)

TEXT = serdes.string()
HOUR = 3_600_000
#: A full hour; the clock is a long time after it.
T0 = 444_444 * HOUR
#: A record: topic, partition, key, hours after the start.
Arrival = tuple[str, int, str, float]
#: A result: value, its time in hours after the start.
Result = tuple[str, float]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)


def hourly(*, grace: float = 0, at_run_end: RunEnd = "hold", source: Any = None) -> Topology:
    """Count by key and hour; what comes out is ``key@hour=count``."""
    built = builder()
    window = TumblingWindow(size_ms=HOUR, grace_ms=round(grace * HOUR), at_run_end=at_run_end)
    counts = built.stream("in", **(source or {})).group_by_key().windowed_by(window).count(store="hourly")
    printed(counts.suppress().to_stream()).send_to("out")
    return built.build()


def printed(stream: Any) -> Any:
    """Give ``key@hour=value`` as values under the plain key."""
    return stream.map(
        lambda window, value: (window.key, f"{window.key}@{(window.start_ms - T0) / HOUR:g}={value}")
    )


def joined(kind: str = "outer_join") -> Topology:
    built = builder()
    window = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    left = built.stream("in").with_window(window)
    right = built.stream("other").with_window(window)
    getattr(left, kind)(right, lambda one, other: f"{one}+{other}").send_to("out")
    return built.build()


class Ticking(Processor):
    """Says every half hour how many records came in it."""

    jumps: Any = "each"

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store("seen")
        context.schedule(HOUR // 2, jumps=self.jumps)

    def process(self, record: Any) -> None:
        self.store.put("all", (self.store.get("all") or 0) + 1)

    def punctuate(self, stream_time_ms: int) -> None:
        count = self.store.delete("all") or 0
        self.context.forward("tick", f"{(stream_time_ms - T0) / HOUR:g}={count}")


class TickingOnce(Ticking):
    """Says it once for a jump of stream time."""

    jumps = "last"


class Silent(Ticking):
    """Says nothing."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.state_store("seen")


def ticking(processor: type[Ticking] = Ticking) -> Topology:
    built = builder()
    store = StoreSpec(name="seen", key_serde=TEXT, value_serde=serdes.int64())
    built.stream("in").process(processor, store).send_to("out")
    return built.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=T0 + 100 * HOUR))
    for topic in ("in", "other"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    return kafka


def application(kafka: InMemoryKafka, topology: Topology, **settings: object) -> Application:
    return Application(
        application_id="app",
        topology=topology,
        on=kafka,
        clock=kafka.clock,
        settings={"autostop.at": "interval_end", **{k.replace("_", "."): v for k, v in settings.items()}},
    )


def publish(kafka: InMemoryKafka, *arrivals: Arrival) -> None:
    for topic, partition, key, hours in arrivals:
        kafka.append(
            topic, key.encode(), key.encode(), partition=partition, timestamp_ms=T0 + round(hours * HOUR)
        )


def hours(first: float, last: float) -> tuple[int, int]:
    return T0 + round(first * HOUR), T0 + round(last * HOUR)


def out(kafka: InMemoryKafka, topic: str = "out") -> list[str]:
    return [(value or b"").decode() for value in kafka.values(topic)]


def dated(kafka: InMemoryKafka) -> list[Result]:
    return [
        ((record.value() or b"").decode(), (record.timestamp()[1] - T0) / HOUR)
        for record in kafka.records("out")
    ]


def test_windows_of_an_hour_are_published_by_the_run_of_that_hour(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.5), ("in", 1, "b", 0.2), ("in", 0, "a", 1.5))
    first = app.run("run-0", interval_ms=hours(0, 1))
    assert sorted(dated(kafka)) == [("a@0=2", 0.5), ("b@0=1", 0.2)]
    assert first.advanced_to_ms == T0 + HOUR
    assert read_ledger(kafka, "app").all_runs()["run-0"].advanced_to_ms == T0 + HOUR
    app.run("run-1", interval_ms=hours(1, 2))
    assert sorted(out(kafka)) == ["a@0=2", "a@1=1", "b@0=1"]


def test_windows_close_on_partitions_that_are_quiet_in_the_run_that_ends_past_them(
    kafka: InMemoryKafka,
) -> None:
    app = application(kafka, hourly(grace=1))
    publish(kafka, ("in", 0, "a", 0.1), ("in", 1, "b", 0.2), ("in", 0, "a", 1.5))
    app.run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == []
    app.run("run-1", interval_ms=hours(1, 2))
    assert sorted(out(kafka)) == ["a@0=1", "b@0=1"]


def test_stream_time_stays_where_records_brought_it_when_the_user_says_none(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(), stream_time_advance="none")
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 1.5))
    assert app.run("run-0", interval_ms=hours(0, 1)).advanced_to_ms is None
    assert out(kafka) == []
    app.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["a@0=1"]


def test_stream_time_comes_to_the_moment_of_begin_when_the_user_says_so(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(), autostop_at="eol", stream_time_advance="wall_clock_of_begin")
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 99.5), ("in", 0, "a", 100.0))
    begun_ms = app.run("run-0").begun_ms
    assert begun_ms == T0 + 100 * HOUR
    assert out(kafka) == ["a@0=1", "a@99=1"]


@pytest.mark.promise("wrong-clocks-are-said")
def test_run_says_that_its_drivers_clock_is_far_ahead_of_the_newest_record(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(), autostop_at="eol", stream_time_advance="wall_clock_of_begin")
    publish(kafka, ("in", 0, "b", 94.9), ("in", 1, "a", 95.0))
    (warning,) = app.run("run-0").warnings
    assert warning.startswith(
        "stream time was brought to 2020-09-17T16:00:00.000+00:00, when the run began by"
    )
    assert "newest record that was read is dated 2020-09-17T11:00:00.000+00:00" in warning
    publish(kafka, ("in", 1, "a", 98.9))
    late = app.run("run-1")
    assert late.counts is not None
    assert late.counts.by("late") == 1, "as the warning says"
    publish(kafka, ("in", 1, "a", 99.1))
    assert app.run("run-2").warnings == ()


#: Hours at which runs begin, by a right clock, and at which records come before them.
RIGHT = ((95.0, (94.2, 94.9)), (95.5, (95.4,)), (96.5, (95.9, 96.1, 96.4)), (97.5, (97.3,)), (98.1, (98.05,)))


def runs_begin(kafka: InMemoryKafka, *, ahead: float, settings: dict[str, object]) -> tuple[list[Any], int]:
    """Have :data:`RIGHT` come with a driver whose clock is ahead, in hours.

    :return: the runs' summaries, and how many records were late.
    """
    app = application(
        kafka, hourly(), autostop_at="eol", stream_time_advance="wall_clock_of_begin", **settings
    )
    summaries = []
    for number, (at, records) in enumerate(RIGHT):
        publish(kafka, *(("in", 0, "a", hour) for hour in records))
        kafka.clock.sleep((T0 + (at + ahead) * HOUR - kafka.clock.now_ms()) / 1000)
        summaries.append(app.run(f"run-{number}"))
    return summaries, sum(each.counts.by("late") for each in summaries if each.counts is not None)


@pytest.fixture
def early() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=T0 + 94 * HOUR))
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("out", message_timestamp_after_max_ms=str(100 * HOUR))
    return kafka


@pytest.mark.promise("wrong-clocks-drop-nothing")
def test_nothing_is_late_when_the_drivers_clock_is_five_hours_ahead(early: InMemoryKafka) -> None:
    summaries, late = runs_begin(early, ahead=5, settings={"max_timestamp_ahead_ms": HOUR // 4})
    assert late == 0
    assert out(early) == ["a@94=2", "a@95=2", "a@96=2", "a@97=1"]
    assert [each.advanced_to_ms and (each.advanced_to_ms - T0) / HOUR for each in summaries] == [
        None,
        95.15,
        95.65,
        96.65,
        97.55,
    ]
    first, second, *_ = (each.warnings for each in summaries)
    assert "stream time is not brought on: earlier runs have read no record" in first[0]
    assert (
        "by its driver's clock, and no record that it reads is dated within max.timestamp.ahead" in second[0]
    )


@pytest.mark.promise("wrong-clocks-drop-nothing")
@pytest.mark.parametrize("ahead_ms", [HOUR // 4, -1])
def test_right_clock_gives_what_it_gives_without_a_bound(early: InMemoryKafka, ahead_ms: int) -> None:
    summaries, late = runs_begin(early, ahead=0, settings={"max_timestamp_ahead_ms": ahead_ms})
    assert late == 0
    assert out(early) == ["a@94=2", "a@95=2", "a@96=2", "a@97=1"]
    assert [each.advanced_to_ms for each in summaries] == [each.begun_ms for each in summaries]
    assert [each.warnings for each in summaries] == [()] * len(RIGHT)


def test_record_that_is_dated_far_ahead_is_none_that_stream_time_goes_by(early: InMemoryKafka) -> None:
    kafka = early
    app = application(
        kafka,
        hourly(),
        autostop_at="eol",
        stream_time_advance="wall_clock_of_begin",
        max_timestamp_ahead_ms=HOUR // 4,
        processing_exception_handler="skip",
    )
    publish(kafka, ("in", 0, "a", 94.0))
    app.run("run-0")
    publish(kafka, ("in", 0, "a", 5_000_000), ("in", 0, "a", 94.1))
    kafka.clock.sleep(5 * 3600)
    assert app.run("run-1").advanced_to_ms == T0 + 94.25 * HOUR
    publish(kafka, ("in", 0, "a", 5_000_000), ("in", 0, "a", 98.9))
    assert app.run("run-2").advanced_to_ms == T0 + 99 * HOUR


@pytest.mark.parametrize(("ahead_ms", "closes"), [(HOUR // 2, False), (2 * HOUR, True), (-1, True)])
def test_run_without_records_comes_as_far_past_the_newest_as_records_may_be_dated(
    early: InMemoryKafka, ahead_ms: int, closes: bool
) -> None:
    kafka = early
    app = application(
        kafka,
        hourly(),
        autostop_at="eol",
        stream_time_advance="wall_clock_of_begin",
        max_timestamp_ahead_ms=ahead_ms,
    )
    publish(kafka, ("in", 0, "a", 94.2))
    kafka.clock.sleep(0.25 * 3600)
    app.run("run-0")
    assert out(kafka) == []
    kafka.clock.sleep(3 * 3600)
    summary = app.run("run-1")
    assert out(kafka) == (["a@94=1"] if closes else [])
    if ahead_ms > 0:
        assert summary.advanced_to_ms == round(T0 + 94.2 * HOUR) + ahead_ms
    kafka.clock.sleep(3600)
    assert app.run("run-2").advanced_to_ms == (summary.advanced_to_ms if ahead_ms > 0 else T0 + 98.25 * HOUR)


def test_retry_advances_to_the_first_moment_when_it_comes_hours_later(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(), autostop_at="eol", stream_time_advance="wall_clock_of_begin")
    publish(kafka, ("in", 0, "a", 99.5), ("in", 0, "a", 100.5))
    app.begin("run-0")
    kafka.clock.sleep(10 * 3600)
    app.run("run-0", (0, 2))
    assert out(kafka) == ["a@99=1"]


def test_open_windows_are_flushed_after_those_that_closed_when_the_window_says_so(
    kafka: InMemoryKafka,
) -> None:
    app = application(kafka, hourly(grace=1, at_run_end="flush"))
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 1.5), ("in", 0, "a", 2.5))
    app.run("run-0", interval_ms=hours(0, 2))
    assert out(kafka) == ["a@0=1", "a@1=1"]
    app.run("run-1", interval_ms=hours(2, 3))
    assert out(kafka) == ["a@0=1", "a@1=1", "a@2=1"]


def test_late_record_is_dropped_by_its_windows_own_grace_when_its_run_is_over(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(grace=0.5))
    publish(kafka, ("in", 0, "a", 0.9), ("in", 0, "b", 1.9), ("in", 0, "b", 2.1))
    app.run("run-0", interval_ms=hours(0, 1))
    publish(kafka, ("in", 0, "a", 0.8))  # its window takes records until 1.5
    app.run("run-1", interval_ms=hours(1, 3))
    assert out(kafka) == ["a@0=2", "b@1=1"]
    publish(kafka, ("in", 0, "late", 1.2), ("in", 0, "c", 3.1))
    last = app.run("run-2", interval_ms=hours(3, 4))
    assert last.counts is not None
    assert last.counts.by("late") == 1
    assert "late@1=1" not in out(kafka)


def test_elements_without_partner_come_in_the_run_that_ends_past_their_window(kafka: InMemoryKafka) -> None:
    app = application(kafka, joined())
    publish(kafka, ("in", 0, "a", 0.1), ("other", 0, "a", 0.2), ("in", 0, "b", 0.4), ("other", 1, "c", 0.45))
    publish(kafka, ("in", 1, "d", 0.9))
    app.run("run-0", interval_ms=hours(0, 1))
    assert sorted(out(kafka)) == ["None+c", "a+a", "b+None"]
    publish(kafka, ("in", 0, "e", 1.9))
    app.run("run-1", interval_ms=hours(1, 2))
    assert sorted(out(kafka)) == ["None+c", "a+a", "b+None", "d+None"]


@pytest.mark.parametrize("between", [False, True], ids=["right behind the join", "behind a topic"])
def test_element_without_partner_is_in_its_window_though_a_quiet_time_follows(
    kafka: InMemoryKafka, between: bool
) -> None:
    """It comes when its own window closes, not when the record that ends the quiet time has come."""
    built = builder()
    window = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    left, right = (built.stream(topic).with_window(window) for topic in ("in", "other"))
    paired = left.left_join(right, lambda one, other: f"{one}+{other}")
    found = paired.repartition(2, name="paired") if between else paired
    hour = TumblingWindow(size_ms=HOUR, grace_ms=HOUR // 2)
    printed(found.group_by_key().windowed_by(hour).count(store="hours").suppress().to_stream()).send_to("out")
    app = application(kafka, built.build())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 3.1))
    summary = app.run("run-0", interval_ms=hours(0, 6))
    assert out(kafka) == ["a@0=1", "a@3=1"]
    assert summary.counts is not None
    assert summary.counts.by("late") == 0


@pytest.mark.parametrize("between", [False, True], ids=["in one task", "behind a topic"])
def test_element_without_partner_is_late_where_another_topic_is_ahead_unless_a_topic_lies_between(
    kafka: InMemoryKafka, between: bool
) -> None:
    """Docs say so: both sides of the join are of one topic, whose stream time is its own."""
    built = builder()
    window = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    stream = built.stream("in")
    none = stream.filter(lambda key, value: False).with_window(window)
    alone = stream.with_window(window).left_join(none, lambda one, other: f"{one}+{other}")
    merged = alone.merge(built.stream("other"))
    found = merged.repartition(2, name="merged") if between else merged
    hour = TumblingWindow(size_ms=HOUR, grace_ms=HOUR // 2)
    printed(found.group_by_key().windowed_by(hour).count(store="hours").suppress().to_stream()).send_to("out")
    app = application(kafka, built.build())
    publish(kafka, ("in", 0, "a", 0.1), ("other", 0, "a", 0.2), ("other", 0, "a", 3.1))
    summary = app.run("run-0", interval_ms=hours(0, 6))
    assert out(kafka) == [f"a@0={1 + between}", "a@3=1"]
    assert summary.counts is not None
    assert summary.counts.by("late") == (not between)


def test_punctuations_come_once_for_each_multiple_up_to_the_moment(kafka: InMemoryKafka) -> None:
    app = application(kafka, ticking())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.6), ("in", 0, "a", 2.7))
    app.run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["0.5=2", "1=0"]
    app.run("run-1", interval_ms=hours(1, 3))
    assert out(kafka)[2:] == ["1.5=1", "2=0", "2.5=0", "3=0"]
    assert [at for _, at in dated(kafka)] == [0.5, 1, 1.5, 2, 2.5, 3]


@pytest.mark.promise("long-jumps-end-the-task")
@pytest.mark.parametrize("by_record", [False, True])
def test_long_jump_ends_the_run_and_one_call_for_it_lets_the_run_go_on(
    kafka: InMemoryKafka, by_record: bool
) -> None:
    publish(kafka, ("in", 0, "a", 0.1))
    application(kafka, ticking()).run("run-0", interval_ms=hours(0, 1))
    kafka.clock.sleep(6_000 * 3_600)
    if by_record:
        publish(kafka, ("in", 0, "a", 6_000.6))
    with pytest.raises(TopologyError, match=r"every 1800000 ms.* 1[12],\d{3} calls"):
        application(kafka, ticking()).run("run-1", interval_ms=hours(6_000, 6_001))
    application(kafka, ticking(TickingOnce)).run("run-1", interval_ms=hours(6_000, 6_001))
    assert out(kafka)[2:] == (["6000.5=1", "6001=0"] if by_record else ["6001=0"])


def test_task_without_a_record_is_not_advanced(kafka: InMemoryKafka) -> None:
    app = application(kafka, ticking())
    publish(kafka, ("in", 0, "a", 0.9))
    app.run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["1=1"], "partition 1 has not begun"
    publish(kafka, ("in", 1, "b", 2.9))
    app.run("run-1", interval_ms=hours(1, 3))
    assert sorted(out(kafka)) == ["1.5=0", "1=1", "2.5=0", "2=0", "3=0", "3=1"]


def test_topic_without_a_record_begins_with_the_time_of_the_others(kafka: InMemoryKafka) -> None:
    built = builder()
    seen = StoreSpec(name="seen", key_serde=TEXT, value_serde=serdes.int64())
    built.stream("other").process(Ticking, seen).merge(built.stream("in")).send_to("out")
    publish(kafka, ("in", 0, "a", 0.1))
    application(kafka, built.build()).run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["a", "0.5=0", "1=0"]


def test_record_is_late_behind_the_moment_though_nothing_was_due_there(kafka: InMemoryKafka) -> None:
    built = builder()
    quarter = TumblingWindow(size_ms=HOUR // 4, grace_ms=0)
    counts = built.stream("in").group_by_key().windowed_by(quarter).count(store="quarters")
    printed(counts.suppress().to_stream()).send_to("out")
    app = application(kafka, built.build())
    publish(kafka, ("in", 0, "a", 0.1))
    app.run("run-0", interval_ms=hours(0, 1))
    publish(kafka, ("in", 0, "late", 0.6), ("in", 0, "a", 1.1))
    last = app.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["a@0=1", "a@1=1"]
    assert last.counts is not None
    assert last.counts.by("late") == 1


def test_run_of_an_earlier_interval_takes_no_time_back(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 1.5))
    app.run("run-0", interval_ms=hours(0, 2))
    assert app.run("by hand", interval_ms=hours(0, 1)).empty
    publish(kafka, ("in", 0, "late", 1.6), ("in", 0, "a", 2.1))
    app.run("run-1", interval_ms=hours(2, 3))
    assert out(kafka) == ["a@0=1", "a@1=1", "a@2=1"]


def test_source_with_extracted_times_is_advanced_only_when_it_is_named(kafka: InMemoryKafka) -> None:
    extracting = {"timestamps": timestamps.extract(lambda record: record.timestamp_ms)}
    topology = hourly(source=extracting)
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 1.5))
    summary = application(kafka, topology).run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == []
    (warning,) = summary.warnings
    assert warning.startswith(
        "stream time of subtopology 0 is not advanced to the end of the run: records of, or"
    )
    assert "behind, in may be dated before any moment" in warning
    named = application(kafka, topology, stream_time_advance_also="in")
    named.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["a@0=1", "a@1=1"]


def test_source_with_the_records_own_times_and_a_policy_is_advanced(kafka: InMemoryKafka) -> None:
    topology = hourly(source={"timestamps": timestamps.record_time(invalid="skip")})
    publish(kafka, ("in", 0, "a", 0.1))
    summary = application(kafka, topology).run("run-0", interval_ms=hours(0, 1))
    assert (out(kafka), summary.warnings) == (["a@0=1"], ())


@pytest.mark.parametrize(
    ("settings", "said", "mended"),
    [
        walked(
            "stream_time.refuse_unfit_end_of_run: set autostop.at=interval_end",
            {"autostop_at": "eol", "stream_time_advance": "cut"},
            "which cuts at no time",
            {"autostop_at": "interval_end", "stream_time_advance": "cut"},
        ),
        walked(
            "stream_time.refuse_unfit_end_of_run: leave stream.time.advance out: stream time then",
            {"stream_time_advance": "wall_clock_of_begin"},
            "is the next run's, and would be late there",
            {},
        ),
        walked(
            "stream_time.refuse_unfit_end_of_run: leave stream.time.advance out, or set autostop.at",
            {"autostop_at": None, "stream_time_advance": "wall_clock_of_begin"},
            "it has no end at which stream time could advance",
            {"stream_time_advance": "cut"},
        ),
        walked(
            "stream_time.refuse_unfit_end_of_run: name only what does",
            {"stream_time_advance_also": "inn"},
            "inn does not keep stream time from advancing",
            {},
        ),
    ],
)
def test_begin_refuses_what_cannot_be_advanced(
    kafka: InMemoryKafka, settings: dict[str, object], said: str, mended: dict[str, object]
) -> None:
    publish(kafka, ("in", 0, "a", 0.1))
    with pytest.raises(ConfigError, match=said):
        application(kafka, hourly(), **settings).begin("run-0", interval_ms=hours(0, 1))
    application(kafka, hourly(), **mended).run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["a@0=1"]


def test_finish_is_refused_while_a_quiet_task_has_not_advanced(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(grace=1))
    publish(kafka, ("in", 0, "a", 0.1), ("in", 1, "b", 0.2), ("in", 0, "a", 1.5))
    app.run("run-0", interval_ms=hours(0, 1))
    begun = app.begin("run-1", interval_ms=hours(1, 2))
    app.task(begun, 0, 0)
    with pytest.raises(RunError, match="task 0_1 has not made its last commit"):
        app.finish("run-1")
    app.task(begun, 0, 1)
    app.finish("run-1")
    assert sorted(out(kafka)) == ["a@0=1", "b@0=1"]


# == in the test driver, and with calls


@pytest.mark.parametrize("threads", [1, 2])
def test_driver_ends_a_run_as_it_ends_on_a_cluster(threads: int) -> None:
    settings = {"num.threads.per.task": threads, "num.stream.threads": threads}
    with TopologyTestDriver(of_windows(), application_id="app", settings=settings) as driver:
        for at in (0.1, 0.3, 0.6, 0.8, 0.95):
            driver.pipe_input("in", key="a", value="a", timestamp_ms=hours(at, at)[0])
        driver.restart(stream_time_ms=T0 + HOUR)
        assert driver.read_output("out") == []
        driver.restart(stream_time_ms=T0 + HOUR + HOUR // 2)
        assert [record.value for record in driver.read_output("out")] == ["all@0=4"]


def test_windows_between_calls_close_when_stream_time_advances(kafka: InMemoryKafka) -> None:
    async def echoed(value: str) -> str:
        return value

    built = builder()
    window = TumblingWindow(size_ms=HOUR, grace_ms=0)
    called = built.stream("in").map_values_async(echoed)
    quarters = called.group_by_key().windowed_by(TumblingWindow(size_ms=HOUR // 4, grace_ms=0))
    counted = quarters.count(store="quarters").suppress().to_stream(lambda window, _: window.key)
    again = counted.map_values(str).map_values_async(echoed).group_by_key().windowed_by(window)
    printed(again.count(store="hours").suppress().to_stream()).send_to("out")
    app = application(kafka, built.build())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.3), ("in", 1, "b", 0.9), ("in", 0, "a", 1.1))
    app.run("run-0", interval_ms=hours(0, 1))
    app.run("run-1", interval_ms=hours(1, 2))
    assert sorted(out(kafka)) == ["a@0=2", "b@0=1"], "hours stay a quarter behind: quarters are open so long"


def test_task_with_parked_records_is_advanced_only_when_their_node_is_named(kafka: InMemoryKafka) -> None:
    async def ask(value: str) -> str:
        if value == "bad":
            raise ConnectionError("away")
        return value

    built = builder()
    retry = RetryPolicy(attempts=10, backoff_ms=60_000, jitter=0)
    called = built.stream("in").map_values_async(ask, order="key", retry=retry, name="enrich")
    counts = called.group_by_key().windowed_by(TumblingWindow(size_ms=HOUR, grace_ms=0)).count(store="hourly")
    printed(counts.suppress().to_stream()).send_to("out")
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "bad", 0.2), ("in", 1, "b", 0.3))
    few = {"retry_run_budget_ms": 100}
    summary = application(kafka, built.build(), **few).run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["b@0=1"]
    (warning,) = summary.warnings
    assert warning.startswith("stream time of 1 task (0_0 is the first) was not advanced")
    named = application(kafka, built.build(), stream_time_advance_also="enrich", **few)
    assert named.run("run-1", interval_ms=hours(1, 2)).warnings == ()
    assert sorted(out(kafka)) == ["a@0=1", "b@0=1"]


def test_stream_time_is_not_advanced_past_stops_that_another_program_has_frozen(kafka: InMemoryKafka) -> None:
    """They are no cut by time: the records behind them are dated before the moment, and not late."""
    kafka.create_topic("app-metadata", cleanup_policy="compact")
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.2), ("in", 0, "a", 0.3))
    for key, value in ((b"in_0", b"1"), (b"in_1", b"0"), (b"app", b"0")):
        kafka.append("app-metadata", value, key)
    app = application(kafka, hourly())
    taken_over = app.run("run-0", interval_ms=hours(0, 1))
    assert [part.stop_offset for part in taken_over.inputs] == [1, 0]
    assert (out(kafka), taken_over.advanced_to_ms) == ([], None)
    (warning,) = taken_over.warnings
    assert "another program has frozen its stop offsets" in warning
    app.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["a@0=3"]


def test_task_is_not_advanced_when_only_one_of_two_nodes_with_parked_records_is_named(
    kafka: InMemoryKafka,
) -> None:
    def asking(name: str) -> Any:
        async def ask(value: str) -> str:
            if value == name:
                raise ConnectionError("away")
            return value

        return ask

    built = builder()
    stream: Any = built.stream("in")
    for name in ("first", "second"):
        retry = RetryPolicy(attempts=10, backoff_ms=60_000, jitter=0)
        stream = stream.map_values_async(asking(name), order="key", retry=retry, name=name)
    hour = TumblingWindow(size_ms=HOUR, grace_ms=0)
    printed(stream.group_by_key().windowed_by(hour).count(store="hourly").suppress().to_stream()).send_to(
        "out"
    )
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "first", 0.2), ("in", 0, "second", 0.3))
    app = application(kafka, built.build(), retry_run_budget_ms=100, stream_time_advance_also="first")
    summary = app.run("run-0", interval_ms=hours(0, 1))
    assert summary.parked == {"first": 1, "second": 1}
    assert out(kafka) == []
    (warning,) = summary.warnings
    assert warning.startswith("stream time of 1 task (0_0 is the first) was not advanced")


def test_run_says_so_when_its_data_interval_is_not_over_yet(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly())
    publish(kafka, ("in", 0, "a", 99.5))
    (warning,) = app.run("run-0", interval_ms=hours(99, 100.5)).warnings
    assert warning.startswith("the data interval ends 1800 s after the run began")
    kafka.alter_topic("out", message_timestamp_after_max_ms=str(3 * HOUR))
    assert application(kafka, ticking()).run("run-1", interval_ms=hours(101, 102)).warnings == ()


def test_run_says_that_what_an_open_transaction_hides_will_be_late(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly())
    publish(kafka, ("in", 0, "a", 0.1))
    writer = kafka.writer(transactional_id="a user's")
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"a", b"a", 0, T0 + HOUR // 2, None)
    writer.flush()
    (warning,) = app.run("run-0", interval_ms=hours(0, 1)).warnings
    assert "goes to a later run, where what is dated before the end of this one is late by its" in warning
    writer.commit()
    last = app.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["a@0=1"]
    assert last.counts is not None
    assert last.counts.by("late") == 1


def test_what_is_cached_is_in_time_for_a_window_that_the_end_of_the_run_closes(kafka: InMemoryKafka) -> None:
    built = builder()
    totals = built.stream("in").group_by_key().count(store="totals").to_stream()
    counts = totals.group_by_key().windowed_by(TumblingWindow(size_ms=HOUR, grace_ms=0)).count(store="hourly")
    printed(counts.suppress().to_stream()).send_to("out")
    app = application(kafka, built.build(), commit_every_records=100)
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.2), ("in", 1, "b", 0.3))
    summary = app.run("run-0", interval_ms=hours(0, 1))
    assert sorted(out(kafka)) == ["a@0=1", "b@0=1"]
    assert summary.counts is not None
    assert summary.counts.by("late") == 0


def test_stream_time_stays_where_a_timer_parks_a_record(kafka: InMemoryKafka) -> None:
    """What it parks comes back dated as it was: were stream time past it, it would be late then."""
    away = True

    async def ask(value: str) -> str:
        if away and value.startswith("0.5"):
            raise ConnectionError("away")
        return value

    built = builder()
    seen = StoreSpec(name="seen", key_serde=TEXT, value_serde=serdes.int64())
    retry = RetryPolicy(attempts=10, backoff_ms=1, jitter=0)
    ticks = built.stream("in").process(Ticking, seen)
    ticks.map_values_async(ask, order="key", retry=retry, name="ask").send_to("out")
    app = application(kafka, built.build(), retry_run_budget_ms=100)
    publish(kafka, ("in", 0, "a", 0.1))
    assert app.run("run-0", interval_ms=hours(0, 1)).parked == {"ask": 1}
    assert out(kafka) == []
    away = False
    kafka.clock.sleep(60)
    app.run("run-1", interval_ms=hours(1, 2))
    assert out(kafka) == ["0.5=1", "1=0", "1.5=0", "2=0"]


# == runs with nothing new


def test_windows_are_published_by_a_run_with_nothing_new_when_they_are_due(kafka: InMemoryKafka) -> None:
    app = application(kafka, hourly(grace=1))
    publish(kafka, ("in", 0, "a", 0.1), ("in", 1, "b", 1.2))
    app.run("run-0", interval_ms=hours(0, 1))
    begun = app.begin("run-1", interval_ms=hours(1, 1.5))
    assert not begun.plan.empty, "b has come"
    app.run("run-1", (0, 2), interval_ms=hours(1, 1.5))
    assert out(kafka) == []
    begun = app.begin("run-2", interval_ms=hours(1.5, 2))
    assert not begun.plan.empty, "a window closes"
    assert unfinished(app, begun) == [0], "partition 1 has nothing to do before 3"
    app.run("run-2", (0, 2), interval_ms=hours(1.5, 2))
    assert out(kafka) == ["a@0=1"]
    assert app.begin("run-3", interval_ms=hours(2, 2.5)).plan.empty, "nothing is due before 3"
    app.run("run-3", (0, 2), interval_ms=hours(2, 2.5))
    app.run("run-4", interval_ms=hours(2.5, 3))
    assert out(kafka) == ["a@0=1", "b@1=1"]
    assert app.begin("run-5", interval_ms=hours(3, 9)).plan.empty


@pytest.mark.parametrize("kind", ["join", "outer_join"])
def test_run_with_nothing_new_is_empty_when_a_join_has_only_to_clear_away(
    kafka: InMemoryKafka, kind: str
) -> None:
    app = application(kafka, joined(kind))
    publish(kafka, ("in", 0, "a", 0.1), ("other", 0, "a", 0.2), ("in", 0, "b", 0.9), ("other", 0, "c", 0.95))
    app.run("run-0", interval_ms=hours(0, 1))
    unmatched = app.run("run-1", interval_ms=hours(1, 2))
    assert unmatched.empty is (kind == "join")
    assert all(app.run(f"run-{n}", interval_ms=hours(n, n + 1)).empty for n in range(2, 9))
    publish(kafka, ("in", 0, "d", 8.5), ("in", 0, "d", 9.1), ("other", 0, "d", 9.2))
    app.run("run-9", interval_ms=hours(9, 10))
    assert out(kafka) == ["a+a", *(["b+None", "None+c"] if kind == "outer_join" else []), "d+d"]


def test_run_with_nothing_new_is_empty_when_windows_that_are_not_suppressed_have_only_to_be_cleared_away(
    kafka: InMemoryKafka,
) -> None:
    built = builder()
    window = TumblingWindow(size_ms=HOUR, grace_ms=HOUR)
    printed(built.stream("in").group_by_key().windowed_by(window).count(store="hourly").to_stream()).send_to(
        "out"
    )
    app = application(kafka, built.build())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 0, "a", 0.9))
    app.run("run-0", interval_ms=hours(0, 1))
    assert all(app.run(f"run-{n}", interval_ms=hours(n, n + 1)).empty for n in range(1, 4))
    publish(kafka, ("in", 0, "late", 0.2), ("in", 0, "a", 4.5))
    last = app.run("run-4", interval_ms=hours(4, 5))
    assert out(kafka) == ["a@0=2", "a@4=1"]
    assert last.counts is not None
    assert last.counts.by("late") == 1


def test_advance_makes_no_moments_of_those_at_which_a_join_only_clears_away(
    kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join by seconds has tens of thousands of them an hour."""
    moments: list[float] = []
    passes = InlineExecution.pass_time

    def noted(of: InlineExecution, to_ms: Mapping[str, int]) -> None:
        moments.append((max(to_ms.values()) - T0) / HOUR)
        passes(of, to_ms)

    monkeypatch.setattr(InlineExecution, "pass_time", noted)
    built = builder()
    window = SlidingWindow(size_ms=1_000, grace_ms=0)
    left, right = (built.stream(topic).with_window(window) for topic in ("in", "other"))
    left.left_join(right, lambda one, other: f"{one}+{other}").send_to("out")
    publish(kafka, ("in", 0, "a", 0.1), ("other", 0, "b", 0.1))
    application(kafka, built.build()).run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == ["a+None"]
    assert moments == [pytest.approx(0.1, abs=0.001), 1.0]


def test_time_passes_for_a_task_that_has_nothing_to_do(kafka: InMemoryKafka) -> None:
    """Whether a record is late hangs on the runs that are over, not on which tasks they launched."""
    app = application(kafka, hourly())
    publish(kafka, ("in", 0, "a", 0.1), ("in", 1, "b", 0.2))
    app.run("run-0", interval_ms=hours(0, 1))
    empty = app.run("run-1", interval_ms=hours(1, 2))
    assert (empty.empty, empty.advanced_to_ms) == (True, T0 + 2 * HOUR)
    publish(kafka, ("in", 0, "late", 1.5), ("in", 0, "a", 2.5), ("in", 0, "a", 3.5))
    app.run("run-2", interval_ms=hours(2, 3))
    publish(kafka, ("in", 1, "late", 2.5))
    last = app.run("run-3", interval_ms=hours(3, 4))
    assert sorted(out(kafka)) == ["a@0=1", "a@2=1", "a@3=1", "b@0=1"]
    assert last.counts is not None
    assert last.counts.by("late") == 1


def test_task_counts_as_due_when_the_topology_is_another(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, ("in", 0, "a", 0.1))
    application(kafka, hourly()).run("run-0", interval_ms=hours(0, 1))
    assert application(kafka, hourly()).begin("run-1", interval_ms=hours(1, 2)).plan.empty
    application(kafka, hourly()).finish("run-1")
    assert not application(kafka, hourly(grace=1)).begin("run-2", interval_ms=hours(2, 3)).plan.empty


def test_task_counts_as_due_when_a_run_of_another_topology_was_dropped_since(kafka: InMemoryKafka) -> None:
    publish(kafka, ("in", 0, "a", 0.1))
    application(kafka, ticking()).run("run-0", interval_ms=hours(0, 0.25))
    publish(kafka, ("in", 0, "b", 0.3))
    app = application(kafka, ticking(Silent))
    app.tasks(app.begin("run-1", interval_ms=hours(0.25, 0.4)))
    request = ResetRequest(application_id="app", delete_stop_offsets=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
        reset.run()

    summary = application(kafka, ticking()).run("run-2", interval_ms=hours(0.4, 1))

    assert not summary.empty
    assert out(kafka) == ["0.5=2", "1=0"]


def unfinished(app: Application, begun: Slice) -> list[int]:
    """Return the groups of the first subtopology that a driver would launch."""
    driver = app.coordinator()
    driver.begin(
        begun.run_id,
        app.topology.plan("app"),
        order=(0, 2),
        hold_lease=True,
        interval_ms=begun.plan.interval_ms,
    )
    groups = [share.group for share in driver.unfinished(begun, 0)]
    driver.lease.release()
    driver.close()
    return groups


# == downstream


def of_windows(*, grace: float = 0.25) -> Topology:
    """How many keys came in each hour: windows of results of windows."""
    built = builder()
    inner = TumblingWindow(size_ms=HOUR // 4, grace_ms=round(grace * HOUR))
    outer = TumblingWindow(size_ms=HOUR, grace_ms=0)
    quarters = built.stream("in").group_by_key().windowed_by(inner).count(store="quarters").suppress()
    by_all = quarters.to_stream().group_by(
        lambda window, count: "all", key_serde=TEXT, value_serde=serdes.int64(), name="by-all"
    )
    counts = by_all.windowed_by(outer).count(store="hours").suppress()
    printed(counts.to_stream()).send_to("out")
    return built.build()


def test_plan_says_how_far_behind_a_subtopology_stays() -> None:
    first, second = of_windows().plan("app").subtopologies
    assert (first.stream_time.behind_ms, first.stream_time.windowed) == (0, True)
    assert second.stream_time.behind_ms == HOUR // 2


def test_upstream_grace_with_a_downstream_window(kafka: InMemoryKafka) -> None:
    """What the upstream window gives late is not late downstream, since stream time stays behind there."""
    app = application(kafka, of_windows())
    times = [0.1, 0.3, 0.6, 0.8, 0.95]
    publish(kafka, *[("in", 0, "a", at) for at in times], ("in", 1, "b", 0.2))
    first = app.run("run-0", interval_ms=hours(0, 1))
    assert out(kafka) == [], "the last quarter's window may still take records"
    assert first.warnings == ()
    publish(kafka, ("in", 0, "a", 0.9), ("in", 0, "a", 1.6))
    second = app.run("run-1", interval_ms=hours(1, 1.5))
    assert out(kafka) == ["all@0=5"], "4 quarters of a, 1 of b"
    assert second.counts is not None
    assert second.counts.by("late") == 0


# == slices


def topologies() -> dict[str, Callable[[], Topology]]:
    def hopping() -> Topology:
        built = builder()
        window = HoppingWindow(size_ms=HOUR, advance_ms=HOUR // 2, grace_ms=HOUR // 4)
        counts = built.stream("in").group_by_key().windowed_by(window).count(store="hopping")
        printed(counts.suppress().to_stream()).send_to("out")
        return built.build()

    def sessions() -> Topology:
        built = builder()
        window = SessionWindow(gap_ms=HOUR // 4, grace_ms=0)
        counts = built.stream("in").group_by_key().windowed_by(window).count(store="sessions")
        printed(counts.suppress().to_stream()).send_to("out")
        return built.build()

    return {
        "hourly": hourly,
        "hopping": hopping,
        "sessions": sessions,
        "joined": joined,
        "of windows": of_windows,
        "windows of joined": lambda: of_joined(TumblingWindow(size_ms=HOUR // 4, grace_ms=HOUR * 11 // 20)),
        "sliding windows of joined": lambda: of_joined(
            SlidingWindow(size_ms=HOUR // 8, grace_ms=HOUR * 11 // 20)
        ),
        "sessions of joined": lambda: of_joined(SessionWindow(gap_ms=HOUR // 8, grace_ms=HOUR * 11 // 20)),
        "joined twice": joined_twice,
    }


def of_joined(window: Any) -> Topology:
    """Fold what a join gives, in its order, by windows which take in what finds no partner, and no more."""
    built = builder()
    quarter = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    left, right = (built.stream(topic).with_window(quarter) for topic in ("in", "other"))
    paired = left.outer_join(right, lambda one, other: f"{one}+{other}")
    folded = paired.group_by_key().windowed_by(window).reduce("{},{}".format, store="folded")
    printed(folded.suppress().to_stream()).send_to("out")
    return built.build()


def joined_twice() -> Topology:
    """A join of what a join gives with one of its inputs, and all that it gave, in its order, by key."""
    built = builder()
    quarter = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    left, right = (built.stream(topic).with_window(quarter) for topic in ("in", "other"))
    paired = left.outer_join(right, lambda one, other: f"{one}+{other}")
    wide = SlidingWindow(size_ms=HOUR // 4, grace_ms=HOUR * 3 // 10)
    again = paired.with_window(wide).outer_join(right, lambda one, other: f"({one})+{other}")
    spec = StoreSpec(name="all", key_serde=TEXT, value_serde=TEXT, cached=False)
    again.group_by_key().reduce("{},{}".format, store=spec).to_stream().send_to("out")
    return built.build()


def arrivals(until: float) -> Iterator[Arrival]:
    """In the order of their times; some hours are quiet on a partition, or on both."""
    for number in range(1, round(until * 20)):
        at = number / 20 + 0.001
        if int(at) % 4 == 2 or (int(at) % 5 == 3 and number % 2):
            continue
        topic = ("in", "in", "other")[number * 7 % 3]
        yield topic, number % 2, f"k{number * 5 % 3}-{number % 2}", at


def results(
    topology: Topology,
    ends: Iterable[float],
    until: float,
    between: Callable[[int], object] = int,
    **files: str,
) -> list[Result]:
    """Run with the slices that end at these hours, the last of them with records past it.

    :param between: called before each run, with its number.
    :param files: where stores on disk lie.
    """
    kafka = InMemoryKafka(clock=ManualClock(now_ms=T0 + 100 * HOUR))
    for topic in ("in", "other"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    app = replace(application(kafka, topology, **files), client={})
    publish(kafka, *arrivals(until + 1))
    for number, (start, end) in enumerate(pairwise([0.0, *ends])):
        between(number)
        app.run(f"run-{number}", interval_ms=hours(start, end))
    return sorted(dated(kafka))


@pytest.mark.parametrize("name", topologies())
def test_results_are_the_same_in_one_run_a_day_and_one_an_hour(name: str) -> None:
    make = topologies()[name]
    whole = results(make(), [8], 8)
    assert whole
    assert results(make(), range(1, 9), 8) == whole
    assert results(make(), [0.5, 1.25, 3, 3.1, 8], 8) == whole


def on_disk() -> Topology:
    """Windows, and a join of what they give with the stream, whose stores lie in RocksDB."""
    built = builder()
    quarter = TumblingWindow(size_ms=HOUR // 4, grace_ms=HOUR // 8)
    spec = StoreSpec(name="quarters", key_serde=TEXT, value_serde=serdes.int64(), storage="rocksdb")
    counts = built.stream("in").group_by_key().windowed_by(quarter).count(store=spec)
    printed(counts.suppress().to_stream()).send_to("out")
    window = SlidingWindow(size_ms=HOUR // 4, grace_ms=0)
    left = built.stream("in").with_window(window, storage="rocksdb")
    right = built.stream("other").with_window(window, storage="rocksdb")
    left.outer_join(right, lambda one, other: f"{one}+{other}").send_to("out")
    return built.build()


@pytest.mark.parametrize(
    "kept", ["files are kept", "files are gone", "files are those of the last run but one"]
)
def test_restore_between_any_two_runs_changes_nothing(kept: str, tmp_path: Path) -> None:
    """Every run restores what lies in memory; what lies on disk, each from what is left of it there."""
    whole = results(on_disk(), [8], 8, state_dir=str(tmp_path / "whole"))
    files, older = tmp_path / "files", tmp_path / "older"

    def between(number: int) -> None:
        if kept == "files are gone":
            shutil.rmtree(files, ignore_errors=True)
        if kept == "files are those of the last run but one" and files.exists():
            older.mkdir(exist_ok=True)
            spare = older.rename(tmp_path / "spare")
            files.rename(older)
            spare.rename(files)

    assert results(on_disk(), [1, 1.5, 2, 3, 4, 5, 6, 7, 8], 8, between, state_dir=str(files)) == whole
    assert len(whole) > 50


def test_timers_come_at_the_same_moments_in_one_run_a_day_and_one_an_hour() -> None:
    """Between which records, a cut may decide (docs/explanation/time-and-errors.md)."""
    whole = [at for _, at in results(ticking(), [8], 8)]
    assert sorted(at for _, at in results(ticking(), range(1, 9), 8)) == sorted(whole)
    assert sorted({*whole}) == [number / 2 for number in range(1, 17)]


def test_missed_hour_followed_by_a_run_of_two(kafka: InMemoryKafka) -> None:
    whole = results(hourly(), [1, 2, 3, 4], 4)
    assert results(hourly(), [1, 3, 4], 4) == whole
    assert [value for value, _ in whole if "@1=" in value], "the missed hour has windows of its own"
