"""What Kafka's own tools say of an application and its topics (``docs/reference/kafka-tools.md``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.integration.java.peer import KafkaClients
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("ends-at-stop-offsets", "no-transaction-stays-open")

Produce = Callable[..., None]
TEXT = serdes.string()
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
_CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def counted(
    source: str, middle: str, target: str, on_record: Callable[[Any], None] = lambda _: None
) -> Topology:
    """Through a user topic and a repartition topic into a store, with a changelog."""
    builder = KStreamBuilder()

    def key_of(_: str, value: str) -> str:
        on_record(value)
        return f"group-{len(value) % 3}"

    (
        builder.stream(source, key_serde=TEXT, value_serde=TEXT)
        .through(middle)
        .group_by(key_of, key_serde=TEXT, value_serde=TEXT)
        .count(store="counts")
        .to_stream()
        .send_to(target, key_serde=TEXT, value_serde=serdes.int64())
    )
    return builder.build()


def process_until_killed(
    bootstrap: str, application_id: str, topics: tuple[str, str, str], reached: Path
) -> None:
    """Be a process that stops for good in the middle of a transaction."""

    def on_record(value: str) -> None:
        while value == "stop":
            reached.touch()
            time.sleep(3600)

    application = crashing(bootstrap, application_id, counted(*topics, on_record))
    application.tasks(application.begin("run-1"))


def crashing(bootstrap: str, application_id: str, topology: Topology) -> Application:
    return Application(
        bootstrap=bootstrap,
        application_id=application_id,
        topology=topology,
        settings={"commit.every.records": 3},
    )


def rows(*values: str, partition: int = -1) -> list[dict[str, Any]]:
    return [{"key": value, "value": value, "partition": partition} for value in values]


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a table that a tool prints, by column."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    head = next(number for number, line in enumerate(lines) if len(line) > 2 and line[0].isidentifier())
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


@pytest.fixture
def topics(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> tuple[str, str, str]:
    """Input, intermediate and output topic."""
    return (
        create_topic(topic_name("in"), 2),
        create_topic(topic_name("middle"), 3),
        create_topic(topic_name("out"), 2),
    )


@pytest.mark.prove  # dev/test asks it once, and a client at each tail (kafka/test_task_runner.py)
def test_consumer_groups_shows_no_lag_when_each_of_several_runs_is_finished(
    kafka: str, application_id: str, topics: tuple[str, str, str], produce: Produce, java: KafkaClients
) -> None:
    source, middle, _ = topics
    application = Application(bootstrap=kafka, application_id=application_id, topology=counted(*topics))
    partitions = {(source, number) for number in range(2)} | {(middle, number) for number in range(3)}
    partitions |= {(f"{application_id}-counts-repartition", number) for number in range(3)}
    offsets: list[dict[tuple[str, int], int]] = []

    def lags() -> dict[tuple[str, int], str]:
        found = table(java.tool(_GROUPS, "--describe", "--group", application_id))
        offsets.append({(row["TOPIC"], int(row["PARTITION"])): int(row["CURRENT-OFFSET"]) for row in found})
        return {(row["TOPIC"], int(row["PARTITION"])): row["LAG"] for row in found}

    none = dict.fromkeys(partitions, "0")
    produce(source, rows(*"abc"))
    produce(source, rows("dd", "ee"), transactional_id=f"{source}-t")
    application.run("run-1")
    assert lags() == none, "after records and a committed transaction"
    produce(source, rows("void", "void", partition=0), transactional_id=f"{source}-t", abort=True)
    produce(middle, rows("outsider"))
    behind = lags()
    assert sum(int(lag) for lag in behind.values()) == 4, "two aborted records, their marker and a record"
    application.run("run-2")
    assert lags() == none, "after an abort in the input and a record of an outsider"
    assert application.run("run-3").empty
    assert lags() == none, "after an empty run"
    assert offsets[-1] == offsets[-2]
    produce(source, rows("void", partition=1), transactional_id=f"{source}-t", abort=True)
    assert application.run("run-4").empty
    assert lags() == none, "after a run in which nothing but an abort was new"


def test_console_consumer_prints_what_was_written_when_it_reads_committed_records(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Produce,
    java: KafkaClients,
) -> None:
    source, target = create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)
    written = [
        {"key": "k1", "value": "v1", "timestamp_ms": 1_362_787_200_000, "headers": [("from", b"JFK")]},
        {"key": "Zürich", "value": "東京", "timestamp_ms": 1_362_787_200_001},
        {"key": None, "value": "no key", "timestamp_ms": 1_362_787_200_002},
        {
            "key": "deleted",
            "value": None,
            "timestamp_ms": 1_362_787_200_003,
            "headers": [("a", b"1"), ("a", b"2")],
        },
    ]
    produce(source, written)
    builder = KStreamBuilder()
    builder.stream(source, key_serde=TEXT, value_serde=TEXT).send_to(target)
    Application(bootstrap=kafka, application_id=application_id, topology=builder.build()).run("run-1")
    produce(target, [("void", "never committed")], transactional_id=f"{target}-t", abort=True)
    produce(target, [("end", "end")])

    def printed(isolation: str, count: int) -> list[str]:
        shown = ("timestamp", "headers", "key")
        properties = [f"--formatter-property=print.{part}=true" for part in shown]
        told = java.tool(
            _CONSOLE, "--topic", target, "--from-beginning", "--isolation-level", isolation,
            "--max-messages", str(count), *properties,
        )  # fmt: skip
        return told.splitlines()

    committed = [
        "CreateTime:1362787200000\tfrom:JFK\tk1\tv1",
        "CreateTime:1362787200001\tNO_HEADERS\tZürich\t東京",
        "CreateTime:1362787200002\tNO_HEADERS\tnull\tno key",
        "CreateTime:1362787200003\ta:1,a:2\tdeleted\tnull",
    ]
    found = printed("read_committed", len(written) + 1)
    assert found[:-1] == committed
    assert found[-1].endswith("\tend\tend"), "and nothing between"
    assert any("never committed" in line for line in printed("read_uncommitted", len(written) + 2))


def test_transactions_finds_nothing_open_when_a_crashed_run_was_resumed(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    java: KafkaClients,
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    def states() -> dict[str, str]:
        found = table(java.tool(_TRANSACTIONS, "list"))
        names = [row for row in found if row["TransactionalId"].startswith(f"{application_id}-")]
        return {
            row["TransactionalId"].removeprefix(f"{application_id}-"): row["TransactionState"]
            for row in names
        }

    def open_starts(topic: str, count: int) -> set[str]:
        return {
            row["CurrentTransactionStartOffset"]
            for number in range(count)
            for row in table(
                java.tool(_TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", str(number))
            )
        }

    def hanging() -> list[dict[str, str]]:
        return table(
            java.tool(_TRANSACTIONS, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        )

    repartition = f"{application_id}-counts-repartition"
    written = {topics[1]: 3, topics[2]: 2, repartition: 3, f"{application_id}-counts-changelog": 3}
    produce(topics[1], rows(*"abcd", "stop", "e", partition=0))
    reached = tmp_path / "reached"
    process = get_context("spawn").Process(
        target=process_until_killed, args=(kafka, application_id, topics, reached), daemon=True
    )
    process.start()
    try:
        wait_until(lambda: reached.exists() and states()["1_0"] == "Ongoing", "the task's open transaction")
    finally:
        process.kill()
        process.join()
    assert states()["1_0"] == "Ongoing"
    assert open_starts(repartition, 3) - {"None"}, "the record after the last commit"
    application = crashing(kafka, application_id, counted(*topics))
    slice_ = application.begin("run-1", (0, 2))
    application.tasks(slice_)
    application.finish("run-1")
    produce(topics[0], rows(*"xyz"))
    application.run("run-2")
    assert application.run("run-3").empty
    ended = {"CompleteCommit", "CompleteAbort", "Empty"}
    assert set(states()) >= {"coordinator", "0_0", "1_0", "2_0"}
    assert set(states().values()) <= ended, states()
    for topic, count in written.items():
        assert open_starts(topic, count) <= {"None"}, topic
    assert not [row for row in hanging() if row["Topic"] in written]
