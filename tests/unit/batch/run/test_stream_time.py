"""Stream time goes on from run to run, whichever partition brought it where it is."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams import FixedGroups, KStreamBuilder, TumblingWindow, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("windows-go-on-from-run-to-run")


def test_record_is_late_in_the_next_run_when_the_partition_that_was_furthest_is_quiet() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("out")
    builder = KStreamBuilder(
        default_key_serde=serdes.string(),
        default_value_serde=serdes.string(),
        partition_grouper=FixedGroups(1),
    )
    windows = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
    windows.count(store="counts").to_stream().send_to("out", value_serde=serdes.int64())
    app = Application(application_id="app", topology=builder.build(), on=kafka, clock=kafka.clock)

    kafka.append("in", b"v", b"k", partition=0, timestamp_ms=10)
    kafka.append("in", b"v", b"k", partition=1, timestamp_ms=100)
    first = app.run("run-1")
    kafka.append("in", b"v", b"k", partition=0, timestamp_ms=20)
    second = app.run("run-2")

    assert [sum(task.records_dropped for task in run.tasks) for run in (first, second)] == [0, 1]
    assert len(kafka.records("out")) == 2, "the window of 20 was closed when stream time was 100"
