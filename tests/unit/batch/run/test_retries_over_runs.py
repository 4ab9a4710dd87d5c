"""Retry topics as the engine has them, over several runs on the in-memory Kafka, each by the real driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import (
    CallContext,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    RetryPolicy,
    Topology,
    serdes,
)
from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.errors import OrphanedRecordsError
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt
from tests.support.kafka.parking_scene import ParkingScene

pytestmark = pytest.mark.promise("parked-records-end-no-run-late")


class Service:
    """Fails for the values that are in ``down``."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}

    async def ask(self, value: str, *, context: CallContext) -> str:
        self.calls[value] += 1
        self.keys.setdefault(value, set()).add(context.idempotency_key)
        if value in self.down:
            raise ConnectionError("away")
        return f"{value}!"

    def topology(self, **policy: Any) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        retry = RetryPolicy(**{"attempts": 10, "backoff_ms": 1_000, "jitter": 0, **policy})
        called = builder.stream("in").map_values_async(self.ask, order="key", retry=retry, name="enrich")
        called.send_to("out")
        return builder.build()


@pytest.fixture
def scene() -> ParkingScene:
    return ParkingScene(settings={"retry.run.budget.ms": 500})


def test_parked_records_are_processed_in_the_order_of_their_keys_by_a_later_run(scene: ParkingScene) -> None:
    service = Service()
    service.down = {"p1"}
    scene.send("a", "b")
    scene.send("p1", "p2", key="p", partition=1)
    scene.send("q", key="q", partition=1)

    first = scene.run("r1", service.topology())
    assert (first.state, first.parked) == ("completed_with_parked(2)", {"enrich": 2})
    assert scene.parked == {"enrich": {1: 2}}
    assert first.warnings == (), "what is parked is missing in no count"
    assert first.parked_due_ms is not None
    assert 0 < first.parked_due_ms - scene.kafka.clock.now_ms() <= 1_000
    assert sorted(scene.out) == ["a!", "b!", "q!"]

    scene.kafka.clock.sleep(60.0)
    assert scene.run("r2", service.topology()).state == "completed_with_parked(2)"
    assert scene.launched == ["0_1"]

    service.down = set()
    scene.kafka.clock.sleep(60.0)
    last = scene.run("r3", service.topology())
    assert (last.state, last.warnings) == ("completed", ()), "what comes back is too much in none"
    assert scene.launched == ["0_1"]
    assert [value for value in scene.out if value[0] == "p"] == ["p1!", "p2!"]
    assert sorted(scene.out) == ["a!", "b!", "p1!", "p2!", "q!"]
    assert len(service.keys["p1"]) == 1
    assert scene.run("r4", service.topology()).empty


def test_topology_without_the_node_is_refused_until_nothing_is_parked(scene: ParkingScene) -> None:
    service = Service()
    service.down = {"p1"}
    scene.send("p1", "p2")
    scene.run("r1", service.topology())
    with pytest.raises(OrphanedRecordsError, match="node 'enrich' of application 'app' has parked 2 records"):
        scene.run("r2", scene.topology(parks=False))
    service.down = set()
    scene.kafka.clock.sleep(60.0)
    scene.run("r2", service.topology())
    assert scene.run("r3", scene.topology(parks=False)).empty


class Closing(Processor):
    """Passes records on, forwards something now and then, and says in the end that it is closed."""

    def init(self, context: Any) -> None:
        self.context, self.ticks = context, 0
        context.schedule(400, clock="wall_clock", callback=self.tick)

    def tick(self, _: int) -> None:
        self.ticks += 1
        self.context.forward("tick", f"tick {self.ticks}")

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)

    def close(self) -> None:
        self.context.forward("closed", str(self.context.task_id))


class SlowTicks:
    """Calls that end when the task looks at them; a slow node's for ticks take more than a second."""

    patience_seconds = 0.0
    threads_replaced = 0

    def __init__(self, async_nodes: Sequence[AsyncNode], clock: Clock) -> None:
        self._clock = clock
        self._calls: list[tuple[float, Call]] = []

    def open(self) -> None: ...
    def hurry(self) -> None: ...
    def close(self) -> None: ...

    def start(self, call: Call) -> None:
        slow = call.async_node.name == "slow" and "tick" in call.value
        self._calls.append((self._clock.monotonic_seconds() + 1.2 * slow, call))

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        if self._calls:
            self._clock.sleep(0.1)
        now = self._clock.monotonic_seconds()
        ended = [call for at, call in self._calls if at <= now]
        self._calls = [(at, call) for at, call in self._calls if at > now]
        for call in ended:
            try:
                call.result = call.invoke()
            except ConnectionError as error:
                call.error = error
        return ended

    def thread_states(self) -> Sequence[ThreadState]:
        return ()


def closing() -> Topology:
    left = Counter({"a1": 1, "tick 4": 1})

    def ask(value: str) -> str:
        left[value] -= 1
        if left[value] >= 0:
            raise ConnectionError
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    retry = RetryPolicy(
        backoff_ms=1_000, multiplier=1, jitter=0, key_serde=serdes.string(), value_serde=serdes.string()
    )
    known: dict[str, Any] = {"key_serde": serdes.string(), "value_serde": serdes.string()}
    passed = builder.stream("in").process(Closing)
    asked = passed.map_values_async(ask, order="key", retry=retry, name="ask", threads=True)
    asked.map_values_async(str, threads=True, name="slow").send_to("out", **known)
    return builder.build()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_a_task_forwards_in_close_comes_once_when_it_dies_at_a_commit_while_it_stays_for_parked_records(
    after: bool,
) -> None:
    """Such a commit covers its stops, perhaps when nothing is parked any more, and is no sign that it is
    done.
    """

    def played(crashing: CrashingAt) -> ParkingScene:
        scene = ParkingScene(
            settings={"commit.interval.ms": 1, "transaction.timeout.ms": 10_000, "retry.run.budget.ms": 5_000}
        )
        scene.make_caller = partial(SlowTicks, clock=scene.kafka.clock)
        scene.send("a1")
        with suppress(Crash):
            scene.run("r1", closing(), on=FaultyCluster(scene.kafka, crashing))
        return scene

    undisturbed, covered = CrashingAt(), 0
    played(undisturbed)
    for number in (at for at, name in enumerate(undisturbed.calls) if name == "writer.commit"):
        scene = played(CrashingAt(number, after=after))
        covered += "a1" in scene.out and "0_0" not in scene.out and scene.beside_offset() == {}
        scene.run("r1", closing())
        assert [value for value in scene.out if "tick" not in value] == ["a1", "0_0"]
    assert covered, "no commit came when nothing was parked any more"
