"""The metadata topic is deleted while a run is under way: stop offsets are gone, and none are frozen anew."""

from __future__ import annotations

from random import Random

import pytest

from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import TO_LATEST
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import (
    DataLossError,
    RunBusyError,
    RunError,
    TaskFencedError,
    UpstreamNotDoneError,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.copies import APP, copied, copying, kafka_with_topics, publish, refused, results
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_at, accept_in_memory

pytestmark = pytest.mark.promise("stops-never-move")

METADATA, LEDGER = ProtocolTopics(APP).protocol


@pytest.mark.parametrize("seed", range(8))
def test_loss_is_accepted_at_once_when_a_slice_was_dropped(seed: int) -> None:
    # How long the markers of the reset's last transaction take depends on the seed.
    kafka = InMemoryKafka(random=Random(seed))
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("middle", partitions=2)
    kafka.create_topic("out", partitions=2)
    app = copying(kafka)
    publish(kafka, 1, 2)
    app.begin("run-1")
    for options in (
        {"delete_stop_offsets": True},
        {"accept": (TopicPartition("in", 0),), "scenario": TO_LATEST},
    ):
        request = ResetRequest(**{"application_id": APP, "force": True, **options})  # type: ignore[arg-type]
        with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
            reset.run()
    publish(kafka, 3)
    app.run("run-2")
    assert results(kafka) == ["3"]


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return copying(kafka)


@pytest.mark.parametrize("run_id", ["run-2", "run-3"], ids=["the run again", "the next run"])
@pytest.mark.remedy("data_loss.slice_lost")
def test_no_new_stops_are_frozen_when_those_of_a_run_under_way_are_gone(
    app: Application, kafka: InMemoryKafka, run_id: str
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3, 4)
    slice_ = app.begin("run-2")
    app.task(slice_, 0, 0)
    kafka.admin().delete_topics([METADATA])
    publish(kafka, 5)
    with pytest.raises(RunError, match="it has no slice, the metadata topic holds nothing"):
        app.finish("run-2")
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "data loss"]
    error = refused(app, run_id)
    expected = f"run 'run-2' has begun, and its stop offsets are gone: topic {METADATA} holds no slice"
    assert expected in error.cause
    assert expected in found.text
    assert kafka.records(METADATA) == []
    commands = [" ".join(command) for command in accept_in_memory(error, kafka)]
    assert commands == [
        f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --delete-stopoffsets"
    ]
    summary = app.run(run_id)
    assert {part.start_offset for part in summary.inputs if part.partition == 0} == {4}
    assert results(kafka) == ["1", "2", "3", "4", "5"]


def test_no_new_stops_are_frozen_when_a_run_was_captured_and_no_driver_has_come(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    coordinator = Coordinator(kafka, app.checked, clock=kafka.clock)
    coordinator.begin("run-1", app.topology.plan(APP), hold_lease=False)
    coordinator.close()
    kafka.admin().delete_topics([METADATA])
    publish(kafka, 2)
    error = refused(app, "run-1")
    assert "run 'run-1' has begun, and its stop offsets are gone" in error.cause
    accept_in_memory(error, kafka)
    app.run("run-1")
    assert results(kafka) == ["1", "2"]


def test_progress_is_not_taken_for_known_when_the_slice_is_dropped_that_was_lost_with_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3)
    app.tasks(app.begin("run-2"))
    kafka.admin().delete_topics([METADATA])
    kafka.expire_offsets(APP, [TopicPartition("in", 0)])
    request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
        reset.run()
    with pytest.raises(DataLossError, match="in-0: its committed offset is gone"):
        app.begin("run-3")


def test_nothing_is_refused_when_a_person_has_set_every_input(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1, 2)
    app.tasks(app.begin("run-1"))
    kafka.admin().delete_topics([METADATA])
    accept_at(kafka, {TopicPartition("in", 0): 2, TopicPartition("in", 1): 0}, APP)
    publish(kafka, 3)
    app.run("run-1")
    assert results(kafka) == ["1", "2", "3"]


def test_task_does_not_speak_of_another_driver_when_there_is_no_lease(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    slice_ = app.begin("run-1")
    kafka.admin().delete_topics([LEDGER])
    with pytest.raises(TaskFencedError, match="the lease is held by no driver") as caught:
        app.task(slice_, 0, 0)
    assert "its ledger was deleted" in caught.value.fix


def test_driver_launches_nothing_when_the_metadata_topic_holds_no_slice(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    coordinator = app.coordinator()
    slice_ = app.begin("run-1", coordinator=coordinator)
    assert len(coordinator.unfinished(slice_, 0)) == 2
    kafka.admin().delete_topics([METADATA])
    with pytest.raises(UpstreamNotDoneError, match="the metadata topic holds no slice"):
        coordinator.unfinished(slice_, 0)
    coordinator.close()


def test_slice_is_not_called_lost_when_another_capture_froze_it_a_moment_ago(kafka: InMemoryKafka) -> None:
    topology = copied()
    other = Application(application_id=APP, topology=topology, on=kafka, clock=kafka.clock)
    first = Application(application_id=APP, topology=topology, on=kafka, clock=kafka.clock)
    publish(kafka, 1, 2)

    def begin(app: Application) -> None:
        coordinator = Coordinator(app.cluster, app.checked, clock=app.clock)
        try:
            coordinator.begin("run-1", topology.plan(APP), hold_lease=False)
        finally:
            coordinator.close()

    # It has read the metadata topic, which holds nothing, and not yet the offsets, which name the run.
    first.interceptor = Once("reader.committed", 1, lambda: begin(other))
    with pytest.raises(RunBusyError, match="began"):
        begin(first)

    assert not first.run("run-1").empty
    assert results(kafka) == ["1", "2"]
