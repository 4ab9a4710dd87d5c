"""Committed offsets that another program moved forward: refused where they skip records, unless a person has
accepted that by our command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.reset.acceptance import partitions_in
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.batch.reset.scenario import TO_LATEST, to_offset
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError, DataLossError, RunBusyError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.continuous_scene import Running, SwitchingApplication
from tests.support.kafka.copies import (
    APP,
    TEXT,
    copying,
    kafka_with_topics,
    publish,
    recreate,
    refused,
    results,
)
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("foreign-commits-skip-nothing")

IN = TopicPartition("in", 0)
METADATA = ProtocolTopics(APP).metadata


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return copying(kafka)


def move(kafka: InMemoryKafka, to: Mapping[TopicPartition, int]) -> None:
    """Commit as a consumer does that has the application's id as its group.id."""
    reader = kafka.reader(group_id=APP)
    reader.commit({tp: CommittedOffset(at) for tp, at in to.items()})
    reader.close()


def position(kafka: InMemoryKafka, tp: TopicPartition = IN) -> CommittedOffset:
    reader = kafka.reader(group_id=APP)
    try:
        return reader.committed([tp])[tp]
    finally:
        reader.close()


def accept(kafka: InMemoryKafka, *partitions: str, force: bool = True, **changes: Any) -> ResetPlan:
    request = ResetRequest(
        application_id=APP,
        accept=partitions_in(partitions),
        force=force,
        **{"scenario": TO_LATEST, **changes},
    )
    with ApplicationReset(kafka, request, clock=kafka.clock) as command:
        return command.run()


def said_by_doctor(app: Application, kafka: InMemoryKafka, check: str = "data loss") -> str:
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == check]
    return found.text


def settle(running: Running, kafka: InMemoryKafka) -> None:
    for _ in range(10):
        running.rounds(3)
        kafka.clock.sleep(2)


def endless(kafka: InMemoryKafka, topology: Topology) -> SwitchingApplication:
    return SwitchingApplication(topology=topology, cluster=kafka, clock=kafka.clock)


# == between two runs


@pytest.mark.remedy("data_loss.moved_forward")
def test_records_that_another_consumer_read_are_not_skipped_when_a_run_begins(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    publish(kafka, *range(10, 15))
    move(kafka, {IN: 15})
    said = (
        "in-0: its committed offset is 15, which no run has committed, but runs have read the partition up "
        "to 10: a program that uses the group of the application (a consumer with its id as group.id?) moved "
        "it from 10 to 15, over at most 5 records"
    )
    assert said in said_by_doctor(app, kafka)
    error = refused(app, "run-2")
    assert error.cause == said
    assert "--to-offset 15 instead leaves them out" in error.fix
    (command,) = accept_in_memory(error, kafka)
    assert " ".join(command) == (
        f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --accept in:0 "
        "--to-offset 10"
    )
    app.run("run-2")
    assert results(kafka) == sorted(map(str, range(15)))


def test_records_are_left_out_when_an_operator_accepts_that(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    publish(kafka, *range(10, 15))
    move(kafka, {IN: 15})
    plan = accept(kafka, "in:0", scenario=to_offset(13))
    assert [(change.before, change.after) for change in plan.offsets] == [(10, 13)]
    assert read_ledger(kafka, APP, clock=kafka.clock).accepted[IN].offset == 13
    assert "every position" in said_by_doctor(app, kafka)
    app.run("run-2")
    assert results(kafka) == sorted([*map(str, range(10)), "13", "14"])
    assert read_ledger(kafka, APP, clock=kafka.clock).accepted == {}, "a run has read the partition since"
    publish(kafka, 15, 16)
    move(kafka, {IN: 16})
    assert "from 15 to 16, over at most 1 record" in refused(app, "run-3").cause


def test_acceptance_is_of_one_offset_when_the_program_moves_on(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    publish(kafka, *range(10, 15))
    accept(kafka, "in:0", scenario=to_offset(12))
    move(kafka, {IN: 14})
    error = refused(app, "run-2")
    assert "operator had reading go on at 12" in error.cause
    assert "from 12 to 14" in error.cause


def test_text_of_an_acceptance_counts_for_nothing_when_the_ledger_does_not_know_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    publish(kafka, 5, 6)
    reader = kafka.reader(group_id=APP)
    reader.commit({IN: CommittedOffset(7, OffsetMetadata(accepted=True).encode())})
    reader.close()
    assert "from 5 to 7" in refused(app, "run-2").cause


def test_acceptance_holds_when_the_offsets_expire_after_it(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    publish(kafka, 5, 6)
    accept(kafka, "in:0", scenario=to_offset(6))
    kafka.expire_offsets(APP)
    app.run("run-2")
    assert results(kafka) == ["0", "1", "2", "3", "4", "6"]


def test_acceptance_is_void_when_the_topic_is_made_anew_after_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    accept(kafka, "in:0,1")
    recreate(kafka, "in")
    publish(kafka, *range(9))
    assert "topic in was created again" in refused(app, "run-2").cause


def test_partition_that_came_later_is_not_skipped(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1)
    app.run("run-1")
    kafka.add_partitions("in", 3)
    new = TopicPartition("in", 2)
    publish(kafka, 2, 3, partition=2)
    move(kafka, {new: 2})
    error = refused(app, "run-2")
    assert "in-2: its committed offset is 2" in error.cause
    assert "no run has read the partition, whose log starts at 0" in error.cause
    accept_in_memory(error, kafka)
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3"]


@pytest.mark.parametrize("by", ["pattern", "name"])
def test_topic_that_came_later_is_not_skipped(kafka: InMemoryKafka, by: str) -> None:
    def copied(*names: str) -> Topology:
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        source = builder.stream(pattern="in.*") if by == "pattern" else builder.stream(*names)
        source.send_to("out")
        return builder.build()

    publish(kafka, 1)
    Application(application_id=APP, topology=copied("in"), on=kafka, clock=kafka.clock).run("run-1")
    kafka.create_topic("in-2")
    publish(kafka, 2, 3, topic="in-2")
    move(kafka, {TopicPartition("in-2", 0): 2})
    later = Application(application_id=APP, topology=copied("in", "in-2"), on=kafka, clock=kafka.clock)
    error = refused(later, "run-2")
    assert "in-2-0: its committed offset is 2" in error.cause
    assert "no run has read the partition, whose log starts at 0" in error.cause
    accept_in_memory(error, kafka)
    later.run("run-2")
    assert results(kafka) == ["1", "2", "3"]


def test_topic_that_was_made_anew_is_not_skipped(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    recreate(kafka, "in")
    publish(kafka, "a", "b")
    move(kafka, {IN: 2, TopicPartition("in", 1): 0})
    error = refused(app, "run-2")
    assert "created again since the last run, and its log starts at 0" in error.cause
    accept_in_memory(error, kafka)
    app.run("run-2")
    assert results(kafka) == [*map(str, range(5)), "a", "b"]


def test_run_that_goes_by_its_interval_does_not_start_where_another_consumer_is(
    kafka: InMemoryKafka,
) -> None:
    app = copying(kafka, {"autostop.at": "interval"})
    for number in range(4):
        kafka.append("in", b"%d" % number, b"k", partition=0, timestamp_ms=10 + number)
    move(kafka, {IN: 3})
    slice_ = app.begin("run-1", interval_ms=(10, 20))
    assert slice_.inputs[0].start_offset == 0


# == legal


def test_application_may_be_moved_to_this_engine_with_its_offsets(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(5))
    move(kafka, {IN: 3})
    app.run("run-1")
    assert results(kafka) == ["3", "4"]


@pytest.mark.error_example("KS-RUN-005")
def test_earliest_offset_may_be_set_by_any_program_when_records_expired(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    publish(kafka, *range(5, 9))
    kafka.expire({IN: 7})
    assert "from offset 5 to 7 are gone" in refused(app, "run-2").cause
    move(kafka, {IN: 7})
    app.run("run-2")
    assert results(kafka) == sorted([*map(str, range(5)), "7", "8"])


def test_earliest_offset_may_be_set_by_any_program_while_a_run_is_under_way(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(4))
    app.begin("run-1")
    kafka.expire({IN: 2})
    move(kafka, {IN: 2})
    assert "every position" in said_by_doctor(app, kafka)
    app.run("run-1", (0, 2))
    assert results(kafka) == ["2", "3"]


def test_start_of_a_topic_that_was_made_anew_may_be_set_by_any_program(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(5))
    app.run("run-1")
    recreate(kafka, "in")
    publish(kafka, "a", "b")
    move(kafka, {TopicPartition("in", number): 0 for number in range(2)})
    app.run("run-2")
    assert results(kafka) == [*map(str, range(5)), "a", "b"]


# == while a run is under way


@pytest.mark.parametrize("at", [3, 4], ids=["in the slice", "at its stop"])
def test_task_does_not_skip_what_another_consumer_read(
    app: Application, kafka: InMemoryKafka, at: int
) -> None:
    slice_ = None
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2, 3, 4)
    slice_ = app.begin("run-2")
    move(kafka, {IN: at})
    said = (
        f"in-0: its committed offset is {at}, which no run has committed, but run 'run-2' is under way, and"
    )
    if at < 4:
        with pytest.raises(DataLossError, match=said):
            app.task(slice_, 0, 0)
    assert said in said_by_doctor(app, kafka)
    kafka.clock.sleep(60)
    error = refused(app, "run-2")
    assert f"from 1 to {at}, over at most {at - 1}" in error.cause
    assert "what run 'run-2' has written of it comes twice" in error.fix
    accept_in_memory(error, kafka)
    app.run("run-2", (0, 2))
    assert results(kafka) == ["1", "2", "3", "4"]


def test_run_is_not_finished_when_another_consumer_read_to_its_stop(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    slice_ = app.begin("run-1")
    move(kafka, {IN: 2})
    with pytest.raises(DataLossError, match="moved it from 0 to 2"):
        app.tasks(slice_)
        app.finish("run-1")
    kafka.clock.sleep(60)
    accept(kafka, "in:0", scenario=to_offset(1))
    app.run("run-1", (0, 2))
    assert results(kafka) == ["2"], "as a person has accepted"


@pytest.mark.parametrize("empty", [False, True], ids=["", "empty"])
def test_finished_run_does_not_take_an_offset_beyond_its_stop_for_its_own(
    app: Application, kafka: InMemoryKafka, empty: bool
) -> None:
    publish(kafka, 1, 2)
    if empty:
        app.run("run-0")
    slice_ = app.begin("run-1")
    if not empty:
        app.tasks(slice_)
    publish(kafka, 3, 4)
    move(kafka, {IN: 4})
    with pytest.raises(DataLossError, match=f"moved it from {2 * empty} to 4"):
        app.finish("run-1")
    kafka.clock.sleep(60)
    accept(kafka, "in:0", scenario=to_offset(2))
    app.run("run-1", (0, 2))
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3", "4"]


def test_slice_goes_on_beyond_its_stop_when_an_operator_accepts_that(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.begin("run-1")
    publish(kafka, 3, 4)
    kafka.clock.sleep(60)
    accept(kafka, "in:0", scenario=to_offset(3))
    summary = app.run("run-1", (0, 2))
    assert summary.inputs[0].stop_offset == 3
    app.run("run-2")
    assert results(kafka) == ["4"]


@pytest.mark.parametrize("mode", ["batch", "continuous"])
def test_slice_that_is_dropped_accepts_no_offset_of_another_consumer(
    app: Application, kafka: InMemoryKafka, mode: str
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2, 3)
    if mode == "batch":
        app.begin("run-2")
    else:
        endless(kafka, app.topology).run_continuously("c-1").stop()
    move(kafka, {IN: 3})
    kafka.clock.sleep(60)
    drop = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
    with ApplicationReset(kafka, drop, clock=kafka.clock) as reset:
        reset.run()
    error = refused(app, "run-3")
    assert "from 1 to 3, over at most 2 records" in error.cause
    accept_in_memory(error, kafka)
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3"]


# == continuous


def test_continuous_run_does_not_go_on_where_another_consumer_is(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    both = endless(kafka, app.topology)
    running = both.run_continuously("c-1")
    publish(kafka, 2)
    settle(running, kafka)
    running.stop()
    publish(kafka, 3, 4)
    move(kafka, {IN: 4})
    said = (
        "in-0: its committed offset is 4, which no run has committed, but continuous run 'c-1' started at 1"
    )
    assert said in said_by_doctor(app, kafka)
    with pytest.raises(DataLossError) as caught:
        both.run_continuously("c-2")
    assert said in caught.value.cause
    assert "from 1 to 4, over at most 3 records" in caught.value.cause
    assert "what run 'c-1' has written of it comes twice, in state too" in caught.value.fix
    assert said in refused(app, "run-2").cause
    accept(kafka, "in:0", scenario=to_offset(2))
    running = both.run_continuously("c-2")
    settle(running, kafka)
    running.stop()
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3", "4"]


@pytest.mark.promise("progress-is-not-guessed")
def test_offset_that_is_gone_is_not_guessed_when_the_others_are_set(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    running = endless(kafka, app.topology).run_continuously("c-1")
    publish(kafka, 2)
    publish(kafka, 3, partition=1)
    settle(running, kafka)
    running.stop()
    kafka.expire_offsets(APP, [IN])
    accept(kafka, "in:1", scenario=to_offset(1))
    said = "in-0: its committed offset is gone"
    assert said in said_by_doctor(app, kafka)
    error = refused(app, "run-2")
    assert said in error.cause
    assert "continuous run 'c-1' had committed one" in error.cause
    accept(kafka, "in:0", scenario=to_offset(2))
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3"]


def test_task_of_a_continuous_run_does_not_go_on_where_another_consumer_is(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    both = endless(kafka, app.topology)
    running = both.run_continuously("c-1")
    publish(kafka, 2, 3)
    move(kafka, {IN: 3})
    with pytest.raises(DataLossError, match="but run 'c-1' is under way, and reads from 1") as caught:
        settle(running, kafka)
    running.close()
    accept_in_memory(caught.value, kafka)
    running = both.run_continuously("c-2")
    settle(running, kafka)
    running.stop()
    assert results(kafka) == ["1", "2", "3"]


def test_continuous_run_starts_where_an_operator_accepted(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2, 3)
    accept(kafka, "in:0", scenario=to_offset(2))
    running = endless(kafka, app.topology).run_continuously("c-1")
    settle(running, kafka)
    running.stop()
    assert results(kafka) == ["1", "3"]
    assert OffsetMetadata.decode(position(kafka).metadata).run_id == "c-1"


# == time


def windowed() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
        .count(store="counts")
        .suppress()
        .to_stream(lambda window, _: f"{window.key}@{window.start_ms}")
        .send_to("out", value_serde=serdes.int64())
    )
    return builder.build()


@pytest.mark.parametrize("how", ["by another program", "by our command"])
def test_window_is_given_once_when_an_offset_moves_forward(kafka: InMemoryKafka, how: str) -> None:
    app = Application(application_id=APP, topology=windowed(), on=kafka, clock=kafka.clock)

    def arrive(*times: int) -> None:
        for at in times:
            kafka.append("in", b"v", b"k", partition=0, timestamp_ms=at)

    arrive(1, 2, 25)
    app.run("run-1")
    arrive(26, 3, 45)
    kafka.expire({IN: 4})
    if how == "by our command":
        accept_in_memory(refused(app, "run-2"), kafka)
    else:
        move(kafka, {IN: 4})
    app.run("run-2")
    given = [(record.key() or b"").decode() for record in kafka.records("out")]
    assert given == ["k@0", "k@20"]


@pytest.mark.parametrize("known_by", ["the committed offset", "the ledger"])
def test_window_is_given_once_when_a_log_was_truncated_and_the_loss_is_accepted(
    kafka: InMemoryKafka, known_by: str
) -> None:
    app = Application(application_id=APP, topology=windowed(), on=kafka, clock=kafka.clock)
    for at in (1, 2, 25):
        kafka.append("in", b"v", b"k", partition=0, timestamp_ms=at)
    app.run("run-1")
    kafka.truncate(IN, 2)
    if known_by == "the ledger":
        kafka.expire_offsets(APP, [IN])
    accept_in_memory(refused(app, "run-2"), kafka)
    for at in (3, 45):
        kafka.append("in", b"v", b"k", partition=0, timestamp_ms=at)
    app.run("run-2")
    given = [((record.key() or b"").decode(), record.value()) for record in kafka.records("out")]
    assert given == [("k@0", (2).to_bytes(8, "big")), ("k@20", (1).to_bytes(8, "big"))]


# == the command


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_ledger_and_offset_agree_when_the_command_dies_at_its_commit(
    app: Application, kafka: InMemoryKafka, takes_effect: bool
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2, 3)
    dying = CrashingAt(0, after=takes_effect, name="writer.commit")
    request = ResetRequest(
        application_id=APP, accept=partitions_in(["in:0"]), scenario=to_offset(2), force=True
    )
    with (
        pytest.raises(Crash),
        ApplicationReset(dying.cluster(kafka), request, clock=kafka.clock) as command,
    ):
        command.run()
    kafka.clock.sleep(60)
    assert dying.calls == ["writer.commit"], "one transaction holds both"
    known = read_ledger(kafka, APP, clock=kafka.clock).accepted.get(IN)
    assert (known is not None, position(kafka).offset) == ((True, 2) if takes_effect else (False, 1))
    accept(kafka, "in:0", scenario=to_offset(2))
    app.run("run-2")
    assert results(kafka) == ["1", "3"]


def test_command_changes_nothing_else(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1, 2)
    publish(kafka, 3, partition=1)
    slice_ = app.begin("run-1")
    kafka.clock.sleep(60)
    other = position(kafka, TopicPartition("in", 1))
    accept(kafka, "in:0", scenario=to_offset(1))
    assert position(kafka, TopicPartition("in", 1)) == other
    assert app.begin("run-1", (0, 2)).inputs == slice_.inputs


@pytest.mark.remedy("reset.ApplicationReset._refuse: stop them first")
def test_command_waits_for_the_members_of_the_group_to_be_stopped(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    kafka.join_group(APP, "a-consumer")
    with pytest.raises(RunBusyError, match="its consumer group has 1 member"):
        accept(kafka, "in:0", force=False)


@pytest.mark.parametrize(
    ("partitions", "changes", "said"),
    [
        (["in"], {}, "names no partitions"),
        (["in:0,x"], {}, "names no partitions"),
        (["in:7"], {}, "there is no partition in-7"),
        (["nowhere:0"], {}, "topic 'nowhere' does not exist"),
        (["in:0"], {"input_topics": ("in",)}, "and nothing besides"),
        (["in:0"], {"delete_stop_offsets": True}, "and nothing besides"),
    ],
)
def test_command_is_refused_when_it_is_not_of_single_partitions(
    app: Application, kafka: InMemoryKafka, partitions: list[str], changes: dict[str, Any], said: str
) -> None:
    app.run("run-1")
    with pytest.raises(ConfigError, match=said):
        accept(kafka, *partitions, **changes)


def test_command_is_refused_when_a_reset_was_interrupted(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1)
    app.run("run-1")
    request = ResetRequest(application_id=APP, input_topics=("in",), force=True)
    dying = CrashingAt(1, name="writer.commit").cluster(kafka)
    with pytest.raises(Crash), ApplicationReset(dying, request, clock=kafka.clock) as reset:
        reset.run()
    kafka.clock.sleep(60)
    with pytest.raises(ConfigError, match="was interrupted") as caught:
        accept(kafka, "in:0")
    assert "--input-topics in" in caught.value.fix


# == members


class GroupsForbidden:
    """May not look at groups."""

    def call(self, name: str, client: Any, effect: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "admin.group_members":
            raise AccessDeniedError(
                what="describing group app",
                where="b:1",
                permission=Permission(operation=Operation.DESCRIBE, resource=Resource.GROUP, name=APP),
                principal="",
                kafka_code="GROUP_AUTHORIZATION_FAILED",
            )
        return effect()


def test_begin_and_doctor_warn_of_members_of_the_group(app: Application, kafka: InMemoryKafka) -> None:
    app.run("run-0")
    assert said_by_doctor(app, kafka, "group members").startswith("none")
    kafka.join_group(APP, "a-consumer")
    (warning,) = app.run("run-1").warnings
    assert "consumer group app has 1 member, which may move the offsets" in warning
    assert "a-consumer" in warning
    assert said_by_doctor(app, kafka, "group members") in warning


def test_run_begins_when_it_may_not_look_at_the_group(app: Application, kafka: InMemoryKafka) -> None:
    app.interceptor = GroupsForbidden()
    (warning,) = app.run("run-1").warnings
    assert "the members of consumer group app could not be looked at: describing group app" in warning
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    found = diagnose(app.cluster, subject, clock=kafka.clock)
    assert Level.UNSEEN in {f.level for f in found if f.check == "permissions"}


# == a run that another program began


def write_bare(kafka: InMemoryKafka, stops: Mapping[str, int]) -> None:
    """Begin a run as another program does, in the specification's format."""
    kafka.create_topic(METADATA, cleanup_policy="compact")
    for key, value in {**stops, APP: 0}.items():
        kafka.append(METADATA, b"%d" % value, key.encode())


@pytest.mark.promise("foreign-runs-are-claimed")
@pytest.mark.parametrize("gone", [False, True], ids=["committed", "deleted"])
def test_slice_of_another_program_is_not_read_backwards(
    app: Application, kafka: InMemoryKafka, gone: bool
) -> None:
    publish(kafka, *range(9))
    write_bare(kafka, {"in_0": 3, "in_1": 0})
    if gone:
        kafka.expire({IN: 5})
    else:
        move(kafka, {IN: 5})
    slice_ = app.begin("run-1")
    span = (slice_.inputs[0].start_offset, slice_.inputs[0].stop_offset)
    assert span == ((3, 3) if gone else (5, 5))
    app.tasks(slice_)
    app.finish("run-1")
    if gone:
        error = refused(app, "run-2")
        assert "records from offset 3 to 5 are gone" in error.cause
        accept_in_memory(error, kafka)
    app.run("run-2")
    assert results(kafka) == ["5", "6", "7", "8"]
