"""State of every kind follows its keys to new processors, as if the application had never grown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.unit.batch.expand.test_processor_expansion import catch_up
from tests.unit.batch.growing.test_partition_growth import Scene
from tests.unit.batch.run.test_retries_over_runs import Service

pytestmark = pytest.mark.promise("keys-follow-to-new-processors")

FIRST, GROWN = 2, 4
KEYS = [f"k{number}" for number in range(24)]


def built(build: Callable[[KStreamBuilder], Any]) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        build(builder).send_to("out")
        return builder.build()

    make.__name__ = build.__name__
    return make


@built
def counts(builder: KStreamBuilder) -> Any:
    return builder.stream("in").group_by_key().count(store="counts").to_stream().map_values(lambda n: [n])


@built
def counts_on_disk(builder: KStreamBuilder) -> Any:
    spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    return builder.stream("in").group_by_key().count(store=spec).to_stream().map_values(lambda n: [n])


@built
def windows_when_they_close(builder: KStreamBuilder) -> Any:
    windows = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0))
    closed = windows.count(store="windows").suppress().to_stream()
    return closed.map(lambda window, count: (window.key, [window.start_ms, count]))


@built
def sessions(builder: KStreamBuilder) -> Any:
    grouped = builder.stream("in").group_by_key().windowed_by(SessionWindow(gap_ms=700, grace_ms=0))
    closed = grouped.count(store="sessions").suppress().to_stream()
    return closed.map(lambda window, count: (window.key, [window.start_ms, window.end_ms, count]))


@built
def pairs(builder: KStreamBuilder) -> Any:
    window = SlidingWindow(size_ms=600, grace_ms=0)
    left = builder.stream("in").with_window(window)
    right = builder.stream("others").with_window(window)
    return left.outer_join(right, lambda one, other: [one, other], name="pairs")


@built
def table(builder: KStreamBuilder) -> Any:
    others = builder.table("others", store="table")
    return builder.stream("in").left_join(others, lambda value, other: [value, other])


class Played:
    """An application that is fed, and grows or does not."""

    def __init__(self, topology: Topology, *, grows: bool, settings: dict[str, object]) -> None:
        self.kafka, self.grows = InMemoryKafka(), grows
        for topic in ("in", "others"):
            self.kafka.create_topic(topic, partitions=FIRST)
        self.kafka.create_topic("out")
        self.app = Application(
            application_id="app", topology=topology, on=self.kafka, settings={"settle.ms": 0, **settings}
        )
        self.number, self.count = 0, FIRST

    def run(self, *rounds: int, deleted: tuple[str, ...] = (), without: bool = False) -> None:
        """Feed both topics with a value of each key for each round, and run.

        :param deleted: keys that get no other value, but its deletion.
        :param without: whether nothing comes from the other topic.
        """
        for value in rounds:
            for key in KEYS:
                at = partition_of_key(key.encode(), FIRST, self.count)
                other = None if key in deleted else b"%d" % (100 + value)
                # Times rise over all partitions, so that nothing is late by either way of grouping.
                time_ms = 1_000 * value + 10 * KEYS.index(key)
                if not without:
                    self.kafka.append("others", other, key.encode(), partition=at, timestamp_ms=time_ms)
                self.kafka.append("in", b"%d" % value, key.encode(), partition=at, timestamp_ms=time_ms + 5)
        self.number += 1
        self.app.run(f"run-{self.number}")

    def results(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for record in self.kafka.records("out"):
            decoded = serdes.json().deserialize(record.value() or b"null")
            found.setdefault((record.key() or b"").decode(), []).append(decoded)
        return {key: sorted(values, key=repr) for key, values in found.items()}


def play(topology: Topology, *, grows: bool, settings: dict[str, object]) -> Played:
    played = Played(topology, grows=grows, settings=settings)
    played.run(0, 1)
    if grows:
        played.count = GROWN
        for topic in ("in", "others"):
            played.kafka.add_partitions(topic, GROWN)
    played.run(2, 3, deleted=("k1", "k2", "k3"))
    played.run()
    if grows:
        catch_up(played.kafka, played.app, 3)
    played.run(4, deleted=("k4", "k5", "k6", "k7"))
    if grows:
        catch_up(played.kafka, played.app, GROWN)
        # What is deleted after the copy, before a run takes over, is deleted in the copy, too.
        with mock.patch.object(takeover, "under_way", return_value=None):
            played.run(5, deleted=("k8", "k9", "k10", "k11", "k12", "k13"))
    else:
        played.run(5, deleted=("k8", "k9", "k10", "k11", "k12", "k13"))
    played.run()
    played.run(6, without=True)
    played.run(7, 9)
    played.run(20)
    return played


@pytest.mark.parametrize(
    "topology", [counts, counts_on_disk, windows_when_they_close, sessions, pairs, table]
)
def test_results_are_those_of_an_application_that_never_grew(
    topology: Callable[[], Topology], tmp_path: Path
) -> None:
    if topology is counts_on_disk:
        pytest.importorskip("rocksdict")
    never = play(topology(), grows=False, settings={})
    grown = play(topology(), grows=True, settings={"state.dir": str(tmp_path)})
    assert grown.results() == never.results()
    assert grown.results().keys() == {*KEYS}
    coordinator = grown.app.coordinator()
    try:
        assignment = coordinator.session.read_ledger().assignment
    finally:
        coordinator.close()
    assert [len(entry.by_group) for entry in assignment.subtopologies.values()] == [GROWN]


def test_parked_records_follow_their_keys_and_keep_their_order() -> None:
    service = Service()
    topology = service.topology(backoff_ms=1, attempts=100)
    scene = Scene(FIRST, topology, settings={"retry.run.budget.ms": 0})
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(GROWN)
    scene.send(KEYS, 1)
    scene.run()
    scene.run()
    service.down = {"2"}
    for value in (2, 3):
        scene.send(KEYS, value)
        assert scene.run().state.startswith("completed_with_parked")
    catch_up(scene.kafka, scene.app, GROWN)
    assert scene.run().state == f"completed_with_parked({2 * len(KEYS)})"
    assert len(scene.recorded.by_group) == GROWN
    service.down = set()
    scene.send(KEYS, 4)
    for _ in range(4):
        left = scene.run()
    assert left.state == "completed"
    found: dict[str, list[str]] = {}
    for record in scene.kafka.records("out"):
        found.setdefault((record.key() or b"").decode(), []).append((record.value() or b"").decode())
    assert found == {key: ["0!", "1!", "2!", "3!", "4!"] for key in KEYS}
