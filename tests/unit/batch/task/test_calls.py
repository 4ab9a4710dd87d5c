"""What a task's loop does while calls run: commits come, time without progress is bounded, and a continuous
run finds its commit points.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorRecord, Topology, serdes
from airflow_kstreams.streams.errors import CallsStuckError, ConfigError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("running-calls-hold-no-commit", "failed-calls-have-an-outcome")


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def calling(function: Callable[..., Any], **options: Any) -> Topology:
    made = builder()
    made.stream("in").map_values_async(function, name="ask", **options).send_to("out")
    return made.build()


class JumpingClock(SystemClock):
    """The machine's clock, whose monotonic time a test lets jump."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.ahead_seconds


class Held:
    """A function that does not answer one record until it is let go."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.began, self.go_on = threading.Event(), threading.Event()

    async def __call__(self, value: int) -> int:
        if value == self.number:
            self.began.set()
            await asyncio.to_thread(self.go_on.wait)
        return value


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    for number in range(5):
        kafka.append("in", b"%d" % number, b"k", timestamp_ms=number)
    return kafka


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held(3)
    yield held
    held.go_on.set()


def application(kafka: InMemoryKafka, topology: Topology, clock: Any, **settings: Any) -> Application:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Application(application_id="app", topology=topology, on=kafka, clock=clock, settings=named)


def test_records_before_are_committed_while_a_call_runs(kafka: InMemoryKafka, held: Held) -> None:
    committed = threading.Event()

    def look(_: object) -> None:
        if len(kafka.values("out")) == held.number:
            committed.set()

    kafka.observe(look)
    run = application(kafka, calling(held), SystemClock(), commit_interval_ms=1)
    thread = threading.Thread(target=run.run, args=("run-1",))
    thread.start()
    seen = committed.wait(timeout=20)
    held.go_on.set()
    thread.join()
    assert seen, "nothing was committed while the call ran"
    assert kafka.values("out") == [b"%d" % number for number in range(5)]


class Ticking(Processor):
    """Passes records on, and forwards something every second."""

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(1_000, clock="wall_clock", callback=lambda _: context.forward("k", -1))

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)


def test_task_comes_to_its_end_when_each_call_for_a_timer_takes_longer_than_its_interval(
    kafka: InMemoryKafka,
) -> None:
    ticks: list[int] = []

    async def slow(value: int) -> int:
        if value == -1:
            assert len(ticks) < 20, "the task waits for calls of timers, and is never done"
            ticks.append(value)
        kafka.clock.sleep(2)
        await asyncio.sleep(0.15)
        return value

    made = builder()
    called = made.stream("in").process(Ticking).map_values_async(slow, name="slow")
    called.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    application(kafka, made.build(), kafka.clock, commit_interval_ms=1).run("run-1")
    values = kafka.values("out")
    assert [value for value in values if value != b"-1"] == [b"%d" % number for number in range(5)]
    assert values.count(b"-1") == len(ticks) > 0


@pytest.mark.error_example("KS-TASK-006")
@pytest.mark.remedy("loop.TaskLoop._stuck_calls")
def test_task_fails_and_names_the_call_when_nothing_is_released_for_too_long(
    kafka: InMemoryKafka, held: Held
) -> None:
    clock = JumpingClock()
    run = application(kafka, calling(held), clock, run_stall_timeout_ms=600_000, task_max_attempts=1)

    failed = threading.Event()

    def let_time_pass() -> None:
        held.began.wait()
        while not failed.wait(0.02):
            clock.ahead_seconds += 601.0

    thread = threading.Thread(target=let_time_pass)
    thread.start()
    try:
        with pytest.raises(CallsStuckError, match=r"for 600000 ms .*: in-0@3 waits for 1 call of ask"):
            run.run("run-1")
    finally:
        held.began.set()
        failed.set()
        thread.join()
    held.go_on.set()
    run.run("run-1", (0, 2))
    assert kafka.values("out") == [b"%d" % number for number in range(5)]


def test_node_is_refused_when_its_calls_may_take_longer_than_a_run_bears(kafka: InMemoryKafka) -> None:
    topology = calling(Held(-1), timeout_ms=900_000)
    with pytest.raises(ConfigError, match=r"timeout_ms=900000, .*run\.stall\.timeout\.ms=900000"):
        application(kafka, topology, kafka.clock).run("run-1")


def counted_twice(mapped: Callable[[Any], Any]) -> Topology:
    made = builder()
    first = made.stream("in").group_by_key().count(store="first").to_stream()
    second = mapped(first).group_by_key(value_serde=serdes.int64()).count(store="second")
    second.to_stream().send_to("out", value_serde=serdes.int64())
    return made.build()


def test_continuous_run_commits_and_goes_on_as_a_batch_when_a_table_stands_above_a_call() -> None:
    async def same(count: int) -> int:
        await asyncio.sleep(0.001)
        return count

    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    app = SwitchingApplication(
        topology=counted_twice(lambda stream: stream.map_values_async(same, max_in_flight=3)),
        cluster=kafka,
        clock=kafka.clock,
        settings={"commit.interval.ms": 1},
    )
    running = app.run_continuously("continuous-1")
    commits = []
    for _ in range(10):
        for number in range(20):
            kafka.append("in", b"1", b"k%d" % (number % 4))
        running.rounds(10)
        commits.append(len(kafka.values("out")))
    running.stop()
    assert commits[-1] > commits[0] > 0, "no commit came while the run went on"
    kafka.append("in", b"1", b"k0")
    app.batch("run-1")
    newest = {record.key(): record.value() for record in kafka.records("app-first-changelog")}
    assert newest[b"k0"] == (51).to_bytes(8, "big")
    updates = [record.key() for record in kafka.records("app-second-changelog")]
    second = {record.key(): record.value() for record in kafka.records("app-second-changelog")}
    assert {*updates} == {b"k0", b"k1", b"k2", b"k3"}
    assert all(int.from_bytes(value or b"", "big") > 1 for value in second.values())
