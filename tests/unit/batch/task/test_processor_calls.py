"""Processors with calls in a task's loop: a run that one of them fails is repeated, and threads and event
loops are those of production.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    Topology,
    serdes,
)
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("processors-forward-in-order")

RECORDS, THREADS = 24, 3
FIRST = StoreSpec(name="first", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    for number in range(RECORDS):
        kafka.append("in", b"%d" % number, b"k%d" % (number % 3), timestamp_ms=number)
    return kafka


def around(step: Any) -> Topology:
    """count -> a processor -> count."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store=FIRST).to_stream()
    given = {"key_serde": serdes.string(), "value_serde": serdes.json()}
    stream = step(counts)
    stream.send_to("out", **given)
    stream.group_by_key(**given).count(store="second")
    return builder.build()


class Charge(Processor):
    """What the calls are compared with."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)
        self.context.forward("all", [record.key, record.value])


class Service:
    """Takes each call once; it is away for some for a while."""

    def __init__(self) -> None:
        self.away = {3, 5, 6}
        self.calls: list[str] = []
        self.effects: dict[str, Any] = {}


class Charging(AsyncProcessor):
    def __init__(self, service: Service) -> None:
        self.service = service

    def init(self, context: AsyncProcessorContext) -> None:
        self.context = context

    async def process(self, record: ProcessorRecord) -> None:
        context = self.context
        context.forward(record.key, record.value)
        await asyncio.sleep(record.value % 3 / 1_000)
        self.service.calls.append(context.idempotency_key)
        if record.value in self.service.away:
            raise ConnectionError
        self.service.effects.setdefault(context.idempotency_key, (record.key, record.value))
        await asyncio.to_thread(context.forward, "all", [record.key, record.value])


def left(kafka: InMemoryKafka) -> Any:
    changelogs = {
        name: {record.key(): record.value() for record in kafka.records(f"app-{name}-changelog")}
        for name in ("first", "second")
    }
    return [(record.key(), record.value(), record.timestamp()) for record in kafka.records("out")], changelogs


def application(kafka: InMemoryKafka, topology: Topology, **settings: Any) -> Application:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Application(application_id="app", topology=topology, on=kafka, clock=kafka.clock, settings=named)


def test_a_run_that_failing_calls_ended_several_times_leaves_what_a_plain_processor_leaves(
    kafka: InMemoryKafka,
) -> None:
    other = InMemoryKafka()
    other.create_topic("in")
    other.create_topic("out")
    for record in kafka.records("in"):
        other.append("in", record.value(), record.key(), timestamp_ms=record.timestamp()[1])
    settings = {"commit_every_records": 2, "task_max_attempts": 1}
    application(other, around(lambda s: s.process(Charge)), **settings).run("run-1")

    service = Service()
    topology = around(lambda s: s.process_async(lambda: Charging(service), name="charge", max_in_flight=4))
    failures = 0
    while service.away:
        with pytest.raises(RecordError, match="at node 'charge'"):
            application(kafka, topology, **settings).run("run-1")
        failures += 1
        service.away.discard(min(service.away))
    application(kafka, topology, **settings).run("run-1")
    assert failures == 3
    assert left(kafka) == left(other)
    assert len(service.calls) > len(service.effects) == RECORDS


class Together(Processor):
    """Waits in its call until as many others do."""

    threads = True

    def __init__(self) -> None:
        self.barrier = threading.Barrier(THREADS)

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        if record.value < RECORDS - RECORDS % THREADS:
            self.barrier.wait(timeout=60)
        self.context.forward(
            record.key, [record.value, threading.current_thread().name.startswith("kstreams")]
        )


def test_threads_of_a_task_share_the_instance_of_a_processor_that_declares_them(kafka: InMemoryKafka) -> None:
    made: list[Together] = []

    class Noted(Together):
        def init(self, context: ProcessorContext) -> None:
            made.append(self)
            super().init(context)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").process(Noted).send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    application(kafka, builder.build(), num_threads_per_task=THREADS, num_stream_threads=THREADS).run("run-1")
    assert kafka.values("out") == [b"[%d,true]" % number for number in range(RECORDS)]
    assert len(made) == 1
