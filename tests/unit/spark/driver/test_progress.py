"""The line that says how far a run is."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.stops import Span, TaskShare
from airflow_kstreams.spark.driver import progress
from airflow_kstreams.spark.driver.progress import RunProgress
from airflow_kstreams.streams.errors import RunError, TaskFencedError
from airflow_kstreams.streams.ports import CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.testing import ManualClock
from tests.unit.spark.driver.test_jobs import a_slice

_TASKS = [TaskShare(0, 0, (Span(0, 0, 1_000, 61_000),)), TaskShare(0, 1, (Span(0, 1, 0, 40_000),))]


class Committed:
    """A reader whose group has committed what a test says."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets
        self.closed = 0

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        assert {*partitions} == {TopicPartition("in", 0), TopicPartition("in", 1)}
        return {TopicPartition("in", n): CommittedOffset(at) for n, at in enumerate(self.offsets) if at >= 0}

    def close(self) -> None:
        self.closed += 1


def _progress(clock: ManualClock, reader: Committed) -> RunProgress:
    return RunProgress(a_slice(), lambda: cast("ReaderPort", reader), clock=clock)


def test_line_has_records_rate_and_time_left_of_the_tasks_that_run() -> None:
    clock, reader, lines = ManualClock(), Committed(-1, -1), list[str]()
    told = _progress(clock, reader)

    def launch(tasks: Sequence[TaskShare]) -> list[TaskReport]:
        for offsets in ((1_000, -1), (21_000, 0), (31_000, 10_000), (61_000, 40_000)):
            reader.offsets = offsets
            lines.append(told.line(cast("ReaderPort", reader)))
            clock.sleep(10)
        return []

    assert told.line(cast("ReaderPort", reader)) == ""
    told.listening(launch)(_TASKS)
    assert told.line(cast("ReaderPort", reader)) == ""
    assert lines == [
        "subtopology 0: 0 of 100,000 records",
        "subtopology 0: 20,000 of 100,000 records, 2,000/s, 40 s left",
        "subtopology 0: 40,000 of 100,000 records, 2,000/s, 30 s left",
        "subtopology 0: 100,000 of 100,000 records, 3,333/s",
    ]


def test_lines_come_while_tasks_run_whatever_single_looks_give(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0.001)
    caplog.set_level("INFO")
    reader, looked = Committed(1_000, 20_000), threading.Event()
    answers: list[Any] = [TaskFencedError("away", task_id="0_0"), RunError("away", run_id="r")]

    def reading() -> ReaderPort:
        if answers:
            raise answers.pop()
        if caplog.messages:
            looked.set()
        return cast("ReaderPort", reader)

    told = RunProgress(a_slice(), reading, clock=ManualClock())

    def launch(tasks: Sequence[TaskShare]) -> list[TaskReport]:
        assert looked.wait(30)
        raise RunError("failed", run_id="r")

    with pytest.raises(RunError, match="failed"), told.telling():
        told.listening(launch)(_TASKS)
    assert {*caplog.messages} == {"subtopology 0: 20,000 of 100,000 records"}
    assert reader.closed
    assert not [each for each in threading.enumerate() if each.name == "progress"]
