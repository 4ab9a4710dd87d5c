"""A log that was truncated and has grown past the committed offset again: other records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("rewritten-logs-are-refused")

APP, AT = "app", TopicPartition("in", 0)


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("out")
    return kafka


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return application(kafka, kafka)


def application(on: Any, kafka: InMemoryKafka) -> Application:
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream("in").send_to("out")
    return Application(application_id=APP, topology=builder.build(), on=on, clock=kafka.clock)


def publish(kafka: InMemoryKafka, *values: str, partition: int = 0) -> None:
    for value in values:
        kafka.append("in", value.encode(), value.encode(), partition=partition)


def publish_transaction(kafka: InMemoryKafka, *values: str, commit: bool = True) -> None:
    writer = kafka.writer(transactional_id="producer")
    writer.init_transactions()
    writer.begin()
    for value in values:
        writer.produce("in", value.encode(), value.encode(), 0)
    writer.flush()
    if commit:
        writer.commit()
    else:
        writer.abort()
    writer.close()


def committed(kafka: InMemoryKafka) -> CommittedOffset:
    return kafka.reader(group_id=APP).committed([AT])[AT]


def commit_as_now(kafka: InMemoryKafka, **changes: Any) -> None:
    now = committed(kafka)
    metadata = msgspec.structs.replace(OffsetMetadata.decode(now.metadata), **changes).encode()
    kafka.reader(group_id=APP).commit({AT: CommittedOffset(now.offset, metadata)})


def values(kafka: InMemoryKafka) -> list[str]:
    return sorted((value or b"").decode() for value in kafka.values("out"))


def refused(app: Application) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        app.begin("next")
    return caught.value


@pytest.mark.parametrize("grown", ["to the committed offset", "past it"])
@pytest.mark.parametrize("quiet_runs", [0, 1, 3])
@pytest.mark.remedy("data_loss.rewritten")
def test_both_facts_are_named_when_another_record_stands_before_the_committed_offset(
    app: Application, kafka: InMemoryKafka, quiet_runs: int, grown: str
) -> None:
    publish(kafka, "a", "b", "c")
    app.run("first")
    for number in range(quiet_runs):
        # Empty at one time, with news in the other partition at another: the offset is committed again.
        publish(kafka, *["other"] * (number % 2), partition=1)
        app.run(f"quiet-{number}")
    kafka.truncate(AT, 1)
    publish(kafka, "B", "C", *(["D"] if grown == "past it" else []))
    error = refused(app)
    assert "in-0: runs have read the record at offset 2 under leader epoch 0" in error.cause
    assert "the record at offset 2 is of leader epoch 1" in error.cause

    (command,) = accept_in_memory(error, kafka)
    assert "--accept in:0" in " ".join(command)
    assert "--to-offset 3" in " ".join(command)
    app.run("next")
    more = ["D"] if grown == "past it" else []
    assert values(kafka) == sorted(["a", "b", "c", *["other"] * (quiet_runs // 2), *more])


def test_loss_is_noticed_when_a_marker_was_cut_off_and_a_record_took_its_offset(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish_transaction(kafka, "a")
    app.run("first")
    assert committed(kafka).offset == 2
    kafka.truncate(AT, 1)
    publish(kafka, "B", "C")
    assert "there is a record of leader epoch 1 at offset 1" in refused(app).cause


def test_loss_is_noticed_when_the_last_record_was_deleted_and_another_took_a_markers_offset(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish_transaction(kafka, "a")
    app.run("first")
    kafka.expire({AT: 1})
    app.run("goes on: what was read is deleted, and nothing else has come")
    kafka.truncate(AT, 1)
    publish(kafka, "B", "C")
    error = refused(app)
    assert "runs have read the record at offset 0 under leader epoch 0 as the last one" in error.cause
    assert "there is a record of leader epoch 1 at offset 1" in error.cause

    accept_in_memory(error, kafka)
    app.run("next")
    assert values(kafka) == ["C", "a"], "what took the marker's offset is left out, as it was said"


def test_loss_is_noticed_when_there_is_no_record_any_more(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "b")
    app.run("first")
    kafka.truncate(AT, 0)
    publish_transaction(kafka, "A", "B", "C", commit=False)
    assert "there is no record at offset 1" in refused(app).cause


def test_absence_says_nothing_when_the_topic_is_compacted(app: Application, kafka: InMemoryKafka) -> None:
    kafka.alter_topic("in", cleanup_policy="compact")
    publish(kafka, "a", "b")
    app.run("first")
    publish(kafka, "b")
    kafka.compact("in")
    app.run("next")
    assert values(kafka) == ["a", "b", "b"]


@pytest.mark.parametrize("case", ["deleted", "another tool's offset", "unknown record", "new epoch"])
def test_run_goes_on_when_nothing_can_be_compared_or_nothing_was_lost(
    app: Application, kafka: InMemoryKafka, case: str
) -> None:
    publish(kafka, "a", "b", "c")
    app.run("first")
    kafka.truncate(AT, 3 if case == "new epoch" else 1)
    if case != "new epoch":
        publish(kafka, "B", "C")
    if case == "deleted":
        kafka.expire({AT: 3})
    elif case == "another tool's offset":
        kafka.reader(group_id=APP).commit({AT: CommittedOffset(3, "")})
    elif case == "unknown record":
        commit_as_now(kafka, last_offset=-1, last_epoch=-1)
    publish(kafka, "d")
    app.run("next")
    assert values(kafka) == ["a", "b", "c", "d"]


def test_markers_and_aborted_records_before_the_offset_are_no_loss(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish_transaction(kafka, "a")
    app.run("first")
    kafka.truncate(AT, 2)
    publish_transaction(kafka, "gone", commit=False)
    app.run("empty")
    assert committed(kafka).offset == 4
    publish(kafka, "b")
    app.run("next")
    assert values(kafka) == ["a", "b"]


class Seen:
    def __init__(self) -> None:
        self.assigned: list[dict[TopicPartition, int]] = []

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "reader.assign":
            self.assigned.append(dict(arguments[0]))
        return effect()


def test_partitions_are_looked_at_in_one_read_and_none_is_without_an_epoch(kafka: InMemoryKafka) -> None:
    seen = Seen()
    app = application(FaultyCluster(kafka, seen), kafka)
    publish(kafka, "a")
    publish(kafka, "b", partition=1)
    app.run("first")
    seen.assigned.clear()
    app.begin("next")
    inputs = [read for read in seen.assigned if any(tp.topic == "in" for tp in read)]
    assert inputs == [{AT: 0, TopicPartition("in", 1): 0}]


def test_epoch_is_kept_when_a_task_commits_another_partition_of_its_group(kafka: InMemoryKafka) -> None:
    text = serdes.string()
    kafka.create_topic("more", partitions=2)
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream("in").merge(builder.stream("more")).send_to("out")
    app = Application(application_id=APP, topology=builder.build(), on=kafka, clock=kafka.clock)
    publish(kafka, "a", "b")
    app.run("first")
    kafka.append("more", b"x", b"x", partition=0)
    app.run("second")
    kafka.truncate(AT, 0)
    publish(kafka, "A", "B")
    assert "the record at offset 1 is of leader epoch 1" in refused(app).cause


def test_it_is_refused_when_it_happens_again_where_a_person_let_reading_go_on(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "b", "c")
    app.run("run-1")
    kafka.truncate(AT, 1)
    publish(kafka, "d", "e")
    accept_in_memory(refused(app), kafka)
    app.run("run-2")
    kafka.truncate(AT, 2)
    publish(kafka, "f", "g")
    assert "the record at offset 2 is of leader epoch 2" in str(refused(app))
