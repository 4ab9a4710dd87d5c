"""An application of one task whose whole sequence of results is known beforehand, run in this process.

The task, or the coordinator, may be run behind the proxy; everything else goes to the broker directly.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, Topology, serdes
from dev.proxy.kafka_proxy import KafkaProxy
from tests.conftest import Row
from tests.support.kafka.in_process import Application

EVERY = 50
RECORDS = 4 * EVERY
KEYS = 3


class Gate:
    """A place in the topology where the task waits, in the transaction after the second commit."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self, n: int) -> int:
        """Return the number; at the gate's, wait."""
        if n == 2 * EVERY + EVERY // 2:
            self.reached.set()
            self.opened.wait()
        return n


#: Whether a function of the task is called at once, awaited beside others, run on threads, or fails for some
#: records, which are parked.
HowCalled = Literal["at once", "loop", "threads", "parked"]
#: Each of so many records fails at its first call in each process.
_FAILS = 7


def echo_and_sums(source: str, echo: str, target: str, gate: Gate, called: HowCalled = "at once") -> Topology:
    """Every number at once, and sums by key at each point, from one subtopology."""
    builder = KStreamBuilder()
    numbers = builder.stream(source, key_serde=serdes.string(), value_serde=serdes.json(int))

    async def pass_through(n: int) -> int:
        await asyncio.sleep(n % 3 / 1_000)
        return gate.pass_through(n)

    failed = set[int]()

    async def fail_first(n: int) -> int:
        if n % _FAILS == 0 and n not in failed:
            failed.add(n)
            raise ConnectionError(n)
        return await pass_through(n)

    if called == "parked":
        retry = RetryPolicy(backoff_ms=50, errors=(ConnectionError,))
        stream = numbers.map_values_async(fail_first, max_in_flight=8, order="key", retry=retry, name="pass")
    elif called == "loop":
        stream = numbers.map_values_async(pass_through, max_in_flight=8)
    elif called == "threads":
        stream = numbers.map_values_async(gate.pass_through, threads=True, order="key")
    else:
        stream = numbers.map_values(gate.pass_through)
    stream.send_to(echo, key_serde=serdes.string(), value_serde=serdes.json(int))
    (
        stream.group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(lambda total, n: total + n, store="sums", value_serde=serdes.json(int))
        .to_stream()
        .send_to(target, key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


def expected_sums(count: int) -> dict[str, list[int]]:
    """The oracle: the sum of each key at each point, if its key came since the last one."""
    totals: dict[str, int] = defaultdict(int)
    results: dict[str, list[int]] = defaultdict(list)
    for point in range(0, count, EVERY):
        changed = set()
        for n in range(point, min(point + EVERY, count)):
            totals[f"key-{n % KEYS}"] += n
            changed.add(f"key-{n % KEYS}")
        for key in changed:
            results[key].append(totals[key])
    return results


@dataclass(frozen=True, kw_only=True)
class OneTask:
    """An application of one task that has its records already.

    :param direct: talks to the broker.
    :param proxied: talks to the proxy.
    """

    direct: Application
    proxied: Application
    gate: Gate
    called: HowCalled
    source: str
    echo: str
    target: str
    produce: Callable[..., None]
    consume_all: Callable[..., list[Row]]

    @property
    def transactional_id(self) -> str:
        return f"{self.direct.application_id}-0_0"

    def results(self) -> dict[str, list[int]]:
        """What readers of committed records see, per key in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.consume_all(self.target):
            found[row.key.decode()].append(row.json())
        return found

    def echoed(self, isolation: str = "read_committed") -> list[int]:
        """The numbers that came through."""
        return [row.json() for row in self.consume_all(self.echo, isolation=isolation)]

    def publish(self, first: int, last: int) -> None:
        """Publish the numbers [first, last)."""
        self.produce(self.source, [(f"key-{n % KEYS}", n) for n in range(first, last)])

    def end(self, slice_: Slice, count: int = RECORDS) -> None:
        """Finish the run and check all that came of its first so many records."""
        assert self.direct.begin("run-1", (0, 9)).inputs == slice_.inputs, "the stop offsets stay"
        read = self.direct.finish("run-1").records_in
        assert read == count, f"{read} records were read, of {count}"
        self.check(count)

    def check(self, count: int = RECORDS) -> None:
        """Check the results of so many records; where some were parked, what is promised of each key."""
        results, echoed = self.results(), self.echoed()
        if self.called == "parked":
            ends = {key: sums[-1] for key, sums in results.items()}
            assert ends == {key: sums[-1] for key, sums in expected_sums(count).items()}, results
            assert sorted(echoed) == list(range(count)), echoed
            for key in range(KEYS):
                of_key = [n for n in echoed if n % KEYS == key]
                assert of_key == sorted(of_key), of_key
            return
        assert results == expected_sums(count), results
        assert echoed == list(range(count)), echoed


MakeTask = Callable[..., OneTask]


@pytest.fixture
def one_task(
    kafka: str,
    proxy: KafkaProxy,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> MakeTask:
    """Make an application on fresh topics; keyword arguments are client settings with underscores."""

    def make(
        gate: Gate | None = None,
        client_timeout_ms: int = 1_500,
        called: HowCalled = "at once",
        **client: str,
    ) -> OneTask:
        source, echo, target = (create_topic(topic_name(name)) for name in ("in", "echo", "out"))
        if gate is None:
            gate = Gate()
            gate.opened.set()
        direct = Application(
            bootstrap=kafka,
            application_id=topic_name("app"),
            topology=echo_and_sums(source, echo, target, gate, called),
            settings={
                "commit.every.records": EVERY,
                "client.timeout.ms": 30_000,
                "num.stream.threads": 4,
                # Threads for plain functions that are called so; no function is unless the task says so.
                "num.threads.per.task": 4 if called == "threads" else 1,
            },
        )
        proxied = replace(
            direct,
            bootstrap=proxy.bootstrap,
            # On a busy machine a short time-out may spoil an attempt that the test means no harm to.
            settings={**direct.settings, "client.timeout.ms": client_timeout_ms, "task.max.attempts": 50},
            client={name.replace("_", "."): value for name, value in client.items()},
            launching=direct.cluster,
        )
        made = OneTask(
            direct=direct,
            proxied=proxied,
            gate=gate,
            called=called,
            source=source,
            echo=echo,
            target=target,
            produce=produce,
            consume_all=consume_all,
        )
        made.publish(0, RECORDS)
        return made

    return make
