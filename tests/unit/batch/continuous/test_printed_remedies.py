"""A continuous run that was refused begins as the error says, and every count is right."""

from __future__ import annotations

from unittest import mock

import pytest

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import DataLossError, RunBusyError, TaskFencedError, TopologyError
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.continuous_scene import APP
from tests.support.kafka.printed_commands import accept_at, accept_in_memory
from tests.unit.batch.continuous.test_continuous import FIRST, Scene
from tests.unit.batch.growing import test_partition_growth
from tests.unit.batch.growing.test_partition_growth import KEYS, continuously


@pytest.mark.remedy("lease.busy: stop it by sending SIGTERM")
def test_batch_counts_on_when_the_continuous_run_was_stopped_and_has_ended() -> None:
    scene = Scene()
    scene.publish(3)
    running = scene.application.run_continuously("c-1")
    with scene.alive(running.coordinator), pytest.raises(RunBusyError) as refused:
        scene.application.begin("b-1")
    assert refused.value.fix.startswith("stop it by sending SIGTERM to process of c-1")
    scene.settle(running)
    running.stop()
    scene.publish(2)
    scene.application.batch("b-1")
    scene.check()


@pytest.mark.remedy("start._refuse_blocked")
def test_continuous_run_begins_when_a_batch_has_read_what_partitions_wait_for() -> None:
    scene = test_partition_growth.Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(3)
    scene.send(KEYS, 2)
    with pytest.raises(TopologyError, match="must not be read before the partitions"):
        continuously(scene, "c-1")
    scene.app.settings = {**scene.app.settings, "autostop.at": "eol"}
    scene.run()
    scene.app.settings = {"settle.ms": 0}
    continuously(scene, "c-1")
    assert scene.listed == scene.sent


@pytest.mark.remedy("start._refuse_global_tables")
def test_records_are_joined_in_batches_when_a_continuous_run_refuses_the_global_table() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names")
    builder.stream("in").join(names, lambda value, name: name, key=lambda key, value: value).send_to("out")
    scene = Scene(builder.build())
    scene.kafka.create_topic("names", cleanup_policy="compact")
    scene.kafka.append("names", b"Ann", b"a")
    scene.kafka.append("in", b"a", b"k")
    with pytest.raises(TopologyError, match="reads the global table"):
        scene.application.run_continuously("c-1")
    scene.application.batch("b-1")
    assert scene.kafka.values("out") == [b"Ann"]


@pytest.mark.remedy("continuous_task._gap")
def test_continuous_run_goes_on_when_it_was_stopped_and_the_loss_accepted() -> None:
    scene = Scene()
    scene.publish(4)
    running = scene.application.run_continuously("c-1")
    gone = scene.kafka.partitions("in")[0]
    end = scene.kafka.admin().end_offsets([gone], isolation="read_committed")[gone]
    scene.kafka.expire({TopicPartition(*gone): end})
    with pytest.raises(DataLossError, match="cannot go on there") as refused:
        running.rounds(3)
    assert refused.value.fix.endswith("stop the run first")
    running.close()
    accept_in_memory(refused.value, scene.kafka)
    again = scene.application.run_continuously("c-2")
    scene.settle(again)
    again.stop()
    assert len(scene.kafka.values("out")) == len(scene.kafka.records("in")) == 2


@pytest.mark.remedy("continuous_task.current_run")
def test_tasks_of_the_driver_count_all_when_a_task_that_the_ledger_does_not_name_was_refused() -> None:
    scene = Scene()
    running = scene.application.run_continuously("c-1")
    scene.publish(4)
    with (
        mock.patch.object(Ledger, "current_continuous", None),
        pytest.raises(TaskFencedError, match="but the ledger names none"),
    ):
        scene.application.continuous_task(running.run, FIRST).step(0)
    again = scene.application.run_continuously("c-1", order=(0, 2))
    running.close()
    scene.settle(again)
    again.stop()
    scene.check()


@pytest.mark.parametrize("batches", [0, 1])
def test_nothing_comes_again_when_offsets_of_a_continuous_run_expired_before_a_reset(batches: int) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    scene = Scene(builder.build())
    for number in range(batches):
        scene.publish(2)
        scene.application.batch(f"b-{number}")
    scene.publish(5)
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()
    read = scene.committed("in")
    scene.kafka.expire_offsets(APP, list(read))
    request = ResetRequest(application_id=APP, delete_stop_offsets=True)
    with ApplicationReset(scene.kafka, request, clock=scene.kafka.clock) as reset:
        reset.run()
    with pytest.raises(DataLossError, match="in-0: its committed offset is gone"):
        scene.application.begin("b-9")
    accept_at(scene.kafka, read, APP)
    scene.publish(2)
    scene.application.batch("b-9")
    came = sorted(int(record.key() or b"-1") for record in scene.kafka.records("out"))
    assert came == list(range(len(scene.sent)))
