"""What goes missing between begin and finish, at every point where a task or finish could meet it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, TumblingWindow, serdes
from airflow_kstreams.streams.errors import DataLossError, StopOffsetUnreachableError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition, WriterPort
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.copies import (
    APP,
    TEXT,
    copied,
    copying,
    counted,
    kafka_with_topics,
    publish,
    recreate,
    results,
)
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("nothing-is-skipped", "replaced-topics-are-noticed")

IN = TopicPartition("in", 0)


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return copying(kafka)


def run_task(app: Application, slice_: Any, subtopology: int, group: int) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        app.task(slice_, subtopology, group)
    return caught.value


def complete(app: Application, slice_: Any) -> None:
    app.tasks(slice_)
    app.finish(slice_.run_id)


@pytest.mark.parametrize("when", ["before the task", "while it reads"])
@pytest.mark.remedy("data_loss.deleted")
@pytest.mark.remedy("data_loss.data_loss")
def test_run_goes_on_after_the_command_when_retention_deletes_records_of_its_slice(
    app: Application, kafka: InMemoryKafka, when: str
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")

    def expire() -> None:
        kafka.expire({IN: 4})

    if when == "before the task":
        expire()
    else:
        # The task has looked at the log, and is assigned: it meets the loss in its first fetch.
        app.interceptor = Once("reader.poll", 2, expire)
    error = run_task(app, slice_, 0, 0)
    assert "in-0: records from offset 0 to 4 are gone, at most 4; the log starts at 4" in error.cause
    assert "run 'run-1' had to read [0, 10)" in error.cause
    app.interceptor = None
    (command,) = accept_in_memory(error, kafka)
    assert "--accept in:0 --to-earliest" in " ".join(command)
    complete(app, slice_)
    assert results(kafka) == list(map(str, range(4, 10)))


def test_run_goes_on_after_the_command_when_retention_deletes_its_whole_slice_and_more(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")
    publish(kafka, *range(10, 20))
    kafka.expire({IN: 15})
    accept_in_memory(run_task(app, slice_, 0, 0), kafka)
    app.tasks(slice_)
    summary = app.finish("run-1")
    assert [part.stop_offset for part in summary.inputs] == [15, 0]
    app.run("run-2")
    assert results(kafka) == sorted(map(str, range(15, 20)))


def test_loss_is_named_when_retention_deletes_records_of_an_intermediate_topic(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")
    for group in range(2):
        app.task(slice_, 0, group)
    kafka.expire({TopicPartition("middle", 0): 2})
    error = run_task(app, slice_, 1, 0)
    assert "middle-0: records from offset 0 to 2 are gone, at most 2" in error.cause
    lost = 2
    accept_in_memory(error, kafka)
    complete(app, slice_)
    assert len(results(kafka)) == 10 - lost


def test_reader_that_lost_nothing_it_needs_is_made_again(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, *range(3))
    slice_ = app.begin("run-1")
    publish(kafka, *range(3, 9))

    def expire() -> None:
        kafka.expire({IN: 9})

    # The first fetch brings all of the slice; a second one before its pause would stand beyond the log.
    app.interceptor = Once("reader.pause", 1, expire)
    complete(app, slice_)
    assert results(kafka) == ["0", "1", "2"]


@pytest.mark.parametrize("when", ["before the task", "while it reads", "before finish"])
@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.remedy("data_loss.replaced")
def test_slice_is_dropped_by_the_command_when_a_topic_is_created_again_mid_run(
    app: Application, kafka: InMemoryKafka, when: str, deleted: bool
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")

    def replace() -> None:
        if deleted:
            kafka.admin().delete_topics(["in"])
        else:
            recreate(kafka, "in")
            publish(kafka, "new")

    if when == "before finish":
        app.tasks(slice_)
        replace()
        with pytest.raises(DataLossError) as caught:
            app.finish("run-1")
        error = caught.value
    elif when == "before the task":
        replace()
        error = run_task(app, slice_, 0, 0)
    else:
        app.interceptor = Once("reader.poll", 2, replace)
        error = run_task(app, slice_, 0, 0)
        app.interceptor = None
    assert "topic in is not the one run 'run-1' began with: its id is " in error.cause
    commands = [" ".join(command) for command in accept_in_memory(error, kafka)]
    assert commands[0].startswith("airflow-kstreams reset --bootstrap-server <broker> --application-id app")
    if deleted:
        publish(kafka, "new")
    app.run("run-2")
    assert results(kafka)[-1] == "new"
    assert results(kafka).count("new") == 1


@pytest.mark.remedy("data_loss.truncated_below")
def test_truncation_is_noticed_long_before_the_task_would_give_up(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")
    app.interceptor = Once("reader.poll", 2, lambda: kafka.truncate(IN, 6))
    before = kafka.clock.monotonic_seconds()
    error = run_task(app, slice_, 0, 0)
    assert kafka.clock.monotonic_seconds() - before < 60
    assert "in-0: the log ends at 6, but run 'run-1' stops at 10: it was truncated" in error.cause
    assert "at most 4" in error.cause
    app.interceptor = None
    commands = accept_in_memory(error, kafka)
    assert [command[0] for command in commands] == ["airflow-kstreams"]
    publish(kafka, "new")
    app.run("run-2")
    assert results(kafka) == sorted([*map(str, range(6)), "new"])


@pytest.mark.promise("progress-is-not-guessed")
@pytest.mark.parametrize("topic", ["in", "middle"])
def test_slice_is_not_read_again_when_its_committed_offsets_expire_while_it_is_under_way(
    kafka: InMemoryKafka, topic: str
) -> None:
    app = Application(
        application_id=APP,
        topology=copied(),
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": 1},
    )
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")
    subtopology = 0 if topic == "in" else 1
    for sub in range(subtopology):
        for group in range(2):
            app.task(slice_, sub, group)
    died = RuntimeError("killed")

    def die() -> None:
        raise died

    app.interceptor = Once("writer.commit", 4, die)
    with pytest.raises(RuntimeError):
        app.task(slice_, subtopology, 0)
    app.interceptor = None
    done = kafka.reader(group_id=APP).committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset
    assert 0 < done < 10
    kafka.expire_offsets(APP)
    resumed = app.begin("run-1", order=(0, 2))
    error = run_task(app, resumed, subtopology, 0)
    assert f"{topic}-0: its committed offset is gone" in error.cause
    assert "while run 'run-1' is under way" in error.cause
    assert "--to-offset 0" in error.fix
    with pytest.raises(DataLossError, match="its committed offset is gone"):
        app.finish("run-1")


@pytest.mark.remedy("data_loss.progress_lost")
def test_slice_is_read_again_only_if_a_person_says_so_when_its_offsets_expired(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    slice_ = app.begin("run-1")
    kafka.expire_offsets(APP)
    for group in range(2):
        if group == 0:
            accept_in_memory(run_task(app, slice_, 0, group), kafka)
        app.task(slice_, 0, group)
    for group in range(2):
        accept_in_memory(run_task(app, slice_, 1, group), kafka)
    complete(app, slice_)
    assert results(kafka) == sorted(map(str, range(10)))


def test_empty_run_is_finished_when_its_committed_offsets_expire(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    assert app.begin("run-2").plan.empty
    kafka.expire_offsets(APP)
    app.finish("run-2")
    publish(kafka, "new")
    app.run("run-3")
    assert results(kafka) == sorted([*map(str, range(10)), "new"])


@pytest.mark.promise("expired-offsets-lose-nothing")
@pytest.mark.parametrize("lost", ["nothing", "committed offsets", "and the metadata topic"])
def test_stream_time_goes_on_from_run_to_run_when_committed_offsets_expire(
    kafka: InMemoryKafka, lost: str
) -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    windows = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0))
    windows.count(store="counts").to_stream().send_to("out", value_serde=serdes.int64())
    app = Application(application_id=APP, topology=builder.build(), on=kafka, clock=kafka.clock)
    kafka.append("in", b"v", b"k", partition=0, timestamp_ms=5_000)
    summary = app.run("run-1")
    assert summary.partition_times["in-0"].stream_time_ms == 5_000
    written = kafka.values("out")
    if lost != "nothing":
        kafka.expire_offsets(APP)
    if lost == "and the metadata topic":
        kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
        with pytest.raises(DataLossError) as caught:
            app.begin("run-2")
        accept_in_memory(caught.value, kafka)
    kafka.append("in", b"late", b"k", partition=0, timestamp_ms=1_000)
    again = app.run("run-2")
    assert sum(task.records_dropped for task in again.tasks) == 1, "it comes after the end of its window"
    assert kafka.values("out") == written
    assert again.partition_times["in-0"].stream_time_ms == 5_000


def hold(kafka: InMemoryKafka, topic: str = "in") -> WriterPort:
    """A foreign producer that leaves a transaction open."""
    writer = kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
    writer.init_transactions()
    writer.begin()
    writer.produce(topic, b"open", b"open", 0)
    writer.flush()
    return writer


@pytest.mark.promise("hanging-transactions-are-named")
def test_run_stops_before_a_hung_foreign_transaction_and_its_summary_says_how_to_find_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    hold(kafka)
    publish(kafka, 3)
    kafka.clock.sleep(90)
    summary = app.run("run-1")
    assert results(kafka) == ["1", "2"]
    (warning,) = summary.warnings
    holds = "holds the last stable offset at 2, below the high watermark 4"
    assert f"in-0: a transaction open for 1 min 35 s {holds}" in warning
    assert "at most 2 records" in warning
    assert "describe-producers --topic in --partition 0" in warning
    assert "abort --topic in --partition 0 --start-offset 2" in warning


@pytest.mark.error_example("KS-RUN-006")
@pytest.mark.promise("every-run-ends")
@pytest.mark.remedy("read_failures.ReadFailures.unreachable")
@pytest.mark.parametrize("program", ["found", "ended"])
def test_text_tells_age_and_producer_when_a_transaction_keeps_a_task_from_its_stop(
    app: Application, kafka: InMemoryKafka, program: str
) -> None:
    app = Application(
        application_id=APP,
        topology=copied(),
        on=kafka,
        clock=kafka.clock,
        settings={"run.stall.timeout.ms": 8_000},
    )
    publish(kafka, 1, 2)
    slice_ = app.begin("run-1")
    hanging: list[WriterPort] = []
    for group in range(2):
        # Behind the records of the task, before its notification: its stop lies beyond.
        holding = Once("admin.end_offsets", 2, lambda: hanging.append(hold(kafka, "middle")))
        app.interceptor = holding if group == 0 else None
        app.task(slice_, 0, group)
    app.interceptor = None
    with pytest.raises(StopOffsetUnreachableError) as caught:
        for group in range(2):
            app.task(slice_, 1, group)
    assert "middle-0: position " in caught.value.cause
    assert "a transaction at the last stable offset open for " in caught.value.cause
    assert "describe-producers --topic middle --partition 0" in caught.value.fix
    if program == "ended":
        accept_in_memory(caught.value, kafka)
    else:
        hanging[0].abort()
    app.run("run-1", (0, 2))
    assert results(kafka) == ["1", "2"]


@pytest.mark.promise("dropped-slices-lose-nothing")
def test_counts_are_exact_when_a_slice_is_dropped_and_its_records_are_in_the_next(
    kafka: InMemoryKafka,
) -> None:
    app = Application(application_id=APP, topology=counted(), on=kafka, clock=kafka.clock)
    publish(kafka, "a", "b", "a")
    slice_ = app.begin("run-1")
    app.interceptor = Once("reader.poll", 2, lambda: kafka.truncate(IN, 2))
    error = run_task(app, slice_, 0, 0)
    app.interceptor = None
    accept_in_memory(error, kafka)
    publish(kafka, "b")
    app.run("run-2")
    counts = {r.key(): int.from_bytes(r.value() or b"", "big") for r in kafka.records("out")}
    assert counts == {b"a": 1, b"b": 2}


def test_dropping_a_slice_whose_progress_was_lost_does_not_make_it_known(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(4))
    app.run("run-1")
    publish(kafka, *"abc")
    app.tasks(app.begin("run-2"))
    kafka.expire_offsets(APP, [IN])
    request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
        reset.run()
    with pytest.raises(DataLossError, match="in-0: its committed offset is gone") as caught:
        app.begin("run-3")
    accept_in_memory(caught.value, kafka)
    app.run("run-3")
    assert results(kafka) == sorted([*map(str, range(4)), *"abc"] * 2)
