"""Tasks whose processors forward in close die at every port call, one of them with nothing to read.

What they forward comes only if nothing says too early that they are done. Of a task with nothing to read the
done notification is all that tells it from one that has not run: its offsets stand at their stops from the
start. Of one that writes no intermediate topic it is the committed offsets.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import Topology, TopologyBuilder
from airflow_kstreams.streams.processor.processor import Processor, ProcessorRecord
from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.crash_points import Calls
from tests.simulation.dying_tasks import other_results, run_tasks
from tests.simulation.protections import PROTECTIONS
from tests.simulation.stages import APPLICATION_ID
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("exactly-once")


class Closing(Processor):
    """Passes records on, and says in the end which task it was."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)

    def close(self) -> None:
        self.context.forward(b"closed", str(self.context.task_id).encode())


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.add_source("in", "a").add_processor("first", Closing, "in").add_sink("middle", "b", "first")
    builder.add_source("between", "b").add_processor("second", Closing, "between")
    return builder.add_sink("results", "out", "second").build()


def results(calls: Calls, *, spark_tries_again: bool = False) -> list[bytes | None]:
    """Play a run in which partition 0 has two records and partition 1 has none; return what came out.

    :param spark_tries_again: whether a task that died begins again before its driver hears of it.
    """
    kafka = InMemoryKafka()
    for name, partitions in (("a", 2), ("b", 1), ("out", 1)):
        kafka.create_topic(name, partitions=partitions)
    for value in (b"1", b"2"):
        kafka.append("a", value, b"k", partition=0)
    app = Application(
        application_id=APPLICATION_ID,
        topology=topology(),
        on=kafka,
        clock=kafka.clock,
        # What a dead task left open is over before anybody gives up waiting for it.
        settings={"transaction.timeout.ms": 10_000, "commit.interval.ms": 1},
    )
    driver = app.coordinator()
    slice_ = app.begin("run-1", coordinator=driver)
    run_tasks(app, kafka, calls, driver, slice_, spark_tries_again=spark_tries_again)
    driver.finish("run-1")
    driver.close()
    return sorted(kafka.values("out"), key=str)


def wrong(*, takes_effect: bool, spark_tries_again: bool = False) -> dict[str, list[bytes | None]]:
    """Play once per port call of the tasks; return the calls after whose death something else came out."""
    undisturbed = Calls()
    expected = results(undisturbed)
    assert expected == [b"0_0", b"0_1", b"1", b"1_0", b"2"]
    played = partial(results, spark_tries_again=spark_tries_again)
    return other_results(played, undisturbed, expected, takes_effect=takes_effect)


@pytest.mark.parametrize(
    "spark_tries_again",
    [False, pytest.param(True, marks=pytest.mark.prove)],
    ids=["driver asks", "Spark tries again"],
)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_what_tasks_forward_in_close_comes_once_when_they_die_at_any_port_call(
    takes_effect: bool, spark_tries_again: bool
) -> None:
    assert wrong(takes_effect=takes_effect, spark_tries_again=spark_tries_again) == {}


@pytest.mark.parametrize(
    ("protection", "task", "missing"),
    [
        ("notifications in the transaction", "0_1", b"0_1"),
        ("last commit covers the stops", "1_0", b"1_0"),
    ],
)
def test_loss_is_found_when_a_protection_is_off(protection: str, task: str, missing: bytes) -> None:
    with PROTECTIONS[protection].missing():
        lost = wrong(takes_effect=False)
    assert lost
    assert all(call.endswith(f"of task {task}") for call in lost), "others are told from done ones by more"
    assert all(missing not in came and len(came) == 4 for came in lost.values())
