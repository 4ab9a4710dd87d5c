"""What stands in the metadata topic is refused, is mended as the error says, and the next run is right."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    TaskFencedError,
    TopologyError,
    UpstreamNotDoneError,
)
from tests.support.kafka.interception import Once
from tests.support.kafka.launches import share_of
from tests.support.kafka.printed_commands import accept_in_memory
from tests.unit.batch.run.test_printed_remedies import APP, KEYS, Scene, counting

METADATA = f"{APP}-metadata"


def under_way() -> Scene:
    """A second run, one of whose two tasks is done."""
    scene = Scene()
    scene.send(*KEYS)
    scene.app.run("first")
    scene.send(*KEYS)
    scene.app.task(scene.app.begin("second"), 0, 0)
    return scene


@pytest.mark.remedy("metadata.torn")
@pytest.mark.parametrize("value", [None, b"3"], ids=["a stop is gone", "a stop is another"])
def test_run_goes_on_where_its_tasks_stopped_when_the_torn_slice_was_dropped(value: bytes | None) -> None:
    scene = under_way()
    headers = next(r.headers() for r in scene.kafka.records(METADATA) if r.key() == b"in_1")
    scene.kafka.append(METADATA, value, b"in_1", headers=headers)
    accept_in_memory(scene.refused(KafkaClientError, "second"), scene.kafka)
    scene.send(*KEYS)
    scene.app.run("second", (0, 2))
    assert scene.counted == scene.sent


@pytest.mark.remedy("metadata._refuse_other_format")
def test_run_goes_on_where_its_tasks_stopped_when_the_slice_of_another_format_was_dropped() -> None:
    scene = under_way()
    marker = next(r for r in scene.kafka.records(METADATA) if (r.key(), r.value()) == (APP.encode(), b"0"))
    headers = [
        (name, b"99" if name == "kstreams.version" else value) for name, value in marker.headers() or ()
    ]
    scene.kafka.append(METADATA, b"0", APP.encode(), headers=headers)
    accept_in_memory(scene.refused(KafkaClientError, "second"), scene.kafka)
    scene.send(*KEYS)
    scene.app.run("second", (0, 2))
    assert scene.counted == scene.sent


def passing_on(topic: str) -> Topology:
    """``in`` -> ``mid``, and with another topic -> ``out``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").through("mid").merge(builder.stream(topic)).send_to("out")
    return builder.build()


@pytest.mark.remedy("metadata_records._shared")
@pytest.mark.parametrize("way", ["another id", "another topic"])
def test_run_goes_on_when_no_key_means_two_things(way: str) -> None:
    topic = "in_0-mid" if way == "another topic" else "mid_0"
    scene = Scene(passing_on(topic), topics=["mid", topic, "plain"])
    if way == "another id":
        scene.application_id = "mid_0_0"
    scene.kafka.append("in", b"v", b"a")
    scene.refused(TopologyError, "first")
    if way == "another id":
        scene.application_id = "other"
    else:
        scene.topology = passing_on("plain")
    scene.app.run("first")
    assert scene.kafka.values("out") == [b"v"]


@pytest.mark.remedy("stops.refuse_unnotified")
@pytest.mark.remedy("stops._not_frozen")
def test_run_goes_on_when_the_subtopologies_ran_in_the_order_that_the_errors_ask_for() -> None:
    scene = Scene(counting(partitions=2))
    scene.send(*KEYS)
    slice_ = scene.app.begin("first")
    scene.app.task(slice_, 0, 0)
    with pytest.raises(UpstreamNotDoneError, match="there is no done notification of task 0_1"):
        share_of(scene.kafka, slice_, 1, 0, scene.kafka.clock)
    scene.app.tasks(slice_, [0])
    with pytest.raises(KStreamsError) as refused:
        scene.app.finish("first")
    assert refused.value.fix == "run the subtopology that reads it"
    scene.app.tasks(slice_, [1])
    scene.app.finish("first")
    assert scene.counted == scene.sent


# == tasks whose driver does not own the application


@pytest.mark.remedy("work.TaskAssignment.refuse_unless_in_force: nothing: a newer driver owns the run")
def test_newer_driver_counts_all_once_when_the_task_of_an_older_one_was_refused() -> None:
    scene = Scene()
    scene.send(*KEYS)
    old = scene.app.begin("first")
    driver = scene.app.coordinator()
    new = scene.app.begin("first", (0, 2), coordinator=driver)
    with pytest.raises(TaskFencedError):
        scene.app.task(old, 0, 0)
    scene.app.tasks(new)
    driver.finish("first")
    driver.close()
    assert scene.counted == scene.sent


@pytest.mark.remedy(
    "work.TaskAssignment.refuse_unless_in_force: nothing: the driver that owns the application"
)
def test_next_run_counts_all_once_when_the_task_of_the_last_one_was_refused() -> None:
    scene = Scene()
    scene.send(*KEYS)
    old = scene.app.begin("first")
    scene.app.run("first", (0, 2))
    scene.send(*KEYS)
    driver = scene.app.coordinator()
    new = scene.app.begin("second", coordinator=driver)
    with pytest.raises(TaskFencedError):
        scene.app.task(old, 0, 0)
    scene.app.tasks(new)
    driver.finish("second")
    driver.close()
    assert scene.counted == scene.sent


@pytest.mark.remedy("work._refuse_next_run")
def test_next_run_counts_all_once_when_it_began_while_a_late_task_looked() -> None:
    scene = Scene()
    scene.send(*KEYS)
    old = scene.app.begin("first")

    def next_run() -> None:
        scene.app.run("first", (0, 2))
        scene.app.begin("second")

    late = scene.app
    late.interceptor = Once("reader.committed", 1, next_run)
    with pytest.raises(TaskFencedError, match="task 0_0 belongs to run 'first'"):
        late.task(old, 0, 0)
    scene.send(*KEYS)
    scene.app.run("second", (0, 2))
    scene.app.run("third")
    assert scene.counted == scene.sent
