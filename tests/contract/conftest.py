"""The same suite on three clusters: in memory, in memory with varied timing, and a real broker."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    Isolation,
    ReaderPort,
    Record,
    TopicPartition,
    TopicSpec,
    WriterPort,
)
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.crossing import COLUMNS, WAYS, crossing

CLUSTERS = ("memory", "memory varied", "broker")
#: The same, and the broker with the ways by which records do not cross unless asked for.
CLUSTERS_AND_WAYS = (*CLUSTERS, *(f"broker, {way}" for way in WAYS[1:]))
#: The same as the first three, and the broker with writers as tasks have them under exactly once.
CLUSTERS_AND_BULK = (*CLUSTERS, *(["broker, in bulk"] if COLUMNS in WAYS else []))
_SECONDS = 30.0
#: Transaction markers are dated by the clock.
_EPOCH_MS = 1_700_000_000_000
_numbers = itertools.count()


@dataclass(kw_only=True)
class Contract:
    """A cluster, and clients that are closed after the test.

    :param in_bulk: whether transactional writers may send records without delivery reports.
    """

    cluster: ClusterPort
    clock: Clock
    bootstrap: str = ""
    in_bulk: bool = False
    group: str = field(default_factory=lambda: f"group-{next(_numbers)}-{uuid.uuid4().hex[:4]}")
    opened: list[Any] = field(default_factory=list)

    @cached_property
    def admin(self) -> AdminPort:
        self.opened.append(self.cluster.admin())
        return self.opened[-1]  # type: ignore[no-any-return]

    def topic(self, partitions: int = 1, *, name: str = "", **configs: str) -> str:
        name = name or f"contract-{next(_numbers)}-{uuid.uuid4().hex[:4]}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics([TopicSpec(name=name, partitions=partitions, configs=dotted)])
        return name

    def reader(self, isolation: Isolation = "read_committed", group: str = "") -> ReaderPort:
        reader = self.cluster.reader(group_id=group or self.group, isolation=isolation)
        self.opened.append(reader)
        return reader

    def writer(self, transactional_id: str | None = "", **more: Any) -> WriterPort:
        """A writer that has claimed its transactional id, the group's name unless given."""
        name = self.group if transactional_id == "" else transactional_id
        if self.in_bulk and name is not None:
            more.setdefault("bulk", True)
        writer = self.cluster.writer(transactional_id=name, **more)
        self.opened.append(writer)
        writer.init_transactions()
        return writer

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = self.clock.monotonic_seconds() + _SECONDS
        while not (value := condition()):
            if self.clock.monotonic_seconds() > deadline:
                pytest.fail(f"waited in vain for {what}")
            self.clock.sleep(0.02)
        return value

    def read(
        self, starts: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int], reader: ReaderPort
    ) -> tuple[dict[TopicPartition, list[Record]], dict[TopicPartition, int]]:
        """Read until each partition's end is told at or past its stop; records, and the ends told last."""
        reader.assign(starts)
        return self.go_on(stops, reader)

    def go_on(
        self, stops: Mapping[TopicPartition, int], reader: ReaderPort
    ) -> tuple[dict[TopicPartition, list[Record]], dict[TopicPartition, int]]:
        """Read on, as :meth:`read`."""
        records: dict[TopicPartition, list[Record]] = {tp: [] for tp in stops}
        ends: dict[TopicPartition, int] = {}

        def reached() -> bool:
            fetched = reader.poll(max_records=100, timeout_seconds=0.1)
            for tp, some in fetched.records.items():
                records[tp] += some
            ends.update(fetched.ends)
            return all(ends.get(tp, -1) >= stop for tp, stop in stops.items())

        self.until(reached, f"the ends {dict(stops)}, told were {ends}")
        return records, ends

    def values(self, tp: TopicPartition, stop: int, isolation: Isolation = "read_committed") -> list[Any]:
        """The values a new reader sees of a partition up to its end, which is at least ``stop``."""
        records, _ = self.read({tp: 0}, {tp: stop}, self.reader(isolation))
        return [record.value() for record in records[tp]]

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Last stable offset and high watermark."""
        return (
            self.admin.end_offsets([tp], isolation="read_committed")[tp],
            self.admin.end_offsets([tp], isolation="read_uncommitted")[tp],
        )

    @contextmanager
    def member(self, topic: str, *, protocol: str) -> Iterator[str]:
        """Have a plain consumer join the group, and return its client id."""
        if isinstance(self.cluster, InMemoryKafka):
            self.cluster.join_group(self.group, "a-consumer")
            yield "a-consumer"
            self.cluster.leave_group(self.group)
            return
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": "a-consumer",
                "group.protocol": protocol,
            }
        )
        try:
            consumer.subscribe([topic])
            self.until(lambda: consumer.poll(0.1) or consumer.assignment(), "the consumer to join")
            yield "a-consumer"
        finally:
            consumer.close()

    def settled(self, tp: TopicPartition, high: int) -> None:
        """Wait until every transaction's marker is in the log, which then ends at ``high``."""
        self.until(lambda: self.ends(tp) == (high, high), f"{tp} to end at {high}, ends {self.ends(tp)}")


@pytest.fixture(scope="session")
def awake(kafka: str) -> str:
    """The broker, with its own topics made: a writer whose request waits for that is suspect, rightly."""
    cluster = KafkaCluster({"bootstrap.servers": kafka})
    reader, writer = cluster.reader(group_id="awake"), cluster.writer(transactional_id="awake")
    reader.committed([TopicPartition("awake", 0)])
    writer.init_transactions()
    reader.close()
    writer.close()
    return kafka


@pytest.fixture(params=CLUSTERS)
def contract(request: pytest.FixtureRequest) -> Iterator[Contract]:
    yield from made_contract(request)


def made_contract(request: pytest.FixtureRequest) -> Iterator[Contract]:
    """The fixture, for suites with parameters of their own."""
    name, _, way = request.param.partition(", ")
    in_bulk = way == "in bulk"
    with crossing(COLUMNS if in_bulk else way) if way else nullcontext():
        yield from _made_contract(request, name, in_bulk=in_bulk)


def _made_contract(request: pytest.FixtureRequest, name: str, *, in_bulk: bool) -> Iterator[Contract]:
    if name == "broker":
        bootstrap = request.getfixturevalue("awake")
        cluster: ClusterPort = KafkaCluster({"bootstrap.servers": bootstrap})
        made = Contract(cluster=cluster, clock=SystemClock(), bootstrap=bootstrap, in_bulk=in_bulk)
    else:
        random = Random(request.node.name) if "varied" in name else None
        memory = InMemoryKafka(clock=ManualClock(now_ms=_EPOCH_MS), random=random)
        made = Contract(cluster=memory, clock=memory.clock)
    yield made
    for client in made.opened:
        client.close()
