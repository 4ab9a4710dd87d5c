from __future__ import annotations

import pytest

from airflow_kstreams.batch.metrics.figures import SAMPLE_SECONDS, TaskMeter
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskMetrics, metrics_in_all
from airflow_kstreams.streams.figures.call_figures import Latencies


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
