from __future__ import annotations

import pytest

from airflow_kstreams.batch.metrics import (
    SAMPLE_SECONDS,
    TOTALS,
    UNITS,
    TaskMeter,
    figures,
    latency_text,
    slowest_first,
    speed_text,
    task_line,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import (
    TaskMetrics,
    TaskReport,
    by_subtopology,
    metrics_in_all,
)
from airflow_kstreams.streams.figures.call_figures import Latencies, LatencyRecorder


def latencies(*samples: tuple[float, int]) -> Latencies:
    recorder = LatencyRecorder()
    for seconds, count in samples:
        recorder.record(seconds, count)
    return recorder.latencies()


def report(task_id: str = "0_0", *, seconds: float = 0.2, lag: int | None = 0) -> TaskReport:
    """100 records in ``seconds`` of processing, of which one took half; two commits; 50 records restored."""
    return TaskReport(
        task_id=task_id,
        records_in=100,
        records_out=90,
        records_dropped=10,
        restored=50,
        commits=2,
        metrics=TaskMetrics(
            latencies((seconds / 2, 99), (seconds / 2, 1)),
            latencies((0.010, 1), (0.030, 1)),
            4_000_000_000,
            500_000_000,
            lag,
        ),
    )


def test_figures_of_a_task_are_those_of_kafka_streams() -> None:
    found = figures([report()])
    assert set(found) == set(UNITS) >= TOTALS
    assert found["process-rate"] == 25
    assert found["process-latency-avg"] == pytest.approx(2)
    assert found["process-latency-max"] == pytest.approx(100)
    assert found["process-latency-p50"] == pytest.approx(100 / 99, rel=0.05)
    assert found["process-latency-p99"] == pytest.approx(100 / 99, rel=0.05)
    assert (found["dropped-records-total"], found["dropped-records-rate"]) == (10, 2.5)
    assert found["commit-total"] == 2
    assert found["commit-latency-avg"] == pytest.approx(20)
    assert (found["restore-total"], found["restore-rate"]) == (50, 100)
    assert found["records-lag"] == 0


def test_tasks_are_taken_together_when_they_are_several() -> None:
    found = figures([report("0_0", lag=3), report("0_1", seconds=2.0, lag=4)])
    assert (found["process-total"], found["process-rate"], found["records-lag"]) == (200, 25, 7)
    assert found["process-latency-max"] == pytest.approx(1_000)
    assert found["process-latency-avg"] == pytest.approx(11)


@pytest.mark.promise("metrics-unknown-not-zero")
def test_what_was_counted_is_known_when_there_was_no_room_for_what_was_measured() -> None:
    short = TaskReport(task_id="0_1", records_in=7, commits=1)
    found = figures([report(), short])
    assert (found["process-total"], found["commit-total"]) == (107, 3)
    assert found["process-rate"] is None
    assert found["process-latency-p99"] is None
    assert speed_text([report(), short]) == "speed unknown"


def test_nothing_is_made_up_when_nothing_was_processed() -> None:
    idle = figures([TaskReport(task_id="0_0", metrics=TaskMetrics(lag=0))])
    assert {name for name, value in idle.items() if value is None} == {
        name for name in UNITS if "latency" in name or "rate" in name
    }


def test_one_line_says_it_all() -> None:
    assert task_line(report("0_3", seconds=0.0001, lag=5), {}) == (
        "task 0_3 done: 100 records in, 90 out, 10 dropped, 50 restored, 2 commits, process-rate 25.0/s, "
        "process-latency p50 0.5 µs, p99 0.5 µs, commit-latency avg 20.0 ms, max 30.0 ms, "
        "restore-rate 100/s, records-lag 5"
    )


def test_line_says_which_commits_it_is_of_when_the_last_cannot_be_known() -> None:
    short = TaskReport(task_id="0_0", commits=3, metrics=TaskMetrics(commit=latencies((0.01, 1))))
    assert "commit-latency avg 10.0 ms, max 10.0 ms (1 of 3 commits measured)" in speed_text([short])


def test_reports_are_put_in_order() -> None:
    reports = [report("10_0"), report("2_1", seconds=3.0), TaskReport(task_id="2_0")]
    assert list(by_subtopology(reports)) == [2, 10]
    assert [each.task_id for each in slowest_first(reports)] == ["2_1", "10_0", "2_0"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(None, "-"), (1234.5, "1.23 s"), (12.34, "12.3 ms"), (0.0017, "1.7 µs"), (0, "0.0 µs")],
)
def test_latency_has_the_unit_that_suits_it(milliseconds: float | None, text: str) -> None:
    assert latency_text(milliseconds) == text


def metrics(meter: TaskMeter, now_seconds: float = 10.0) -> TaskMetrics:
    found = meter.metrics(now_seconds, lag=0)
    assert found is not None
    return found


def test_chunks_make_one_sample_when_each_is_short() -> None:
    meter = TaskMeter(TaskMetrics())
    for _ in range(5):
        meter.processed(10, SAMPLE_SECONDS / 5)
    process = metrics(meter).process
    assert (process.count, len(process.buckets)) == (50, 2)
    assert process.max_ns == pytest.approx(1e9 * SAMPLE_SECONDS / 50, abs=1)


def test_slow_record_is_seen_alone_when_fast_ones_come_before_it() -> None:
    meter = TaskMeter(TaskMetrics())
    meter.processed(1_000, SAMPLE_SECONDS / 100)
    meter.processed(1, 0.25)
    process = metrics(meter).process
    assert (process.count, process.max_ns) == (1_001, 250_000_000)
    assert process.quantile_ns(0.5) == pytest.approx(SAMPLE_SECONDS * 1e9 / 100_000, rel=0.05, abs=1)
    assert process.quantile_ns(1.0) == pytest.approx(250_000_000, rel=0.05)


def test_every_record_counts_when_a_sample_has_only_begun() -> None:
    meter = TaskMeter(TaskMetrics())
    meter.processed(3, 0.0)
    assert metrics(meter).process.count == 3
    assert metrics(meter).process.count == 3, "asked again"


@pytest.mark.promise("latencies-add-up")
def test_attempt_goes_on_from_what_was_committed_when_another_came_before_it() -> None:
    first = TaskMeter(TaskMetrics(), restore_seconds=5.0)
    first.opened(2.0)
    first.processed(4, 0.4)
    first.committed(0.01)
    before = metrics(first, 5.0)
    assert (before.active_ns, before.restore_ns) == (3_000_000_000, 5_000_000_000)

    second = TaskMeter(before, restore_seconds=1.0)
    second.opened(100.0)
    second.processed(6, 0.6)
    second.committed(0.03)
    found = metrics(second, 102.0)
    assert (found.process.count, found.process.total_ns) == (10, 1_000_000_000)
    assert (found.commit.count, found.commit.max_ns) == (2, 30_000_000)
    assert (found.active_ns, found.restore_ns) == (5_000_000_000, 1_000_000_000)


def test_metrics_are_unknown_when_those_of_an_earlier_attempt_are() -> None:
    meter = TaskMeter(None)
    meter.processed(1, 1.0)
    assert meter.metrics(1.0, lag=0) is None
    assert metrics_in_all([TaskMetrics(), None]) is None


def test_tasks_add_up_when_one_has_no_stops() -> None:
    one, other = TaskMetrics(commit=Latencies(5, 5, 3, (18, 1)), active_ns=1, lag=2), TaskMetrics(active_ns=2)
    both = metrics_in_all([one, other])
    assert both is not None
    assert (both.active_ns, both.lag, both.commit.count) == (3, None, 1)
