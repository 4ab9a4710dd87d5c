"""A topology that changed between two runs: state it would lose or misread is refused, the way out works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    KTable,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import Storage
from tests.conftest import Row
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept

TEXT = serdes.string()
Counted = Callable[[KStream[Any, Any]], KTable[Any, int]]


@dataclass(kw_only=True)
class Scene:
    """An application that counts ``source`` by key into ``target``, each run in another way."""

    bootstrap: str
    application_id: str
    source: str
    target: str
    produce: Callable[..., None]
    consume_all: Callable[..., list[Row]]
    runs: int = 0

    def send(self, timestamp_ms: int = 1_000) -> None:
        self.produce(self.source, [Row(key="a", value=1, timestamp_ms=timestamp_ms)])

    def counting(self, counted: Counted) -> Topology:
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=serdes.json())
        counts = counted(builder.stream(self.source))
        counts.to_stream().send_to(self.target, value_serde=serdes.int64())
        return builder.build()

    def application(self, counted: Counted) -> Application:
        return Application(
            bootstrap=self.bootstrap, application_id=self.application_id, topology=self.counting(counted)
        )

    def run(self, counted: Counted) -> None:
        self.runs += 1
        self.application(counted).run(f"run-{self.runs}")

    def refused(self, counted: Counted, match: str) -> TopologyError:
        with pytest.raises(TopologyError, match=match) as refused:
            self.application(counted).begin(f"run-{self.runs + 1}")
        return refused.value

    @property
    def counts(self) -> list[int]:
        return [int.from_bytes(row.value, "big") for row in self.consume_all(self.target)]


@pytest.fixture
def scene(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> Scene:
    return Scene(
        bootstrap=kafka,
        application_id=application_id,
        source=create_topic(topic_name("in"), 1),
        target=create_topic(topic_name("out"), 1),
        produce=produce,
        consume_all=consume_all,
    )


def counted(store: str | StoreSpec | None = None) -> Counted:
    return lambda stream: stream.group_by_key().count(store=store)


def windowed(window: TumblingWindow) -> Counted:
    return lambda stream: stream.group_by_key().windowed_by(window).count(store="counts")


def test_store_goes_on_when_a_filter_comes_before_it(scene: Scene) -> None:
    for filtered in (False, True, False):
        scene.send()
        scene.run((lambda stream: counted()(stream.filter(lambda k, v: True))) if filtered else counted())
    assert scene.counts == [1, 2, 3]


def test_store_that_got_a_name_is_refused_and_goes_on_with_the_one_it_has(scene: Scene) -> None:
    scene.send()
    scene.run(counted())
    scene.send()
    refused = scene.refused(counted("totals"), r"would begin empty with 'totals'")
    scene.run(counted(refused.fix.partition('store="')[2].partition('"')[0]))
    assert scene.counts == [1, 2]


@pytest.mark.parametrize("before", [None, "one"], ids=["unnamed", "named"])
def test_state_is_given_up_by_the_printed_command(scene: Scene, before: str | None) -> None:
    scene.send()
    scene.run(counted(before))
    scene.send()
    accept(scene.refused(counted("totals"), r"would begin empty with 'totals'"), scene.bootstrap)
    scene.run(counted("totals"))
    assert scene.counts == [1, 1]


@pytest.mark.parametrize("change", ["size", "kind"])
def test_state_of_another_kind_is_refused_when_its_store_keeps_the_name(scene: Scene, change: str) -> None:
    scene.send()
    scene.run(windowed(TumblingWindow(size_ms=10)))
    scene.send()
    after = counted("counts") if change == "kind" else windowed(TumblingWindow(size_ms=25))
    scene.refused(after, r"made by window size_ms=10, and .* read it as")


def test_grace_and_caching_may_change_when_the_windows_stay(scene: Scene) -> None:
    for number, grace_ms in enumerate((0, 5_000), start=1):
        scene.send(1_000 + number)
        scene.run(windowed(TumblingWindow(size_ms=10, grace_ms=grace_ms)))
    assert scene.counts == [1, 2]


def test_key_value_store_may_move_to_another_storage_when_its_name_stays(scene: Scene) -> None:
    storages: tuple[Storage, ...] = ("memory", "rocksdb")
    for storage in storages:
        scene.send()
        scene.run(
            counted(StoreSpec(name="counts", key_serde=TEXT, value_serde=serdes.int64(), storage=storage))
        )
    assert scene.counts == [1, 2]
