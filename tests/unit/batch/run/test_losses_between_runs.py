"""What is missing when a run begins: an error with a command, after which the run works."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY, LedgerCheckpoint
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.past_runs import PastRuns
from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
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
    refused,
    results,
)
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("nothing-is-skipped")


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return copying(kafka)


def test_every_partition_is_named_with_offsets_and_number_when_records_were_deleted(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    publish(kafka, 3, partition=1)
    app.run("run-1")
    publish(kafka, *"abcdef")
    publish(kafka, *"ghi", partition=1)
    kafka.expire({TopicPartition("in", 0): 5, TopicPartition("in", 1): 2})
    error = refused(app, "run-2")
    assert "in-0: records from offset 2 to 5 are gone, at most 3; the log starts at 5" in error.cause
    assert "in-1: records from offset 1 to 2 are gone, at most 1" in error.cause
    (command,) = accept_in_memory(error, kafka)
    assert " ".join(command) == (
        "airflow-kstreams reset --bootstrap-server <broker> --application-id app --accept in:0,1 "
        "--to-earliest"
    )
    app.run("run-2")
    assert results(kafka) == sorted(["1", "2", "3", *"defhi"])


@pytest.mark.parametrize("topic", ["in", "middle"])
@pytest.mark.remedy("data_loss.truncated")
def test_truncation_is_named_and_reading_goes_on_at_the_end_when_it_is_accepted(
    app: Application, kafka: InMemoryKafka, topic: str
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    at = next(
        tp
        for tp in kafka.partitions(topic)
        if kafka.admin().end_offsets([tp], isolation="read_committed")[tp]
    )
    end = kafka.admin().end_offsets([at], isolation="read_committed")[at]
    kafka.truncate(at, 2)
    error = refused(app, "run-2")
    assert f"{at}: the log ends at 2, but runs have processed it up to {end}" in error.cause
    assert f"records from offset 2 to {end} are gone, at most {end - 2}" in error.cause
    assert "--to-latest" in " ".join(accept_in_memory(error, kafka)[0])
    publish(kafka, "new")
    app.run("run-2")
    assert results(kafka) == sorted([*map(str, range(10)), "new"])


@pytest.mark.parametrize("lost", ["nothing", "compacted", "metadata topic", "ledger"])
@pytest.mark.parametrize("topic", ["in", "middle"])
@pytest.mark.remedy("data_loss.recreated")
def test_recreated_topic_is_noticed_whatever_else_is_lost(
    app: Application, kafka: InMemoryKafka, topic: str, lost: str
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    recreate(kafka, topic)
    for partition in range(2):
        publish(kafka, *(f"{partition}-{n}" for n in range(20)), partition=partition, topic=topic)
    if lost == "compacted":
        kafka.compact(ProtocolTopics(APP).metadata, drop_tombstones=True)
    elif lost == "metadata topic":
        kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    elif lost == "ledger":
        kafka.admin().delete_topics([ProtocolTopics(APP).ledger])
    error = refused(app, "run-2")
    assert f"topic {topic} was created again since the last run: its id is " in error.cause
    assert "of partition 0" in error.cause
    *drop, command = accept_in_memory(error, kafka)
    assert [line[-1] for line in drop] == ["--delete-stopoffsets"] * (lost in ("metadata topic", "ledger"))
    assert f"--accept {topic}:0,1" in " ".join(command)
    app.run("run-2")
    new = [f"{partition}-{n}" for partition in range(2) for n in range(20)]
    assert results(kafka) == sorted([*map(str, range(10)), *new])


@pytest.mark.promise("repartition-topics-may-go")
def test_repartition_topic_may_be_created_again_between_runs(kafka: InMemoryKafka) -> None:
    app = Application(application_id=APP, topology=counted(), on=kafka, clock=kafka.clock)
    publish(kafka, "a")
    app.run("run-1")
    kafka.admin().delete_topics([f"{APP}-counts-repartition"])
    publish(kafka, "a")
    app.run("run-2")
    assert [int.from_bytes(value or b"", "big") for value in kafka.values("out")] == [1, 2]


@pytest.mark.promise("expired-offsets-lose-nothing")
@pytest.mark.parametrize("lost", ["nothing", "metadata topic", "ledger"])
def test_run_goes_on_where_the_last_one_stopped_when_offsets_expired(
    app: Application, kafka: InMemoryKafka, lost: str
) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    kafka.expire_offsets(APP)
    if lost == "metadata topic":
        kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    elif lost == "ledger":
        kafka.admin().delete_topics([ProtocolTopics(APP).ledger])
    publish(kafka, "new")
    if lost != "nothing":
        accept_in_memory(refused(app, "run-2"), kafka)
    summary = app.run("run-2")
    assert results(kafka) == sorted([*map(str, range(10)), "new"])
    assert any("the committed offsets of 4 partitions were gone" in text for text in summary.warnings)


def test_run_goes_on_when_only_a_partitions_offset_expired(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, *range(10))
    app.run("run-1")
    kafka.expire_offsets(APP, [TopicPartition("in", 0)])
    app.run("run-2")
    assert results(kafka) == sorted(map(str, range(10)))


def test_topic_that_comes_back_to_the_topology_goes_on_where_it_was_left(kafka: InMemoryKafka) -> None:
    kafka.create_topic("more")

    def reading(*topics: str) -> Application:
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        for topic in topics:
            builder.stream(topic).send_to("out")
        return Application(application_id=APP, topology=builder.build(), on=kafka, clock=kafka.clock)

    publish(kafka, "once", topic="more")
    reading("in", "more").run("run-1")
    reading("in").run("run-2")
    kafka.expire_offsets(APP)
    publish(kafka, "again", topic="more")
    reading("in", "more").run("run-3")
    assert results(kafka) == ["again", "once"]


@pytest.mark.remedy("data_loss.forgotten")
def test_run_is_refused_when_nothing_says_how_far_a_partition_was_read(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(4))
    app.run("run-1")
    assignment = read_ledger(kafka, APP, clock=kafka.clock).assignment
    kafka.expire_offsets(APP)
    # What is left of the metadata topic is its finished marker; what is left of the ledger is the groups.
    kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    kafka.admin().delete_topics([ProtocolTopics(APP).ledger])
    kafka.create_topic(ProtocolTopics(APP).ledger, cleanup_policy="compact")
    left = LedgerCheckpoint(past=PastRuns(), at=0, assignment=assignment)
    kafka.append(ProtocolTopics(APP).ledger, msgspec.json.encode(left), CHECKPOINT_KEY.encode())
    error = refused(app, "run-2")
    assert "in-0: its committed offset is gone" in error.cause
    assert "runs have read it" in error.cause
    accept_in_memory(error, kafka)
    app.run("run-2")
    assert set(results(kafka)) == set(map(str, range(4)))


def test_run_is_refused_when_offsets_and_metadata_of_an_unfinished_run_are_gone(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(4))
    app.run("run-1")
    publish(kafka, "half")
    slice_ = app.begin("run-2")
    app.tasks(slice_)
    kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    kafka.expire_offsets(APP, [TopicPartition("in", 0)])
    error = refused(app, "run-3")
    assert "in-0: its committed offset is gone" in error.cause
    assert "run 'run-2' was under way when the metadata topic was lost, from offset 4 on" in error.cause
    assert "in-1" not in error.cause, "it is empty: there is nothing to read twice"


@pytest.mark.parametrize("lost", ["nothing", "metadata topic", "ledger"])
@pytest.mark.remedy("data_loss.vanished")
def test_vanished_partitions_are_named_when_a_topic_has_fewer(
    app: Application, kafka: InMemoryKafka, lost: str
) -> None:
    kafka.add_partitions("in", 4)
    for partition in range(4):
        publish(kafka, *range(partition), partition=partition)
    app.run("run-1")
    before = results(kafka)
    recreate(kafka, "in", 2)
    publish(kafka, "new", partition=1)
    if lost == "metadata topic":
        kafka.admin().delete_topics([ProtocolTopics(APP).metadata])
    elif lost == "ledger":
        kafka.admin().delete_topics([ProtocolTopics(APP).ledger])
    error = refused(app, "run-2")
    assert "topic in has 2 partitions, runs have read 4" in error.cause
    assert "in-2 from offset 2, in-3 from offset 3" in error.cause
    (command,) = accept_in_memory(error, kafka)
    assert "--accept in:0,1" in " ".join(command)
    if lost == "ledger":
        accept_in_memory(refused(app, "run-2"), kafka)
    app.run("run-2")
    assert results(kafka) == sorted([*before, "new"])
    kafka.add_partitions("in", 4)
    publish(kafka, "grown", partition=3)
    app.run("run-3")
    assert results(kafka) == sorted([*before, "new", "grown"]), "what was known of the old topic is void"


@pytest.mark.parametrize("topic", ["in", "middle"])
@pytest.mark.remedy("data_loss.gone")
def test_vanished_topic_is_named_and_created_again_by_the_commands(
    app: Application, kafka: InMemoryKafka, topic: str
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    kafka.admin().delete_topics([topic])
    error = refused(app, "run-2")
    assert (
        f"topic {topic} does not exist any more, and runs have read it: what was in {topic}-0" in error.cause
    )
    assert [command[1] for command in accept_in_memory(error, kafka)] == ["topics", "reset"]
    publish(kafka, "new")
    app.run("run-2")
    assert results(kafka) == ["1", "2", "new"]


@pytest.mark.promise("added-partitions-from-their-beginning")
@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("topic", ["in", "middle"])
def test_partitions_added_while_a_run_is_under_way_enter_the_next_from_their_beginning(
    kafka: InMemoryKafka, policy: str, topic: str
) -> None:
    app = Application(
        application_id=APP,
        topology=copied(),
        on=kafka,
        clock=kafka.clock,
        settings={"first.run.offsets": policy},
    )
    app.run("run-0")
    publish(kafka, "a")
    slice_ = app.begin("run-1")
    kafka.add_partitions(topic, 3)
    publish(kafka, "b", partition=2, topic=topic)
    app.tasks(slice_)
    app.finish("run-1")
    assert "b" not in results(kafka)
    app.run("run-2")
    assert results(kafka) == ["a", "b"]
