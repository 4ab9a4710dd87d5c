"""A task that has nothing to read, and whose processor forwards in close, dies at every port call.

Its done notification is all that tells it from one that has not run: its offsets stand at their stops from
the start. So what it forwards comes only if the notification comes with it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.model import Slice
from airflow_kstreams.streams import Topology, TopologyBuilder
from airflow_kstreams.streams.processor.processor import Processor, ProcessorRecord
from airflow_kstreams.testing import InMemoryKafka
from tests.in_process import Application
from tests.simulation.applications import APPLICATION_ID
from tests.simulation.crash_points import Calls, Died
from tests.simulation.protections import PROTECTIONS

_NOTIFICATIONS = "notifications in the transaction"


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
    builder.add_source("in", "a").add_processor("closing", Closing, "in").add_sink("middle", "b", "closing")
    return builder.add_source("between", "b").add_sink("results", "out", "between").build()


def results(calls: Calls) -> list[bytes | None]:
    """Play a run in which partition 0 has two records and partition 1 has none; return what came out."""
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
    slice_ = app.begin("run-1")
    while groups := unfinished(app, slice_):
        for group in groups:
            process = dataclasses.replace(app, on=calls.process(kafka, f"task 0_{group}"))
            try:
                process.task(slice_, 0, group)
            except Died:
                continue
    app.task(slice_, 1, 0)
    app.finish("run-1")
    return sorted(kafka.values("out"), key=str)


def unfinished(app: Application, slice_: Slice) -> list[int]:
    """The groups that the driver would launch."""
    coordinator = Coordinator(app.cluster, app.checked, clock=app.clock)
    try:
        return list(coordinator.unfinished(slice_, 0))
    finally:
        coordinator.close()


def wrong(*, takes_effect: bool) -> dict[str, list[bytes | None]]:
    """Play once per port call of the tasks; return the calls after whose death something else came out."""
    undisturbed = Calls()
    expected = results(undisturbed)
    assert expected == [b"0_0", b"0_1", b"1", b"2"]
    found: dict[str, list[bytes | None]] = {}
    for number, call in enumerate(undisturbed.made):
        came = results(Calls(last=number, takes_effect=takes_effect))
        if came != expected:
            found[f"no. {number}, {call}"] = came
    return found


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_what_an_idle_task_forwards_in_close_comes_once_when_it_dies_at_any_port_call(
    takes_effect: bool,
) -> None:
    assert wrong(takes_effect=takes_effect) == {}


def test_loss_is_found_when_notifications_are_not_in_the_transaction() -> None:
    with PROTECTIONS[_NOTIFICATIONS].off():
        lost = wrong(takes_effect=False)
    assert lost
    assert all(call.endswith("of task 0_1") for call in lost), "offsets tell of the other"
    assert all(came == [b"0_0", b"1", b"2"] for came in lost.values())
