"""Topics under state grow by the command while records flow: whole runs on the real broker, task by task,
with producers as users have them, against the same topology on topics that never grew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.batch.expand.partitions import PartitionExpansion
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import (
    KStreamBuilder,
    LinearHashPartitioner,
    SlidingWindow,
    Topology,
    partition_of_key,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

Consume = Callable[..., list[Any]]
FIRST = 4
KEYS = [f"carrier-{number}" for number in range(24)]
TEXT, JSON = serdes.string(), serdes.json()
STEP_MS, WINDOW_MS = 10, 300


@dataclass(frozen=True)
class Topics:
    """The topics of one application."""

    flights: str = "flights"
    delays: str = "delays"
    listed: str = "listed"
    counted: str = "counted"
    met: str = "met"

    def topology(self) -> Topology:
        """All values of each key in the order of processing, how many there were, and who met whom."""
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)
        flights, delays = builder.stream(self.flights), builder.stream(self.delays)
        grouped = flights.group_by_key()
        grouped.aggregate(
            list, lambda _, value, so_far: [*so_far, value], store="listed"
        ).to_stream().send_to(self.listed)
        grouped.count(store="counted").to_stream().send_to(self.counted)
        window = SlidingWindow(size_ms=WINDOW_MS, grace_ms=0)
        met = flights.with_window(window).join(
            delays.with_window(window), lambda flight, delay: [flight, delay], name="met"
        )
        met.send_to(self.met)
        return builder.build()


class Producers:
    """One that hashes linearly, or Kafka's default one, which is restarted to see a growth."""

    def __init__(self, bootstrap: str, kind: str) -> None:
        self._config = {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "acks": "all",
            "linger.ms": 0,
        }
        self._kind = kind
        self._producer = Producer(self._config)
        self._partitioners: dict[str, LinearHashPartitioner] = {}

    def restart(self) -> None:
        """Let Kafka's default partitioner see new partitions: everything is acknowledged before."""
        self.close()
        self._producer = Producer(self._config)

    def send(self, topic: str, key: str, value: int, timestamp_ms: int) -> None:
        data, where = key.encode(), -1
        if self._kind == "linear":
            partitioner = self._partitioners.setdefault(
                topic, LinearHashPartitioner({topic: FIRST}, self._producer, refresh_seconds=0)
            )
            where = partitioner.partition(topic, data)
        self._producer.produce(topic, b"%d" % value, data, partition=where, timestamp=timestamp_ms)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def close(self) -> None:
        self.flush()
        self._partitioners.clear()


@dataclass
class Story:
    """What was sent, on topics that grow and on topics that do not."""

    app: Application
    topics: Topics
    producers: Producers
    still: InMemoryKafka = field(default_factory=InMemoryKafka)
    sent: int = 0
    runs: int = 0

    def flow(self) -> None:
        """Send a flight and a delay of every key."""
        for key in KEYS:
            self.sent += 1
            at_ms = 1_000 + self.sent * STEP_MS
            for topic, name in ((self.topics.flights, "flights"), (self.topics.delays, "delays")):
                self.producers.send(topic, key, self.sent, at_ms)
                where = partition_of_key(key.encode(), FIRST, FIRST)
                self.still.append(name, b"%d" % self.sent, key.encode(), partition=where, timestamp_ms=at_ms)
        self.producers.flush()

    def run(self, *, flowing: bool = True) -> RunSummary:
        """One run; records come after its begin and before its end, too."""
        self.runs += 1
        slice_ = self.app.begin(f"run-{self.runs}")
        if flowing:
            self.flow()
        self.app.tasks(slice_)
        return self.app.finish(slice_.run_id)

    def grow(self, topic: str, count: int) -> None:
        with PartitionExpansion(self.app.cluster, self.app.checked, topic=topic, count=count) as tool:
            assert tool.run().before < count
        with PartitionExpansion(self.app.cluster, self.app.checked, topic=topic, count=count) as tool:
            assert tool.run().done


def by_key(pairs: Iterator[tuple[bytes | None, bytes | None]]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for key, value in pairs:
        found[(key or b"").decode()].append(value or b"")
    return found


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("linear", [(6, None), (8, 7)]),
        ("modulo", [(8, 8), (24, None)]),
    ],
)
def test_nothing_tells_that_topics_grew(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Consume,
    kind: str,
    steps: list[tuple[int, int | None]],
) -> None:
    topics = Topics(*(topic_name(name) for name in ("flights", "delays", "listed", "counted", "met")))
    for topic in (topics.flights, topics.delays):
        create_topic(topic, FIRST)
    for topic in (topics.listed, topics.counted, topics.met):
        create_topic(topic, 1)
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=topics.topology(),
        settings={"settle.ms": 100},
    )
    story = Story(app, topics, Producers(kafka, kind))
    for name in ("flights", "delays"):
        story.still.create_topic(name, partitions=FIRST)
    for name in ("listed", "counted", "met"):
        story.still.create_topic(name)
    story.flow()
    summaries = [story.run()]
    waited = set[str]()
    for flights, delays in steps:
        story.flow()
        story.grow(topics.flights, flights)
        if delays is not None:
            story.grow(topics.delays, delays)
        story.flow()  # by a producer that does not know yet, unless it looks
        story.producers.restart()
        story.flow()
        summaries.append(story.run())
        waited |= {str(each.partition) for each in read_status(app.cluster, application_id).waiting}
    while sum(read_status(app.cluster, application_id).lag.values()):
        assert len(summaries) < 12
        summaries.append(story.run(flowing=False))
    story.producers.close()

    Application(on=story.still, application_id="still", topology=Topics().topology()).run("once")
    for name in ("listed", "counted", "met"):
        rows = consume_all(getattr(topics, name))
        grown = by_key((row.key, row.value) for row in rows)
        still = by_key((record.key(), record.value()) for record in story.still.records(name))
        if name == "met":
            # Of two records that meet, that of the other topic may be read first.
            grown, still = ({key: sorted(met) for key, met in each.items()} for each in (grown, still))
        else:
            # A store tells of a key once per commit.
            grown, still = ({key: told[-1:] for key, told in each.items()} for each in (grown, still))
        assert grown == still, name
    assert {*by_key((r.key(), r.value()) for r in story.still.records("met"))} == {*KEYS}
    assert [run.counts and run.counts.by("late") for run in summaries] == [0] * len(summaries)
    assert len(waited) >= 4
    status = read_status(app.cluster, application_id)
    assert status.grouped[0].grown[topics.flights].kinds == (kind,)
    assert len(status.grouped[0].by_group) == FIRST
    assert [each for each in status.waiting if each.ahead] == []


def test_mapping_of_the_oracle_is_the_first_one() -> None:
    """Four partitions hold keys of every one of them, and each growth moves some."""
    moved: Mapping[str, set[int]] = {
        key: {partition_of_key(key.encode(), FIRST, count) for count in (4, 6, 8)} for key in KEYS
    }
    assert {min(numbers) for numbers in moved.values()} == {0, 1, 2, 3}
    assert sum(len(numbers) > 1 for numbers in moved.values()) >= 6
