"""Topics under state that grow while records flow: an application on the real broker, with producers as users
have them, and the same records on topics in memory that never grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.growth import grow_topic
from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan
from airflow_kstreams.batch.inspect.status import RunStatus, read_status
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import (
    KStreamBuilder,
    LinearHashPartitioner,
    SlidingWindow,
    Topology,
    partition_of_key,
    serdes,
)
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.faults import Interceptor
from tests.support.kafka.in_process import Application, tasks_of

Consume = Callable[..., list[Any]]
#: What an output says, by key.
Told = dict[str, list[bytes]]
#: How many partitions the topics have at first.
FIRST = 4
KEYS = [f"carrier-{number}" for number in range(24)]
_INPUTS, OUTPUTS = ("flights", "delays"), ("listed", "counted", "met")
_TEXT, _JSON = serdes.string(), serdes.json()
_STEP_MS, _WINDOW_MS = 10, 300


@dataclass(frozen=True)
class Topics:
    """The topics of one application."""

    flights: str = "flights"
    delays: str = "delays"
    listed: str = "listed"
    counted: str = "counted"
    met: str = "met"

    @classmethod
    def named(cls, name: Callable[[str], str]) -> Topics:
        """Return topics under names that nothing else has."""
        return cls(*(name(each) for each in (*_INPUTS, *OUTPUTS)))

    def topology(self) -> Topology:
        """All values of each key in the order of processing, how many there were, and who met whom."""
        builder = KStreamBuilder(default_key_serde=_TEXT, default_value_serde=_JSON)
        flights, delays = builder.stream(self.flights), builder.stream(self.delays)
        grouped = flights.group_by_key()
        grouped.aggregate(
            list, lambda _, value, so_far: [*so_far, value], store="listed"
        ).to_stream().send_to(self.listed)
        grouped.count(store="counted").to_stream().send_to(self.counted)
        window = SlidingWindow(size_ms=_WINDOW_MS, grace_ms=0)
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


class _Watchful(SystemClock):
    """Looks again soon, where the command would wait."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.3))


class Story:
    """What was sent, on topics that grow and on topics that do not.

    :param kafka: where the broker is.
    :param topics: of the application; they are made.
    :param kind: how producers place keys: ``linear``, or ``modulo`` as Kafka's default partitioner does.
    """

    def __init__(
        self,
        kafka: str,
        application_id: str,
        *,
        topics: Topics,
        kind: str,
        create_topic: Callable[..., str],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.topics = topics
        self.still = InMemoryKafka()
        for name in _INPUTS:
            create_topic(getattr(topics, name), FIRST)
            self.still.create_topic(name, partitions=FIRST)
        for name in OUTPUTS:
            create_topic(getattr(topics, name), 1)
            self.still.create_topic(name)
        self.app = Application(
            bootstrap=kafka,
            application_id=application_id,
            topology=topics.topology(),
            settings={"settle.ms": 100, **(settings or {})},
        )
        self.producers = Producers(kafka, kind)
        #: By key, in the order in which they were sent, to each of the inputs.
        self.sent: dict[str, list[int]] = {key: [] for key in KEYS}
        self.summaries: list[RunSummary] = []

    @property
    def status(self) -> RunStatus:
        """What ``airflow-kstreams status`` shows."""
        return read_status(self.app.cluster, self.app.application_id)

    @property
    def processors(self) -> int:
        """How many processors the state has."""
        return len(self.status.grouped[0].by_group)

    def flow(self) -> None:
        """Send a flight and a delay of every key."""
        for key in KEYS:
            value = sum(map(len, self.sent.values())) + 1
            self.sent[key].append(value)
            at_ms = 1_000 + value * _STEP_MS
            for topic, name in ((self.topics.flights, "flights"), (self.topics.delays, "delays")):
                self.producers.send(topic, key, value, at_ms)
                where = partition_of_key(key.encode(), FIRST, FIRST)
                self.still.append(name, b"%d" % value, key.encode(), partition=where, timestamp_ms=at_ms)
        self.producers.flush()

    def run(self, *, flowing: bool = True, meanwhile: Callable[[], object] | None = None) -> RunSummary:
        """One run; records come after its begin and before its end, too.

        :param meanwhile: done when half of the tasks are.
        """
        slice_ = self.app.begin(f"run-{len(self.summaries) + 1}")
        if flowing:
            self.flow()
        tasks = tasks_of(slice_)
        for number, task in enumerate(tasks):
            if meanwhile is not None and number == len(tasks) // 2:
                meanwhile()
            self.app.task(slice_, task.subtopology, task.group)
        self.summaries.append(self.app.finish(slice_.run_id))
        return self.summaries[-1]

    def run_until_read(self) -> None:
        """Run until everything that was sent is processed."""
        for _ in range(8):
            if not sum(self.status.lag.values()):
                return
            self.run(flowing=False)
        pytest.fail(f"records are left: {self.status.lag}")

    def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions; a second time changes nothing."""
        assert grow_topic(self.app.cluster, self.app.checked, topic=topic, count=count).before < count
        assert grow_topic(self.app.cluster, self.app.checked, topic=topic, count=count).done

    def copy(
        self, count: int, *, follow: bool = False, interceptor: Interceptor | None = None
    ) -> ProcessorPlan:
        """Copy state for more processors, as the command does."""
        cluster = self.app.cluster if interceptor is None else FaultyCluster(self.app.cluster, interceptor)
        with ProcessorExpansion(
            cluster, self.app.checked, subtopology=None, count=count, clock=_Watchful()
        ) as tool:
            return tool.run(CatchUpOptions(follow=follow, parallel=1))

    def differences(self, consume_all: Consume) -> dict[str, object]:
        """Return what differs from an application on topics that never grew, by output topic."""
        Application(on=self.still, application_id="still", topology=Topics().topology()).run("once")
        pairs = [(name, getattr(self.topics, name)) for name in OUTPUTS]
        told = {name: told_by_key(name, self.still, topic, consume_all) for name, topic in pairs}
        return {name: two for name, two in told.items() if two[0] != two[1] or {*two[1]} != {*KEYS}}


def told_by_key(name: str, still: InMemoryKafka, topic: str, consume_all: Consume) -> tuple[Told, Told]:
    """Return what an output says of each key that must be equal: where topics grew, and where they did not.

    :param name: of the output, where topics did not grow.
    :param topic: its name where they did.
    """
    grown = by_key((row.key, row.value) for row in consume_all(topic))
    alike = by_key((record.key(), record.value()) for record in still.records(name))
    # Of records that meet, that of the other topic may be read first; a store tells of a key once per commit.
    what: Callable[[list[bytes]], list[bytes]] = sorted if name == "met" else itemgetter(slice(-1, None))
    return {key: what(each) for key, each in grown.items()}, {key: what(each) for key, each in alike.items()}


def by_key(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Told:
    found: Told = defaultdict(list)
    for key, value in pairs:
        found[(key or b"").decode()].append(value or b"")
    return found
