"""Runs that go by their data interval, on a Kafka in memory: cut at its end, or kept to it in a backfill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import BehindCut, FrozenPartition, Slice
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.batch.report.results import result_of_summary
from airflow_kstreams.batch.run.begin.intervals import count_behind
from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import ConfigError, DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("runs-end-with-their-interval", "late-behind-the-cut-is-counted")

TEXT = serdes.string()
#: The first interval's start; the clock is a long time after it, so markers are dated after every interval.
T0 = 1_600_000_000_000
HOUR = 3_600_000
IN = TopicPartition("in", 0)


def interval(number: int) -> tuple[int, int]:
    return (T0 + number * HOUR, T0 + (number + 1) * HOUR)


def copied() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").send_to("out")
    return builder.build()


def counted() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").group_by(lambda _, value: value[0]).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=T0 + 1_000 * HOUR))
    kafka.create_topic("in")
    kafka.create_topic("out")
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka) -> Callable[..., Application]:
    def make(autostop: str, topology: Topology | None = None, application_id: str = "app") -> Application:
        return Application(
            application_id=application_id,
            topology=topology or copied(),
            on=kafka,
            clock=kafka.clock,
            settings={"autostop.at": autostop, "commit.interval.ms": 1},
        )

    return make


def publish(kafka: InMemoryKafka, *records: tuple[str, float], partition: int = 0) -> None:
    """Write values dated so many hours after the first interval's start."""
    for value, hours in records:
        at_ms = T0 + round(hours * HOUR)
        kafka.append("in", value.encode(), value.encode(), partition=partition, timestamp_ms=at_ms)


def in_transaction(kafka: InMemoryKafka, *records: tuple[str, float], abort: bool = False) -> None:
    writer = kafka.writer(transactional_id="foreign")
    writer.init_transactions()
    writer.begin()
    for value, hours in records:
        writer.produce("in", value.encode(), value.encode(), 0, T0 + round(hours * HOUR), None)
    writer.flush()
    (writer.abort if abort else writer.commit)()
    writer.close()


def out(kafka: InMemoryKafka) -> list[str]:
    return [(value or b"").decode() for value in kafka.values("out")]


def bounds(found: Slice | RunSummary) -> list[tuple[int, int]]:
    return [(part.start_offset, part.stop_offset) for part in found.inputs]


# == interval_end


def test_run_stops_before_the_first_record_past_its_interval_and_late_ones_go_to_the_next(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 0.9), ("c", 1.0), ("late", 0.95), ("d", 1.5), ("e", 2.2))
    app = application("interval_end")
    first = app.run("run-0", interval_ms=interval(0))
    assert (bounds(first), out(kafka)) == ([(0, 2)], ["a", "b"])
    second = app.run("run-1", interval_ms=interval(1))
    assert (bounds(second), out(kafka)) == ([(2, 5)], ["a", "b", "c", "late", "d"])
    assert first.interval_ms == interval(0)
    assert not first.warnings


def test_records_behind_the_cut_are_counted_when_they_are_dated_before_it(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("c", 1.0), ("late", 0.95), ("d", 1.5), ("later", 0.2), ("e", 2.2))
    app = application("interval_end")
    first = app.run("run-0", interval_ms=interval(0))
    assert first.behind_cut == BehindCut(records={"in": 2})
    assert "in: 2 left to the next run, dated before the cut and behind it" in finished_text(first)
    assert result_of_summary(first)["records_behind_cut"] == 2
    publish(kafka, ("latest", 0.3))  # behind the second cut, too
    second = app.run("run-1", interval_ms=interval(1))
    assert second.behind_cut == BehindCut(records={"in": 1})
    assert read_ledger(kafka, "app").all_runs()["run-1"].behind_cut == second.behind_cut
    last = app.run("run-2", interval_ms=interval(2))
    assert last.behind_cut == BehindCut()
    assert out(kafka) == ["a", "c", "late", "d", "later", "e", "latest"]


def test_late_records_are_dropped_and_counted_per_node_when_their_window_has_no_grace(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    hourly = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=HOUR, grace_ms=0))
    hourly.count(store="hourly").to_stream().send_to("out", value_serde=serdes.int64())
    app = application("interval_end", builder.build())
    publish(kafka, ("a", 0.1), ("c", 1.0), ("d", 1.5), ("e", 2.1))
    app.run("run-0", interval_ms=interval(0))
    app.run("run-1", interval_ms=interval(1))
    publish(kafka, ("late", 0.3), ("f", 3.1))
    summary = app.run("run-2", interval_ms=interval(2))
    assert summary.counts is not None
    assert [(entry.rule, entry.records) for entry in summary.counts.left_out] == [("late", 1)]


def test_count_of_what_lies_behind_says_that_there_may_be_more_when_it_ends_early(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, ("c", 1.0), *[("late", 0.5)] * 40)
    cut = FrozenPartition(topic="in", partition=0, start_offset=0, stop_offset=0)
    reader = kafka.reader(group_id="app")
    some = count_behind(reader, [cut], {IN: 41}, interval(0)[1], clock=kafka.clock, looked_at=41)
    assert some == BehindCut(records={"in": 40})
    none = count_behind(reader, [cut], {IN: 41}, interval(0)[1], clock=kafka.clock, looked_at=0)
    assert none == BehindCut(whole=False)


def test_nothing_is_counted_behind_a_cut_when_none_is_made(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 1.1))
    summary = application("eol").run("run-0")
    assert (summary.behind_cut, result_of_summary(summary)["records_behind_cut"]) == (None, None)


def test_run_reads_to_the_end_when_nothing_is_dated_past_its_interval(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 0.2))
    assert bounds(application("interval_end").run("run-0", interval_ms=interval(3))) == [(0, 2)]


@pytest.mark.promise("cuts-are-frozen")
def test_stop_offsets_stay_when_a_retry_finds_more_records_of_the_interval(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval_end")
    publish(kafka, ("a", 0.1), ("b", 0.2))
    begun = app.begin("run-0", interval_ms=interval(0))
    publish(kafka, ("more", 0.3), ("c", 1.1))
    assert app.begin("run-0", (0, 2), interval_ms=interval(0)).inputs == begun.inputs
    app.run("run-0", (0, 3), interval_ms=interval(0))
    assert out(kafka) == ["a", "b"]
    app.run("run-1", interval_ms=interval(1))
    assert out(kafka) == ["a", "b", "more", "c"]


def test_unfinished_run_is_finished_first_with_its_own_interval(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval_end")
    publish(kafka, ("a", 0.1), ("b", 1.1), ("c", 2.1))
    app.begin("run-0", interval_ms=interval(0))
    found = app.begin("run-1", interval_ms=interval(1))
    assert (found.run_id, found.plan.interval_ms, bounds(found)) == ("run-0", interval(0), [(0, 1)])
    app.tasks(found)
    app.finish("run-0")
    assert bounds(app.run("run-1", (0, 2), interval_ms=interval(1))) == [(1, 2)]
    assert out(kafka) == ["a", "b"]


def test_markers_and_aborted_records_cut_nothing_whatever_their_time(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    """A replayed history: markers are dated by the clock, long after everything."""
    in_transaction(kafka, ("a", 0.1), ("b", 0.2))
    in_transaction(kafka, ("void", 5.0), abort=True)
    in_transaction(kafka, ("c", 0.3), ("d", 1.1), ("e", 0.4))
    app = application("interval_end")
    assert app.run("run-0", interval_ms=interval(0)).inputs[0].stop_offset == 6
    assert out(kafka) == ["a", "b", "c"]
    app.run("run-1", interval_ms=interval(1))
    assert out(kafka) == ["a", "b", "c", "d", "e"]


@pytest.mark.promise("held-partitions-are-named")
def test_warning_stands_in_the_ledger_when_one_early_record_holds_the_slice_at_its_start(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval_end")
    publish(kafka, ("early", 1.5), ("a", 0.1), ("b", 0.2))
    app.run("run-0", interval_ms=interval(0))
    (warning,) = read_ledger(kafka, "app").all_runs()["run-0"].warnings
    assert warning.startswith("in-0: the record at offset 0 is dated 2020-09-13T13:56:40.000+00:00, past the")
    assert "3 offsets, waits for the run" in warning
    app.run("run-1", interval_ms=interval(1))
    assert out(kafka) == ["early", "a", "b"]


def test_warning_is_given_when_a_record_of_the_future_holds_the_slice(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("tonight", 1_010))
    summary = application("interval_end").run("run-0", interval_ms=interval(0))
    assert (bounds(summary), summary.empty, len(summary.warnings)) == ([(0, 0)], True, 1)


def test_nothing_is_warned_of_when_a_partition_was_merely_quiet_in_the_interval(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("next", 1.5), ("one", 1.6))
    summary = application("interval_end").run("run-0", interval_ms=interval(0))
    assert (bounds(summary), summary.warnings) == ([(0, 0)], ())


@pytest.mark.promise("empty-intervals-fail")
@pytest.mark.parametrize("autostop", ["interval_end", "interval"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "and has none"),
        ((T0, T0), "[2020-09-13T12:26:40.000+00:00, 2020-09-13T12:26:40.000+00:00) is empty"),
        ((T0 + 1, T0), "is empty"),
    ],
)
@pytest.mark.remedy("intervals.check_interval")
def test_missing_or_empty_interval_is_an_error_that_names_it(
    application: Callable[..., Application], autostop: str, given: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        application(autostop).begin("run-0", interval_ms=given)
    assert said in caught.value.cause
    assert "'run-0'" in caught.value.cause
    assert "CronDataIntervalTimetable" in caught.value.fix
    assert application(autostop).begin("run-0", interval_ms=(T0, T0 + HOUR)).plan.empty


# == interval: a backfill


@pytest.mark.promise("backfills-keep-to-their-interval")
def test_backfill_keeps_exactly_the_records_dated_in_its_interval_and_counts_the_others(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("before", -1), ("a", 1.0), ("no", 2.0), ("b", 1.999), ("old", 0.5), ("c", 1.5), ("x", 7))
    summary = application("interval").run("run", interval_ms=interval(1))
    assert out(kafka) == ["a", "b", "c"]
    assert bounds(summary) == [(1, 7)], "from the first one dated at or after its start to the log's end"
    assert (summary.records_in, summary.records_skipped) == (3, 3)


def test_warning_says_that_no_later_run_reads_what_an_open_transaction_hides_from_a_backfill(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 1.0))
    writer = kafka.writer(transactional_id="foreign")
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"b", b"b", 0, T0 + HOUR + 1, None)
    writer.flush()
    (warning,) = application("interval").run("run", interval_ms=interval(1)).warnings
    assert "at most 1 record, is left out, and no later run of this backfill reads it" in warning
    assert out(kafka) == ["a"]


@pytest.mark.promise("cuts-are-frozen")
def test_end_of_a_backfill_stays_when_a_retry_finds_late_records(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval")
    publish(kafka, ("a", 1.1), ("x", 2.5))
    begun = app.begin("run", interval_ms=interval(1))
    assert begun.plan.kept_ms == interval(1)
    publish(kafka, ("late", 1.2))
    # Whatever interval the retry says: what was frozen first decides.
    summary = app.run("run", (0, 2), interval_ms=interval(2))
    assert (out(kafka), bounds(summary), summary.records_skipped) == (["a"], [(0, 2)], 1)
    assert summary.interval_ms == interval(1)


@pytest.mark.promise("backfills-leave-the-live-application")
def test_backfill_leaves_the_live_application_where_it_is(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    live = application("interval_end")
    publish(kafka, ("a", 0.1), ("b", 1.1), ("c", 2.1))
    live.run("run-0", interval_ms=interval(0))
    application("interval", application_id="app-backfill-1").run("past", interval_ms=interval(0))
    assert bounds(live.run("run-1", interval_ms=interval(1))) == [(1, 2)]
    assert out(kafka) == ["a", "a", "b"]


def test_backfill_reads_nothing_when_nothing_is_dated_at_or_past_its_start(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 0.2))
    summary = application("interval").run("run", interval_ms=interval(5))
    assert (bounds(summary), summary.empty) == ([(2, 2)], True)


@pytest.mark.promise("gone-intervals-are-errors")
@pytest.mark.remedy("data_loss.interval_deleted")
def test_error_says_how_much_is_gone_when_the_log_starts_past_the_interval_and_its_command_accepts_it(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval")
    publish(kafka, ("a", 0.1), ("b", 1.1), ("c", 1.5), ("d", 2.5))
    kafka.expire({IN: 2})
    with pytest.raises(DataLossError) as caught:
        app.begin("run", interval_ms=interval(1))
    assert "in-0: records from offset 0 to 2 are gone, at most 2; the log starts at 2" in caught.value.cause
    assert "[2020-09-13T13:26:40.000+00:00, 2020-09-13T14:26:40.000+00:00)" in caught.value.cause
    accept_in_memory(caught.value, kafka)
    summary = app.run("run", interval_ms=interval(1))
    assert (out(kafka), summary.records_skipped) == (["c"], 1)


@pytest.mark.promise("gone-intervals-are-errors")
def test_error_is_raised_when_everything_is_gone_from_the_log(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 1.1))
    kafka.expire({IN: 1})
    with pytest.raises(DataLossError, match="at most 1"):
        application("interval").begin("run", interval_ms=interval(1))


def test_backfill_goes_on_when_what_is_gone_is_older_than_its_interval(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 0.2), ("c", 1.5))
    kafka.expire({IN: 1})
    application("interval").run("run", interval_ms=interval(1))
    assert out(kafka) == ["c"]


@pytest.mark.promise("state-goes-forward-only")
def test_state_is_built_interval_by_interval_and_never_backwards(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval", counted())
    publish(kafka, ("a", 0.1), ("a", 1.1), ("b", 0.2), ("a", 2.1))
    first = app.run("run-0", interval_ms=interval(0))
    second = app.run("run-1", interval_ms=interval(1))
    assert (bounds(first), bounds(second)) == ([(0, 4)], [(1, 4)]), "committed offsets go back"
    counts = {record.key(): record.value() for record in kafka.records("out")}
    assert counts == {b"a": (2).to_bytes(8), b"b": (1).to_bytes(8)}
    with pytest.raises(
        ConfigError, match=r"its run 'run-1' has processed .* cannot come after that"
    ) as caught:
        app.begin("run-back", interval_ms=interval(0))
    assert "another name" in caught.value.fix
    with pytest.raises(ConfigError, match="cannot come after that"):
        app.begin("run-same", interval_ms=interval(1))
    assert app.run("run-2", interval_ms=interval(2)).records_skipped == 0


def test_intervals_of_a_stateless_topology_may_come_in_any_order(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    publish(kafka, ("a", 0.1), ("b", 1.1))
    app = application("interval")
    for number in (1, 0):
        app.run(f"run-{number}", interval_ms=interval(number))
    assert out(kafka) == ["b", "a"]


def test_topic_that_was_created_again_between_intervals_is_an_error(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    app = application("interval", counted())
    publish(kafka, ("a", 0.1))
    app.run("run-0", interval_ms=interval(0))
    kafka.admin().delete_topics(["in"])
    kafka.create_topic("in")
    publish(kafka, ("a", 1.1))
    with pytest.raises(DataLossError, match="was created again"):
        app.begin("run-1", interval_ms=interval(1))


class Later(Processor):
    """Forwards what it gets as of the next hour."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.forward(record.key, record.value, timestamp_ms=record.timestamp_ms + HOUR)


def test_topics_in_between_are_read_whole_whatever_the_time_of_their_records(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    later = builder.stream("in").process(Later)
    later.group_by(lambda _, value: value).count(store="n").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    publish(kafka, ("a", 1.1), ("b", 2.1))
    summary = application("interval", builder.build()).run("run", interval_ms=interval(1))
    assert [record.key() for record in kafka.records("out")] == [b"a"]
    assert summary.records_skipped == 1


def test_records_that_are_left_out_move_neither_time_nor_its_order(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    """A windowed count beside records of other hours gives what it gives without them."""

    def hourly() -> Topology:
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        windowed = (
            builder.stream("in")
            .group_by_key()
            .windowed_by(TumblingWindow(size_ms=HOUR // 4, grace_ms=HOUR // 4))
        )
        windowed.count(store="n").to_stream().map(lambda key, n: (str(key), str(n))).send_to("out")
        return builder.build()

    kept = [("a", 1.1), ("a", 1.15), ("a", 1.6), ("a", 1.2)]
    publish(kafka, ("a", 90), kept[0], ("a", 80), kept[1], ("a", 0.1), *kept[2:])
    application("interval", hourly()).run("run", interval_ms=interval(1))
    mixed = out(kafka)
    alone = InMemoryKafka(clock=ManualClock(now_ms=T0 + 1_000 * HOUR))
    alone.create_topic("in")
    alone.create_topic("out")
    publish(alone, *kept)
    replace(application("eol", hourly()), on=alone, clock=alone.clock).run("run")
    assert mixed == out(alone) != []


def test_long_stretches_of_other_records_count_as_progress(
    application: Callable[..., Application], kafka: InMemoryKafka
) -> None:
    """Reading only records that are left out takes longer than a run may stand still."""
    publish(kafka, ("a", 1.1), *((f"x{n}", 5) for n in range(40)), ("b", 1.2))

    app = application("interval")
    app = replace(app, settings={**app.settings, "run.stall.timeout.ms": 1_000})

    class Trickle:
        def call(self, name: str, client: Any, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
            if name == "reader.poll":
                kafka.clock.sleep(0.9)
                return client.poll(max_records=1, timeout_seconds=0.0)
            return effect()

    begun = app.begin("run", interval_ms=interval(1))
    reports = replace(app, on=FaultyCluster(kafka, Trickle())).tasks(begun)
    assert [report.records_skipped for report in reports] == [40]
    assert out(kafka) == ["a", "b"]
