"""Error handlers on the real broker: a dead letter commits with everything else the task did."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import ConfigError, RecordError
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.in_process import Application
from tests.unit.cli.test_app import invoke

pytestmark = pytest.mark.promise("dead-letters-come-back-once")

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
DEAD = {
    "deserialization.exception.handler": "dead-letter",
    "processing.exception.handler": "dead-letter",
}


def inverses(
    source: str,
    target: str,
    on_value: Callable[[int], None] = lambda _: None,
    by: Callable[[int], int] = lambda value: 12 // value,
    *,
    windowed: bool = False,
) -> Topology:
    def inverse(value: int) -> int:
        on_value(value)
        return by(value)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    values = builder.stream(source).map_values(inverse)
    values.send_to(target)
    if windowed:
        values.group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="by-time")
    return builder.build()


@pytest.fixture
def source(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("in"), 1)


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 1)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_bad_records_become_dead_letters_with_their_bytes_when_the_run_goes_on(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    guarantee: str,
) -> None:
    produce(source, [("a", b"3"), ("b", b"no number"), ("c", b"0"), ("d", b"4")])
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "processing.guarantee": guarantee},
    )
    summary = application.run("run-1")
    assert [row.json() for row in consume_all(target)] == [4, 3]
    letters = consume_all(f"{application_id}-dead-letter")
    assert [(row.key, row.value) for row in letters] == [(b"b", b"no number"), (b"c", b"0")]
    assert [dict(row.headers)["__streams.errors.offset"] for row in letters] == [b"1", b"2"]
    assert [task.records_dead_lettered for task in summary.tasks] == [2]


@pytest.mark.promise("late-letters-are-counted")
def test_mended_application_processes_them_when_dead_letters_were_brought_back(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    target: str,
    produce: Produce,
    consume_all: Consume,
) -> None:
    source = create_topic(topic_name("in"), 3)
    rows = [
        {
            "key": f"k{n}",
            "value": str(n % 3).encode(),
            "headers": [("n", str(n).encode())],
            "partition": n % 3,
        }
        for n in range(90)
    ]
    produce(source, [{**row, "timestamp_ms": 1_000 + n} for n, row in enumerate(rows)])
    settings = {**DEAD, "initial.partitions": f"{source}=3"}
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target, windowed=True),
        settings=settings,
    )
    application.run("run-1")
    assert len(consume_all(f"{application_id}-dead-letter")) == 30

    def replay(replay_id: str) -> Replay:
        return DeadLetterReplay(application.cluster, application.checked, replay_id=replay_id).run()

    options = ("--application-id", application_id, "--bootstrap-server", kafka, "--dry-run")
    said = invoke("dead-letters", "replay", *options).stdout
    assert "Too late: 27 of these records, dated where all windows of 'by-time' have closed" in said
    first, again, second = replay("r1"), replay("r1"), replay("r2")

    assert first.late == {"by-time": 27}
    assert first.records_per_topic == {source: 30}
    assert again == first
    assert second.records == 0
    consumed, back = consume_all(source)[:30], consume_all(source)[30:60]
    assert [(row.partition, row.value) for row in (*consumed, *back)] == [(0, b"0")] * 60
    for old, new in zip(consumed, back, strict=True):
        *headers, (name, place) = new.headers
        assert (old.key, old.timestamp_ms, [*old.headers]) == (new.key, new.timestamp_ms, headers)
        assert (name, place.startswith(f"{source}-0@{old.offset}/".encode())) == (
            "__kstreams.first.place",
            True,
        )
    group = application.cluster.reader(group_id=f"{application_id}-dead-letter-replay")
    try:
        partition = TopicPartition(f"{application_id}-dead-letter", 0)
        assert group.committed([partition])[partition].offset >= 30
    finally:
        group.close()
    mended = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target, by=lambda value: -1, windowed=True),
        settings=settings,
    )
    summary = mended.run("run-2")
    assert summary.records_in == 30
    assert summary.counts is not None
    assert summary.counts.by("late") == 27
    assert sum(row.json() == -1 for row in consume_all(target)) == 30


@pytest.mark.promise("unselected-letters-stay")
def test_letters_come_back_by_conditions_and_limits_when_the_command_asks_for_them(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Several transactions, and marks in several blocks.
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 10)
    monkeypatch.setattr("airflow_kstreams.batch.protocol.replay_records.BLOCK_OFFSETS", 16)
    airlines = ("UA", "AA", "DL")
    produce(
        source, [(f"k{n}", b'{"airline": "%s", "n": %d}' % (airlines[n % 3].encode(), n)) for n in range(60)]
    )
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=inverses(source, target), settings=DEAD
    )
    application.run("run-1")

    def command(name: str, *options: str) -> str:
        result = invoke(
            "dead-letters", name, "--application-id", application_id, "--bootstrap-server", kafka, *options
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    def back() -> list[int]:
        return [msgspec.json.decode(row.value)["n"] for row in consume_all(source)[60:]]

    assert "60 wait for a replay, 0 were replayed" in command("list")
    command("replay", "--where", "value.airline=AA", "--limit", "15")
    assert back() == [3 * n + 1 for n in range(15)]
    command("replay", "--where", "value.airline=AA")
    assert sorted(back()) == [3 * n + 1 for n in range(20)]
    assert "40 wait for a replay, 20 were replayed" in command("list", "--limit", "0")
    command("replay", "--limit", "7")
    command("replay")
    assert sorted(back()) == list(range(60))
    letter = command("show", f"{source}-0@4", "--value-serde", "json")
    assert "{'airline': 'AA', 'n': 4}" in letter
    assert re.search(r"replay +replayed", letter)
    # What came back fails again, and is new letters.
    application.run("run-2")
    assert "60 wait for a replay, 60 were replayed" in command("list")


def test_dead_letter_is_not_there_when_its_transaction_was_aborted(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    produce(source, [("a", b"0"), ("b", b"1")])
    broken = [True]

    def breaks_at_one(value: int) -> None:
        if value == 1 and broken:
            raise RecordError("power cut", topic="", partition=-1, offset=-1, node="")

    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target, breaks_at_one),
        settings=DEAD,
    )
    slice_ = application.begin("run-1")
    with pytest.raises(RecordError, match="power cut"):
        application.tasks(slice_)
    assert consume_all(f"{application_id}-dead-letter") == []
    broken.clear()
    application.run("run-1", (0, 2))
    assert [row.value for row in consume_all(f"{application_id}-dead-letter")] == [b"0"]
    assert [row.json() for row in consume_all(target)] == [12]


def test_run_does_not_begin_when_the_named_dead_letter_topic_is_missing(
    kafka: str, application_id: str, source: str, target: str
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "errors.dead.letter.queue.topic.name": f"{application_id}-nowhere"},
    )
    with pytest.raises(ConfigError, match=r"nowhere' does not exist.*(?s:.)*topics create "):
        application.begin("run-1")


def test_run_does_not_begin_when_the_topology_reads_its_own_dead_letters(
    kafka: str, application_id: str, source: str, target: str
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=inverses(source, target),
        settings={**DEAD, "errors.dead.letter.queue.topic.name": source},
    )
    with pytest.raises(ConfigError, match="also read by the topology"):
        application.begin("run-1")
