"""Tasks die at every port call of a run at whose end stream time advances, one of them with nothing to read.

The advance of the first subtopology takes several transactions: its timers take their time. What they give
goes through a topic to windows in a second subtopology, which close at the end of the run as well.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.processor.processor import Processor, ProcessorRecord
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.simulation.crash_points import Calls, Died
from tests.simulation.dying_tasks import other_results, run_tasks
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("windows-close-in-their-run")

TEXT = serdes.string()
HOUR = 3_600_000
T0 = 444_444 * HOUR
APP = "app"


def topology(clock: ManualClock) -> Topology:
    class Ticking(Processor):
        """Counts its ticks in a store and gives each one; a tick takes a second."""

        def init(self, context: Any) -> None:
            self.context, self.ticks = context, context.state_store("ticks")
            context.schedule(HOUR // 4)

        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, record.value)

        def punctuate(self, stream_time_ms: int) -> None:
            clock.sleep(1.0)
            count = (self.ticks.get("all") or 0) + 1
            self.ticks.put("all", count)
            self.context.forward(f"tick-{self.context.task_id}", str(count))

        def close(self) -> None:
            self.context.forward(f"closed-{self.context.task_id}", "closed")

    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    store = StoreSpec(name="ticks", key_serde=TEXT, value_serde=serdes.int64())
    given = builder.stream("a").process(Ticking, store).through("b")
    counts = given.group_by_key().windowed_by(TumblingWindow(size_ms=HOUR // 2, grace_ms=0))
    joined = counts.aggregate(lambda: "", lambda key, value, so_far: f"{so_far}|{value}", store="windows")
    printed = (
        joined.suppress()
        .to_stream()
        .map(lambda window, value: (window.key, f"{window.key}@{(window.start_ms - T0) / HOUR:g}:{value}"))
    )
    printed.send_to("out")
    return builder.build()


def hours(first: float, last: float) -> tuple[int, int]:
    return T0 + round(first * HOUR), T0 + round(last * HOUR)


def results(calls: Calls, *, spark_tries_again: bool = False) -> list[str]:
    """Play a run in which partition 0 has a record and partition 1 has none; return all that came out.

    :param spark_tries_again: whether a task that died begins again before its driver hears of it.
    """
    clock = ManualClock(now_ms=T0 + 100 * HOUR)
    kafka = InMemoryKafka(clock=clock)
    for name, partitions in (("a", 2), ("b", 1), ("out", 1)):
        kafka.create_topic(name, partitions=partitions)
    app = Application(
        application_id=APP,
        topology=topology(clock),
        on=kafka,
        clock=clock,
        settings={
            "transaction.timeout.ms": 10_000,
            "commit.interval.ms": 1,
            "autostop.at": "interval_end",
        },
    )
    for partition, at in ((0, 0.1), (1, 0.3), (0, 1.1), (0, 2.5)):
        value = f"{at:g}".encode()
        kafka.append("a", value, f"k{partition}".encode(), partition=partition, timestamp_ms=hours(at, at)[0])
    app.run("run-0", interval_ms=hours(0, 1))
    driver = app.coordinator()
    slice_ = app.begin("run-1", interval_ms=hours(1, 2), coordinator=driver)
    run_tasks(app, kafka, calls, driver, slice_, spark_tries_again=spark_tries_again)
    driver.lease.release()
    driver.close()
    while not finished(dataclasses.replace(app, on=calls.process(kafka, "finish"))):
        """The next process tries again."""
    return sorted((value or b"").decode() for value in kafka.values("out"))


def finished(app: Application) -> bool:
    """Finish the run, and say whether the process lived."""
    try:
        return app.finish("run-1").advanced_to_ms == hours(2, 2)[0]
    except Died:
        return False


#: By key and half hour. What task 0_1 gives in its second close is dated as its last record: late by then.
EXPECTED = [
    "closed-0_0@0:|closed",
    "closed-0_0@1:|closed",
    "closed-0_1@0:|closed",
    "k0@0:|0.1",
    "k0@1:|1.1",
    "k1@0:|0.3",
    "tick-0_0@0.5:|2|3",
    "tick-0_0@0:|1",
    "tick-0_0@1.5:|6|7",
    "tick-0_0@1:|4|5",
    "tick-0_1@0.5:|1|2",
    "tick-0_1@1.5:|5|6",
    "tick-0_1@1:|3|4",
]


def wrong(*, takes_effect: bool, spark_tries_again: bool, every: int) -> dict[str, list[str]]:
    """Play once per port call of the tasks, or one in so many; return the calls after whose death something
    else came out.
    """
    undisturbed = Calls()
    expected = results(undisturbed)
    assert expected == EXPECTED
    commits = [call for call in undisturbed.made if call == "writer.commit of task 0_1"]
    assert len(commits) == 4, "one transaction for each moment"
    played = partial(results, spark_tries_again=spark_tries_again)
    return other_results(played, undisturbed, expected, takes_effect=takes_effect, every=every)


@pytest.mark.parametrize(
    ("spark_tries_again", "every"),
    [
        (False, 3),
        pytest.param(False, 1, marks=pytest.mark.prove),
        pytest.param(True, 1, marks=pytest.mark.prove),
    ],
    ids=["driver asks", "driver asks, every call", "Spark tries again"],
)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_what_the_end_of_a_run_publishes_comes_once_when_a_task_dies_at_any_port_call(
    takes_effect: bool, spark_tries_again: bool, every: int
) -> None:
    assert wrong(takes_effect=takes_effect, spark_tries_again=spark_tries_again, every=every) == {}
