"""What counts as new: that which the next run would read, whatever has moved the application's offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import NewData
from airflow_kstreams.batch.reset.scenario import TO_LATEST
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.reset_scene import APP, ResetScene


@pytest.fixture
def scene() -> ResetScene:
    return ResetScene(partitions=1)


def _new(scene: ResetScene, **asked: Any) -> int:
    """Return how many records a sensor finds, 0 for not enough."""
    with ClusterView(scene.kafka, clock=scene.clock) as view:
        found = NewData(application_id=APP, **asked).evaluate(view)
    return found["records"] if found is not None else 0


def _would_read(scene: ResetScene, run_id: str) -> int:
    slice_ = scene.begin(run_id)
    scene.tasks(slice_)
    scene.finish(run_id)
    return slice_.record_span


def _moved_by_a_person(scene: ResetScene, offset: int) -> None:
    reader = scene.kafka.reader(group_id=APP)
    reader.commit({TopicPartition("in", 0): CommittedOffset(offset)})
    reader.close()


def test_nothing_is_new_when_a_reset_has_skipped_it(scene: ResetScene) -> None:
    scene.send("a", "b")
    scene.run("r1")
    scene.send("c", "d", "e")
    assert _new(scene, min_records=3) == 3
    scene.reset(inputs="in", intermediates="mid", scenario=TO_LATEST)

    assert _new(scene) == 0
    scene.send("f")
    assert _new(scene) == _would_read(scene, "r2") == 1


def test_everything_is_new_when_a_reset_took_back_every_run(scene: ResetScene) -> None:
    scene.send("a", "b")
    scene.run("r1")
    assert _new(scene) == 0
    scene.reset(inputs="in", intermediates="mid")
    assert not scene.ledger.all_runs()

    assert _new(scene, min_records=2) == 2, "the ledger still knows the input topics"
    assert _would_read(scene, "r2") == 2


def test_offsets_that_a_person_set_count_when_they_differ_from_the_last_run(scene: ResetScene) -> None:
    scene.send("a", "b", "c")
    scene.run("r1")
    _moved_by_a_person(scene, 1)

    assert _new(scene, min_records=2) == 2
    assert _would_read(scene, "r2") == 2


def test_records_are_counted_anew_when_a_reset_goes_back_while_a_sensor_waits(scene: ResetScene) -> None:
    scene.send("a", "b")
    scene.run("r1")
    scene.send("c")
    wanted = NewData(application_id=APP, min_records=3)
    with ClusterView(scene.kafka, clock=scene.clock) as view:
        assert wanted.evaluate(view) is None
        scene.reset(inputs="in", intermediates="mid")
        view.refresh()
        seen = wanted.evaluate(view)

    assert seen is not None
    assert seen["records"] == 3


def _counted() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("in").group_by_key().count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


def test_nothing_is_new_when_a_continuous_run_has_processed_it() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    settings = {"settle.ms": 0, "commit.every.records": 1, "commit.interval.ms": 50}
    application = SwitchingApplication(
        topology=_counted(), cluster=kafka, clock=kafka.clock, settings=settings
    )
    kafka.append("in", b"a", b"k")
    application.batch("r1")
    running = application.run_continuously("on")
    wanted = NewData(application_id=APP)
    with ClusterView(kafka, clock=kafka.clock) as view:

        def new() -> int:
            view.refresh()
            found = wanted.evaluate(view)
            return found["records"] if found is not None else 0

        assert new() == 0
        for _ in range(2):
            kafka.append("in", b"b", b"k")
            assert new() == 1
            running.rounds(10)
            assert new() == 0, "its progress is the group's offsets, and nowhere else"
        running.stop()
        assert new() == 0
        kafka.append("in", b"c", b"k")
        assert new() == 1


class _Counting:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        if name == "cluster.reader":
            self.groups[arguments[0]] += 1
        return effect()

    def open_readers(self) -> int:
        return self.calls["cluster.reader"] - self.calls["reader.close"]


def test_one_consumer_is_kept_when_many_applications_wait_for_data(scene: ResetScene) -> None:
    scene.send("a")
    counting = _Counting()
    with ClusterView(FaultyCluster(scene.kafka, counting), clock=scene.clock) as view:
        for _ in range(3):
            for number in range(50):
                wanted = NewData(application_id=f"app-{number}", topics=("in",), min_records=5)
                assert wanted.evaluate(view) is None
            assert counting.open_readers() == 1
            view.refresh()

    assert {counting.groups[f"app-{number}"] for number in range(50)} == {1}, "nothing has moved since"
    assert counting.open_readers() == 0


def test_reader_of_the_group_is_closed_when_it_cannot_be_read(scene: ResetScene) -> None:
    class Refusing(_Counting):
        def call(
            self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]
        ) -> Any:
            if name == "reader.committed":
                raise TimeoutError("no coordinator")
            return super().call(name, client, effect, arguments)

    refusing = Refusing()
    with (
        ClusterView(FaultyCluster(scene.kafka, refusing), clock=scene.clock) as view,
        pytest.raises(TimeoutError),
    ):
        NewData(application_id=APP, topics=("in",)).evaluate(view)

    assert refusing.groups[APP] == 1
    assert refusing.open_readers() == 0
