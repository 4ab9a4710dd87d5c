"""Caught up is an application whose committed offsets have left so few records behind them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Context

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import CaughtUp, NewData
from airflow_kstreams.batch.report.results import iso_of
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.sensors import condition_sensor
from airflow_kstreams.sensors.caught_up import CaughtUpSensor
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.reset_scene import APP, ResetScene
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("sensors-only-read")


@pytest.fixture
def scene() -> ResetScene:
    return ResetScene(partitions=2)


def _caught_up(scene: ResetScene, **asked: Any) -> bool:
    with ClusterView(scene.kafka, clock=scene.clock) as view:
        return CaughtUp(application_id=APP, **asked).evaluate(view) is not None


def test_application_is_caught_up_when_its_runs_have_processed_all(scene: ResetScene) -> None:
    scene.send("a", "b", "c")
    assert not _caught_up(scene, topics=("in",)), "it never ran"
    assert _caught_up(scene, topics=("in",), max_records=3)
    scene.run("r1")
    assert _caught_up(scene)
    scene.send("d")
    assert not _caught_up(scene)
    assert _caught_up(scene, max_records=1)


def test_slice_counts_as_far_as_its_tasks_have_committed(scene: ResetScene) -> None:
    scene.send("a", "b", "c")
    slice_ = scene.begin("r1")
    with ClusterView(scene.kafka, clock=scene.clock) as view:
        wanted = CaughtUp(application_id=APP)
        assert wanted.evaluate(view) is None, "it has begun and done nothing"
        scene.tasks(slice_)
        view.refresh()
        left = wanted.evaluate(view)
    assert left is not None
    assert (left["records"], left["oldest_ms"]) == (0, 0)


def test_it_is_behind_again_when_a_reset_goes_back(scene: ResetScene) -> None:
    scene.send("a", "b")
    scene.run("r1")
    scene.reset(inputs="in", intermediates="mid")

    assert not _caught_up(scene)
    scene.run("r2")
    assert _caught_up(scene)


def test_answers_are_right_when_another_sensor_counts_the_same_topics(scene: ResetScene) -> None:
    scene.send("a", "b")
    slice_ = scene.begin("r1")
    new, caught_up = NewData(application_id=APP), CaughtUp(application_id=APP)
    with ClusterView(scene.kafka, clock=scene.clock) as view:
        for _ in range(2):
            assert new.evaluate(view) is None, "the slice holds both records"
            assert caught_up.evaluate(view) is None
            view.refresh()
        scene.tasks(slice_)
        scene.send("c")
        view.refresh()
        assert new.evaluate(view) is not None
        assert caught_up.evaluate(view) is None


def test_continuous_application_is_caught_up_as_soon_as_it_has_committed() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    application = SwitchingApplication(
        topology=builder.build(),
        cluster=kafka,
        clock=kafka.clock,
        settings={"commit.interval.ms": 1},
    )
    running = application.run_continuously("on")
    wanted = CaughtUp(application_id=APP)
    with ClusterView(kafka, clock=kafka.clock) as view:
        for _ in range(2):
            kafka.append("in", b"a", b"k")
            view.refresh()
            assert wanted.evaluate(view) is None
            running.rounds(10)
            view.refresh()
            assert wanted.evaluate(view) is not None
    running.stop()


def test_application_without_a_run_needs_its_topics_named(scene: ResetScene) -> None:
    with pytest.raises(ConfigError, match="has not run yet") as refused:
        _caught_up(scene)
    assert refused.value.fix == "name them: topics=[...]; or correct application_id"


def test_condition_has_what_templates_gave() -> None:
    sensor = CaughtUpSensor(task_id="wait", application_id="orders", topics="a, b", max_records="7")
    assert sensor.condition() == CaughtUp(application_id="orders", topics=("a", "b"), max_records=7)


def test_number_is_refused_when_it_is_negative() -> None:
    with pytest.raises(ConfigError, match="max_records=-1 is not a whole number of 0 or more"):
        CaughtUpSensor(task_id="wait", application_id="orders", max_records=-1).condition()


@pytest.mark.parametrize("ahead_hours", [12, -12])
def test_log_shows_the_last_renewal_of_the_lease_when_a_sensor_waits(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ahead_hours: int
) -> None:
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: scene.kafka)
    scene.send("a")
    driver = Coordinator(
        scene.kafka, scene.checked, clock=WaitingClock(scene.clock, ahead_ms=ahead_hours * 3_600_000)
    )
    scene.begin("r1", coordinator=driver)
    renewed = iso_of(scene.ledger.lease_written_ms)
    sensor = CaughtUpSensor(task_id="wait", application_id=APP)
    caplog.set_level("INFO", condition_sensor.log.name)

    assert not sensor.poke(Context()).is_done
    driver.lease.release()
    assert not sensor.poke(Context()).is_done

    waiting = "Still waiting for application app with 0 records left, or fewer"
    held = f"; driver of r1 holds the lease for run r1 and renewed it last at {renewed}"
    said = [record.getMessage() for record in caplog.records if record.name == condition_sensor.log.name]
    assert said == [waiting + held, waiting]
