"""Every loss on the real broker: its message, and Kafka's own tools executed as the message says, after which
the run works."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY, LedgerCheckpoint
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.past_runs import PastRuns
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, TopicPartition
from tests.conftest import read_rows
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept, execute, printed_commands

pytestmark = pytest.mark.promise("nothing-is-skipped", "a-person-accepts-loss")

Produce = Callable[..., None]
TEXT = serdes.string()


def copied(source: str, target: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream(source).send_to(target)
    return builder.build()


@dataclass(kw_only=True)
class Scene(Application):
    """An application that copies one topic to another, and what happens to the topic."""

    source: str
    target: str
    produce: Produce
    create: Callable[..., str]

    @property
    def admin(self) -> AdminPort:
        return replace(self, interceptor=None).cluster.admin()

    def publish(self, *values: object, partition: int = 0) -> None:
        self.produce(self.source, [_row(value, partition) for value in values])

    def results(self) -> list[str]:
        return sorted(row.value.decode() for row in read_rows(self.bootstrap, self.target))

    def recreate(self, partitions: int = 2) -> None:
        self.admin.delete_topics([self.source])
        self.create(self.source, partitions)

    def refused(self, call: Callable[[], object]) -> DataLossError:
        with pytest.raises(DataLossError) as caught:
            call()
        return caught.value

    def commit(self, offsets: dict[int, int], metadata: str) -> None:
        reader = self.cluster.reader(group_id=self.application_id)
        try:
            named = {TopicPartition(self.source, number): at for number, at in offsets.items()}
            reader.commit({tp: CommittedOffset(at, metadata) for tp, at in named.items()})
        finally:
            reader.close()


def _row(value: object, partition: int) -> dict[str, Any]:
    return {"key": str(value), "value": str(value), "partition": partition}


@pytest.fixture
def scene(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Produce,
) -> Scene:
    source, target = create_topic(topic_name("in"), 2), create_topic(topic_name("out"), 1)
    return Scene(
        bootstrap=kafka,
        application_id=application_id,
        topology=copied(source, target),
        source=source,
        target=target,
        produce=produce,
        create=create_topic,
    )


def delete_group(scene: Scene) -> None:
    """What ``offsets.retention.minutes`` does, by Kafka's own tool."""
    group = ["kafka-consumer-groups.sh", "--bootstrap-server", "<broker>", "--group", scene.application_id]
    assert "successful" in execute([*group, "--delete"], scene.bootstrap)


def test_unread_records_that_are_gone_are_accepted_by_the_printed_command(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    scene.run("run-1")
    scene.publish(*"abc")
    scene.publish(*"de", partition=1)
    scene.admin.delete_records({TopicPartition(scene.source, 0): 5, TopicPartition(scene.source, 1): 1})
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"{scene.source}-0: records from offset 3 to 5 are gone, at most 2" in error.cause
    assert f"{scene.source}-1: records from offset 0 to 1 are gone, at most 1" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-2")
    assert scene.results() == ["1", "2", "3", "c", "e"]


def test_topic_that_was_created_again_is_accepted_by_the_printed_command(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    scene.run("run-1")
    scene.recreate()
    scene.admin.delete_topics([ProtocolTopics(scene.application_id).metadata])
    scene.publish(*"abcdef")
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"topic {scene.source} was created again since the last run" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-2")
    assert scene.results() == ["1", "2", "3", *"abcdef"]


def test_changelog_that_is_lost_mid_run_is_accepted_by_the_printed_command(scene: Scene) -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    counts = builder.stream(scene.source).group_by_key().count(store="counts")
    counts.to_stream().send_to(scene.target, value_serde=serdes.int64())
    scene.topology = builder.build()
    changelog = f"{scene.application_id}-counts-changelog"
    scene.publish("a")
    scene.run("run-1")
    scene.publish(*"aaa")
    slice_ = scene.begin("run-2")
    scene.admin.delete_topics([changelog])
    error = scene.refused(lambda: scene.task(slice_, 0, 0))
    assert f"changelog {changelog} is not the one run 'run-2' began with: its id is gone" in error.cause
    accept(error, scene.bootstrap)
    scene.publish("b")
    assert scene.run("run-3").warnings == ()


def test_slice_that_was_deleted_with_the_metadata_topic_is_given_up_by_the_printed_command(
    scene: Scene,
) -> None:
    scene.publish(1, 2)
    slice_ = scene.begin("run-1")
    scene.task(slice_, 0, 0)
    scene.admin.delete_topics([ProtocolTopics(scene.application_id).metadata])
    scene.publish(3)
    error = scene.refused(lambda: scene.begin("run-1"))
    assert "run 'run-1' has begun, and its stop offsets are gone" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-1")
    assert scene.results() == ["1", "2", "3"]


def test_partitions_that_vanished_are_accepted_by_the_printed_command(scene: Scene) -> None:
    scene.publish(1)
    scene.publish(2, 3, partition=1)
    scene.run("run-1")
    scene.recreate(1)
    scene.publish("a")
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"topic {scene.source} has 1 partition, runs have read 2" in error.cause
    assert f"{scene.source}-1 from offset 2" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-2")
    assert scene.results() == ["1", "2", "3", "a"]


def test_topic_that_vanished_is_created_and_accepted_by_the_printed_commands(scene: Scene) -> None:
    scene.publish(1)
    scene.run("run-1")
    scene.admin.delete_topics([scene.source])
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"topic {scene.source} does not exist any more, and runs have read it" in error.cause
    assert [command[1] for command in accept(error, scene.bootstrap)] == ["topics", "reset"]
    scene.publish("a")
    scene.run("run-2")
    assert scene.results() == ["1", "a"]


def test_truncated_log_is_accepted_by_the_printed_command(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    scene.run("run-1")
    # As after an unclean election: a run has committed what the log does not hold any more.
    scene.commit({0: 8}, OffsetMetadata(run_id="run-1").encode())
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"{scene.source}-0: the log ends at 3, but runs have processed it up to 8" in error.cause
    assert "records from offset 3 to 8 are gone, at most 5" in error.cause
    accept(error, scene.bootstrap)
    scene.publish("a")
    scene.run("run-2")
    assert scene.results() == ["1", "2", "3", "a"]


@pytest.mark.promise("contradictions-are-refused")
def test_offsets_that_were_rolled_back_are_set_right_by_the_printed_command(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    scene.run("run-1")
    older = OffsetMetadata(run_id="run-1").encode()
    scene.publish("a")
    scene.run("run-2")
    scene.commit({0: 3}, older)
    scene.publish("b")
    error = scene.refused(lambda: scene.begin("run-3"))
    assert f"{scene.source}-0: its committed offset is 3, of run 'run-1', but the ledger" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-3")
    assert scene.results() == ["1", "2", "3", "a", "b"]


def test_metadata_topic_with_records_of_a_backup_is_dropped_by_the_printed_command(scene: Scene) -> None:
    topic = ProtocolTopics(scene.application_id).metadata
    scene.publish(1, 2, 3)
    scene.run("run-1")
    backup = read_rows(scene.bootstrap, topic)
    scene.publish("a")
    scene.run("run-2")
    rows = [{"key": row.key, "value": row.value, "headers": row.headers} for row in backup]
    scene.produce(topic, rows)
    scene.publish("b")
    error = scene.refused(lambda: scene.begin("run-3"))
    assert "says that run 'run-1' was finished last, but the ledger says that run 'run-2' was" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-3")
    assert scene.results() == ["1", "2", "3", "a", "b"]


def test_nothing_is_read_twice_unless_a_person_says_so_when_nobody_knows_how_far_runs_got(
    scene: Scene,
) -> None:
    scene.publish(1, 2, 3)
    scene.run("run-1")
    delete_group(scene)
    assignment = read_ledger(scene.cluster, scene.application_id).assignment
    topics = [ProtocolTopics(scene.application_id).metadata, ProtocolTopics(scene.application_id).ledger]
    scene.admin.delete_topics(topics)
    scene.create(topics[1], 1, cleanup_policy="compact")
    left = LedgerCheckpoint(past=PastRuns(), at=0, assignment=assignment)
    groups = {"key": CHECKPOINT_KEY.encode(), "value": msgspec.json.encode(left)}
    scene.produce(topics[1], [groups])
    error = scene.refused(lambda: scene.begin("run-2"))
    assert f"{scene.source}-0: its committed offset is gone" in error.cause
    accept(error, scene.bootstrap)
    scene.run("run-2")
    assert scene.results() == sorted(["1", "2", "3"] * 2)


def test_slice_goes_on_after_the_printed_command_when_its_records_are_deleted_while_a_task_reads(
    scene: Scene,
) -> None:
    scene.publish(*range(10))
    slice_ = scene.begin("run-1")
    # The task has looked at the log and assigned itself the partition, when its records go.
    gone = {TopicPartition(scene.source, 0): 6}
    assigned = partial(scene.admin.delete_records, gone)
    scene.interceptor = Once("reader.assign", 1, assigned, about=scene.source)
    error = scene.refused(lambda: scene.task(slice_, 0, 0))
    assert f"{scene.source}-0: records from offset 0 to 6 are gone, at most 6" in error.cause
    scene.interceptor = None
    accept(error, scene.bootstrap)
    scene.tasks(slice_)
    scene.finish("run-1")
    assert scene.results() == ["6", "7", "8", "9"]


@pytest.mark.parametrize("records", [3, 30])
def test_nothing_of_a_topic_created_again_under_a_task_is_committed(scene: Scene, records: int) -> None:
    scene.publish(*range(10))
    slice_ = scene.begin("run-1")

    def replace_topic() -> None:
        scene.recreate()
        scene.publish(*(f"new-{number}" for number in range(records)))

    scene.interceptor = Once("reader.assign", 1, replace_topic, about=scene.source)
    error = scene.refused(lambda: scene.task(slice_, 0, 0))
    assert f"topic {scene.source} is not the one run 'run-1' began with" in error.cause
    assert scene.results() == []
    scene.interceptor = None
    if records > 3:
        assert [command[0] for command in printed_commands(error.fix)] == [
            "airflow-kstreams",
            "airflow-kstreams",
        ]
        return
    accept(error, scene.bootstrap)
    scene.run("run-2")
    assert scene.results() == ["new-0", "new-1", "new-2"]


def test_slice_is_read_again_by_the_printed_command_only_when_its_offsets_expired(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    slice_ = scene.begin("run-1")
    delete_group(scene)
    error = scene.refused(lambda: scene.tasks(slice_))
    assert f"{scene.source}-0: its committed offset is gone" in error.cause
    assert "while run 'run-1' is under way, which reads [0, 3)" in error.cause
    accept(error, scene.bootstrap)
    scene.tasks(slice_)
    scene.finish("run-1")
    assert scene.results() == ["1", "2", "3"]


@pytest.mark.promise("hanging-transactions-are-named")
def test_printed_commands_find_the_producer_of_a_hung_transaction_and_abort_that(scene: Scene) -> None:
    scene.publish(1, 2)
    foreign = scene.cluster.writer(transactional_id=f"{scene.source}-foreign")
    try:
        foreign.init_transactions()
        foreign.begin()
        foreign.produce(scene.source, b"open", b"open", 0)
        foreign.flush()
        scene.publish(3)
        summary = replace(scene, settings={"settle.ms": 200}).run("run-1")
        (warning,) = summary.warnings
        text = f"{scene.source}-0: a transaction open for "
        assert warning.startswith(text)
        assert "last stable offset at 2, below the high watermark 4" in warning
        assert scene.results() == ["1", "2"]
        find, abort = printed_commands(warning)
        table = [line.split() for line in execute(find, scene.bootstrap).splitlines() if line.strip()]
        header = next(row for row in table if "ProducerId" in row)
        start = header.index("CurrentTransactionStartOffset")
        rows = [row for row in table if len(row) == len(header) and re.fullmatch(r"\d+", row[0])]
        assert "2" in [row[start] for row in rows]
    finally:
        foreign.close()
    # Its program has ended, and its coordinator waits for the transaction's timeout.
    execute(abort, scene.bootstrap)
    assert replace(scene, settings={"settle.ms": 10_000}).run("run-2").warnings == ()
    assert scene.results() == ["1", "2", "3"]
