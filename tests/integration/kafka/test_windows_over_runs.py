"""Windows on the real broker: what waits for its close survives crashes, and runs that end before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.windows import RunEnd
from tests.conftest import Row
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("windows-go-on-from-run-to-run")


def _summing(source: str, target: str, at_run_end: RunEnd, on_value: Callable[[int], None]) -> Topology:
    """Sums in windows of 10 ms as [start, sum]."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    window = TumblingWindow(size_ms=10, grace_ms=0, at_run_end=at_run_end)
    numbers = builder.stream(source).peek(lambda key, value: on_value(value)).group_by_key()
    sums = numbers.windowed_by(window).reduce(lambda one, other: one + other, store="sums")
    rows = sums.suppress().to_stream().map(lambda windowed, total: (windowed.key, [windowed.start_ms, total]))
    rows.send_to(target, key_serde=serdes.string(), value_serde=serdes.json())
    return builder.build()


@pytest.mark.parametrize(
    ("at_run_end", "expected"),
    [
        ("hold", [[0, 3], [10, 7], [20, 5]]),
        ("flush", [[0, 1], [0, 3], [10, 3], [10, 7], [20, 5], [30, 6]]),
    ],
)
def test_each_window_gives_its_results_once_when_runs_end_and_tasks_die_within_it(
    at_run_end: RunEnd,
    expected: list[Any],
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
) -> None:
    source, target = create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)
    dying = [4]

    def dies(value: int) -> None:
        if value in dying:
            dying.remove(value)
            raise RecordError("power cut", topic="", partition=-1, offset=-1, node="")

    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=_summing(source, target, at_run_end, dies),
        settings={"commit.every.records": 1, "buffered.records.per.partition": 1},
    )

    def publish(*rows: tuple[int, int]) -> None:
        produce(source, [Row(key=b"k", value=b"%d" % v, timestamp_ms=time_ms) for v, time_ms in rows])

    publish((1, 1))
    application.run("run-1")
    application.run("run-2")  # nothing new
    publish((2, 2), (3, 13))  # closes the first window
    application.run("run-3")
    publish((4, 14), (5, 25), (6, 36))  # dies at 4, then closes two windows
    slice_ = application.begin("run-4")
    with pytest.raises(RecordError, match="power cut"):
        application.tasks(slice_)
    application.run("run-4", (0, 2))
    application.run("run-5")
    assert [row.json() for row in consume_all(target)] == expected
