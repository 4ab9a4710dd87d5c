"""Resets on the real broker: beside Kafka's own application reset tool, and in a whole application."""

from __future__ import annotations

import csv
import dataclasses
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from typer.testing import CliRunner, Result

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.lease.lease_renewal import LeaseRenewal
from airflow_kstreams.cli.app import app
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, ports
from airflow_kstreams.streams.errors import RunSupersededError, TaskFencedError
from airflow_kstreams.streams.serde import serdes
from dev.servers import embedded
from tests.integration.java.peer import java
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("resets-are-whole")

EPOCH_MS = 1_700_000_000_000


def reset(bootstrap: str, group: str, *options: str) -> Result:
    return CliRunner().invoke(
        app, ["reset", "--bootstrap-server", bootstrap, "--application-id", group, *options]
    )


def kafkas_own(bootstrap: str, resets: list[tuple[str, ...]]) -> None:
    """Run Kafka's own tool, in one process for all: (application id, options) of each reset."""
    lines = ["\t".join(("--bootstrap-server", bootstrap, "--application-id", *options)) for options in resets]
    source = Path(__file__).with_name("StreamsResets.java")
    done = subprocess.run(
        [str(java()), "-Dlog4j2.level=OFF", "-cp", f"{embedded.kafka_streams_libraries()}/*", str(source)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def committed(bootstrap: str, group: str, partitions: list[TopicPartition]) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return [tp.offset for tp in consumer.committed(partitions, timeout=30)]
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    reader = KafkaCluster({"bootstrap.servers": bootstrap}).reader(group_id=group)
    try:
        reader.commit({ports.TopicPartition(*tp): ports.CommittedOffset(at) for tp, at in offsets.items()})
    finally:
        reader.close()


@pytest.fixture
def topic(create_topic: Any, topic_name: Any, produce: Any, kafka_admin: Any) -> str:
    """Offsets 3 to 9 in the first partition, 0 to 4 in the second, none in the third; a second apart."""
    topic: str = create_topic(topic_name("reset"), partitions=3)
    for partition, count in ((0, 10), (1, 5)):
        produce(
            topic,
            [
                {"value": str(n), "partition": partition, "timestamp_ms": EPOCH_MS + 1000 * n}
                for n in range(count)
            ],
        )
    kafka_admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0)].result(30)
    return topic


SCENARIOS: tuple[tuple[str, ...], ...] = (
    (),
    ("--to-latest",),
    ("--to-offset", "4"),
    ("--to-offset", "1"),
    ("--to-datetime", "2023-11-14T22:13:24.500"),
    ("--to-datetime", "2023-11-15T00:13:24.000+02:00"),
    ("--shift-by", "-2"),
    ("--shift-by", "4"),
    ("--from-file", "plan.csv"),
    ("--by-duration", "PT1M"),
    ("--by-duration", "P10000D"),
)


def test_offsets_are_those_of_kafkas_own_tool_whatever_the_scenario(
    kafka: str, topic: str, topic_name: Any, tmp_path: Path, create_topic: Any
) -> None:
    middle = create_topic(topic_name("middle"), partitions=1)
    partitions = [TopicPartition(topic, n) for n in range(3)] + [TopicPartition(middle, 0)]
    with (tmp_path / "plan.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([(topic, 0, 2), (topic, 1, 3), (topic, 2, 9)])
    theirs: list[tuple[str, ...]] = []
    ours: list[str] = []
    for scenario in SCENARIOS:
        options = [str(tmp_path / option) if option.endswith(".csv") else option for option in scenario]
        named = ("--input-topics", topic, "--intermediate-topics", middle, *options)
        ours.append(topic_name("ours"))
        theirs.append((topic_name("theirs"), *named))
        for group in (ours[-1], theirs[-1][0]):
            commit(kafka, group, {(topic, 0): 7, (topic, 1): 2, (topic, 2): 0})
        done = reset(kafka, ours[-1], *named)
        assert done.exit_code == 0, done.output
    kafkas_own(kafka, theirs)
    for scenario, our_group, (their_group, *_) in zip(SCENARIOS, ours, theirs, strict=True):
        expected = committed(kafka, their_group, partitions)
        assert committed(kafka, our_group, partitions) == expected, scenario
    assert committed(kafka, ours[0], partitions) == [3, 0, 0, 0], "the comparison compares something"


def test_internal_topics_are_those_of_kafkas_own_tool(
    kafka: str, topic: str, topic_name: Any, create_topic: Any, kafka_admin: Any
) -> None:
    groups = topic_name("app"), topic_name("app")
    for group in groups:
        for name in ("a-changelog", "b-repartition", "c-metadata", "d", "changelog"):
            create_topic(f"{group}-{name}")
        create_topic(f"{group}x-e-changelog")
        commit(kafka, group, {(topic, 0): 7})
    done = reset(kafka, groups[0], "--input-topics", topic)
    assert done.exit_code == 0, done.output
    kafkas_own(kafka, [(groups[1], "--input-topics", topic)])
    names = kafka_admin.list_topics(timeout=30).topics
    ours, theirs = (
        {name.removeprefix(group) for name in names if name.startswith(group)} for group in groups
    )
    assert theirs == {"-c-metadata", "-d", "x-e-changelog"}
    assert ours - theirs == {"-metadata", "-runs", "-changelog"}, "our protocol's, and no name of ours"


# == a whole application


def counting(source: str, target: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    store = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    counted = builder.stream(source).group_by(lambda key, value: value).count(store=store)
    counted.to_stream().send_to(target, value_serde=serdes.int64())
    return builder.build()


@pytest.fixture
def counts(
    kafka: str, application_id: str, create_topic: Any, topic_name: Any, produce: Any, tmp_path: Path
) -> Application:
    """Counts words, with files, on two partitions; the first words are there."""
    source, target = create_topic(topic_name("words"), 2), create_topic(topic_name("counts"))
    produce(source, [("k", word) for word in ("a", "b", "a", "c", "a")])
    return Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=counting(source, target),
        settings={"state.dir": str(tmp_path), "lease.ms": 600_000},
    )


@dataclasses.dataclass
class Told:
    """What each run said, read by a plain client."""

    consume_all: Callable[..., Any]
    topic: str
    seen: int = 0

    def __call__(self) -> dict[str, int]:
        rows = self.consume_all(self.topic)
        rows, self.seen = rows[self.seen :], len(rows)
        return {row.key.decode(): int.from_bytes(row.value, "big") for row in rows}


@pytest.fixture
def told(counts: Application, consume_all: Any) -> Told:
    (target,) = counts.topology.plan(counts.application_id).outputs
    return Told(consume_all, target)


def source_of(application: Application) -> str:
    return application.topology.plan(application.application_id).inputs[0]


@pytest.fixture
def member(kafka: str, counts: Application, wait_until: Any) -> Iterator[Consumer]:
    """A plain consumer that has joined the application's group."""
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": counts.application_id, "client.id": "a-consumer"}
    )
    consumer.subscribe([source_of(counts)])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "the consumer to join")
    yield consumer
    consumer.close()


def test_same_output_comes_again_when_run_after_a_reset(
    kafka: str, counts: Application, told: Told, kafka_admin: Any
) -> None:
    app_id, words = counts.application_id, {"a": 3, "b": 1, "c": 1}
    counts.run("r1")
    assert told() == words
    before = committed(kafka, app_id, [TopicPartition(source_of(counts), n) for n in range(2)])
    topics = {*kafka_admin.list_topics(timeout=30).topics}
    dry = reset(kafka, app_id, "--input-topics", source_of(counts), "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "run r1" in dry.stdout
    assert committed(kafka, app_id, [TopicPartition(source_of(counts), n) for n in range(2)]) == before
    assert {*kafka_admin.list_topics(timeout=30).topics} == topics
    for _ in range(2):
        done = reset(kafka, app_id, "--input-topics", source_of(counts))
        assert done.exit_code == 0, done.output
        assert not {
            name
            for name in kafka_admin.list_topics(timeout=30).topics
            if name.endswith("-changelog") and name.startswith(app_id)
        }
        assert told() == {}
        summary = counts.run("r1")
        assert sum(task.restored for task in summary.tasks) == 0
        assert told() == words
    assert counts.run("r2").empty


def test_next_run_goes_on_when_only_stop_offsets_are_deleted(
    kafka: str, counts: Application, told: Told, produce: Any
) -> None:
    slice_ = counts.begin("r1")
    for group in range(2):
        counts.task(slice_, 0, group)
    refused = reset(kafka, counts.application_id, "--input-topics", source_of(counts))
    assert refused.exit_code == 1
    assert "run 'r1' of application" in refused.stderr and "is unfinished" in refused.stderr
    assert reset(kafka, counts.application_id, "--delete-stopoffsets").exit_code == 0
    produce(source_of(counts), [("k", "b")])
    counts.run("r2")
    assert told() == {"a": 3, "b": 2, "c": 1}


def test_driver_at_work_is_refused_and_superseded_when_forced(
    kafka: str, counts: Application, told: Told
) -> None:
    driver = Coordinator(counts.cluster, counts.checked)
    try:
        begun = driver.begin(
            "r1", counts.topology.plan(counts.application_id), owner="a driver", hold_lease=True
        )
        assert begun.slice is not None
        options = ["--input-topics", source_of(counts), "--delete-stopoffsets"]
        with LeaseRenewal(renew=driver.lease.renew, release=lambda: None, interval_seconds=0.5):
            refused = reset(kafka, counts.application_id, *options)
        assert refused.exit_code == 1
        assert "a driver works on run 'r1'" in refused.stderr
        driver.lease.renew()
        done = reset(kafka, counts.application_id, *options, "--force")
        assert done.exit_code == 0, done.output
        with pytest.raises(TaskFencedError):
            counts.task(begun.slice, 0, 0)
        with pytest.raises(RunSupersededError):
            driver.lease.renew()
    finally:
        driver.close()
    status = read_status(counts.cluster, counts.application_id)
    assert (status.lease, status.state.value) == (None, "new")
    assert told() == {}
    counts.run("r2")
    assert told() == {"a": 3, "b": 1, "c": 1}


def test_task_at_work_commits_nothing_when_a_reset_is_forced(
    kafka: str, counts: Application, told: Told
) -> None:
    """Its transaction holds output and offsets, and is one step from its end."""
    source, app_id = source_of(counts), counts.application_id
    counts.begin("r1")
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": app_id})
    task = Producer({"bootstrap.servers": kafka, "transactional.id": f"{app_id}-0_0", "log_level": 2})
    try:
        task.init_transactions(30)
        task.begin_transaction()
        task.produce(told.topic, b"1", b"zombie")
        offsets = [TopicPartition(source, n, 1) for n in range(2)]
        task.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        done = reset(kafka, app_id, "--input-topics", source, "--delete-stopoffsets", "--force")
        assert done.exit_code == 0, done.output
        with pytest.raises(KafkaException) as caught:
            task.commit_transaction(30)
        assert caught.value.args[0].name() == "_FENCED"
    finally:
        consumer.close()
        with suppress(KafkaException):  # a fenced producer says so once more
            task.close()
    assert committed(kafka, app_id, [TopicPartition(source, n) for n in range(2)]) == [0, 0]
    counts.run("r2")
    assert told() == {"a": 3, "b": 1, "c": 1}


def test_group_with_a_member_is_refused_and_overwritten_when_forced(
    kafka: str, counts: Application, member: Consumer, kafka_admin: Any
) -> None:
    source = source_of(counts)
    refused = reset(kafka, counts.application_id, "--input-topics", source, "--to-latest")
    assert refused.exit_code == 1
    assert "its consumer group has 1 member: a-consumer at 127.0.0.1" in refused.stderr
    partitions = [TopicPartition(source, n) for n in range(2)]
    before = committed(kafka, counts.application_id, partitions)
    done = reset(kafka, counts.application_id, "--input-topics", source, "--to-offset", "1", "--force")
    assert done.exit_code == 0, done.output
    assert "not removed: a-consumer" in done.stdout
    assert committed(kafka, counts.application_id, partitions) != before
    assert {*committed(kafka, counts.application_id, partitions)} <= {0, 1}


def test_wrong_password_is_one_line(sasl_bootstrap: str, broker: embedded.Broker, tmp_path: Path) -> None:
    settings = {**broker.sasl_config, "sasl.password": "wrong"}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    result = CliRunner().invoke(app, ["reset", "--application-id", "a", "--config-file", str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: the broker at {sasl_bootstrap} refused the credentials")
    assert result.stderr.count("\n") == 1
    assert "wrong" not in result.stderr
