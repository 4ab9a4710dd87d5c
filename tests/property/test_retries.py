"""Whatever fails for how long, whatever order calls end in, and wherever the task dies: every record comes to
its end once, those of a key in input order, and their calls too.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, StoreSpec, Topology, serdes
from airflow_kstreams.streams.calls.call import AsyncNode
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import ManualClock
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.examples import examples
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

pytestmark = pytest.mark.promise("retries-keep-order")

ATTEMPTS, BACKOFF_MS = 6, 1_000
#: Calls of a record span more than that, so what is away for less is never given up.
LONGEST_OUTAGE_MS = (ATTEMPTS - 2) * BACKOFF_MS
FOR_EVER = math.inf


class Service:
    """Is away for each record until a moment, or for ever.

    :ivar calls: the calls of each attempt of the task: key and number.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.away_until: dict[tuple[str, int], float] = {}
        self.calls: list[list[tuple[str, int]]] = []

    async def ask(self, value: list[Any]) -> list[Any]:
        key, number = value
        self.calls[-1].append((key, number))
        await asyncio.sleep(number % 3 / 100)
        if self.clock.now_ms() < self.away_until[key, number]:
            raise ConnectionError
        return [key, number]


def lists(stream: Any) -> Any:
    spec = StoreSpec(name="lists", key_serde=serdes.string(), value_serde=serdes.json(), cached=False)
    grouped = stream.group_by_key(value_serde=serdes.json())
    return grouped.aggregate(list, lambda key, value, seen: [*seen, value[1]], store=spec)


def one_call(service: Service, order: Any, retry: RetryPolicy) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    asked = builder.stream("in").map_values_async(
        service.ask, order=order, retry=retry, name="ask", max_in_flight=3
    )
    asked.send_to("out")
    lists(asked)
    return builder.build()


def between_calls(service: Service, order: Any, retry: RetryPolicy) -> Topology:
    """Parked in a stage that is neither the first nor the last, below a store and above another one."""

    async def pass_on(value: Any) -> Any:
        await asyncio.sleep(hash(str(value)) % 5 / 100)
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    seen = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json(), cached=False)
    grouped = builder.stream("in").map_values_async(pass_on).group_by_key(value_serde=serdes.json())
    newest = grouped.reduce(lambda before, value: value, store=seen).to_stream()
    asked = newest.map_values_async(service.ask, order=order, retry=retry, name="ask", max_in_flight=3)
    passed = asked.map_values_async(pass_on)
    passed.send_to("out")
    lists(passed)
    return builder.build()


def by_key(records: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for key, number in records:
        found[key].append(number)
    return dict(found)


@pytest.mark.parametrize("order", ["key", "unordered"])
@pytest.mark.parametrize("topology", [one_call, between_calls])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), crashes=st.integers(0, 5))
def test_every_record_comes_to_its_end_once_and_in_its_keys_order(
    topology: Callable[..., Topology], order: str, seed: int, crashes: int
) -> None:
    rng, clock = random.Random(seed), ManualClock()
    service = Service(clock)
    partition = TopicPartition("in", 0)
    keys = [rng.choice("abc") for _ in range(rng.randint(1, 14))]
    for number, key in enumerate(keys):
        outages = (0, 0, rng.randint(1, LONGEST_OUTAGE_MS), FOR_EVER)
        service.away_until[key, number] = rng.choice(outages)
    retry = RetryPolicy(
        attempts=ATTEMPTS, backoff_ms=BACKOFF_MS, multiplier=1, jitter=0, max_parked=rng.choice((1, 3, 100))
    )

    def make_caller(async_nodes: Sequence[AsyncNode]) -> SeededCaller:
        service.calls.append([])
        return SeededCaller(async_nodes, seed=rng.randint(0, 2**32))

    entries = [(key.encode(), json.dumps([key, at]).encode(), at) for at, key in enumerate(keys)]
    task = TaskOnLogs(
        topology=topology(service, order, retry),
        logs={partition: log_of(partition, entries)},
        rng=rng,
        crashes=crashes,
        settings={
            "retry.run.budget.ms": rng.choice((0, 500, 2_500)),
            "max.waiting.results": rng.choice((0, 2)),
            "commit.every.records": rng.choice((0, 2)),
        },
        make_caller=make_caller,
        clock=clock,
    )
    task.run({partition: rng.randint(0, len(keys))})
    task.run()
    runs = 2
    while task.progress.parked:
        clock.sleep(rng.choice((0.3, 1, 5)))
        task.run()
        runs += 1
        assert runs < 200
    given_up = [each for each, until in service.away_until.items() if until == FOR_EVER]
    done = by_key([each for each in service.away_until if each not in given_up])
    out = [json.loads(written.value or b"") for written in task.outputs if written.topic == "out"]
    letters = [written for written in task.outputs if written.topic == "app-dead-letter"]
    assert by_key([(key, number) for key, number in out]) == done
    assert dict(task.stores()["lists"].all()) == done
    assert by_key([tuple(json.loads(letter.value or b"")) for letter in letters]) == by_key(given_up)
    for written in task.outputs:
        if written.topic == "out":
            assert written.timestamp_ms == json.loads(written.value or b"")[1]
    assert list(task.stores()["ask-retry"].all()) == []
    if order == "key":
        assert_calls_in_order(service.calls, by_key([*service.away_until]))
    if order == "key" and not crashes:
        called = [each for attempt in service.calls for each in attempt]
        assert all(called.count(each) == ATTEMPTS for each in given_up)


def assert_calls_in_order(attempts: list[list[tuple[str, int]]], inputs: dict[str, list[int]]) -> None:
    """Check that no attempt of the task calls a record before all that come before it in its key, but those
    which earlier attempts called.
    """
    furthest = dict.fromkeys(inputs, -1)
    for calls in attempts:
        for key, numbers in by_key(calls).items():
            places = [inputs[key].index(number) for number in numbers]
            assert places == sorted(places)
            assert places[0] <= furthest[key] + 1
            assert all(later - place <= 1 for place, later in pairwise(places))
            furthest[key] = max(furthest[key], *places)
