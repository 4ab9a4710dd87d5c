"""Calls of a key when one of them fails the run, and the run is repeated: effects keep the key's order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_kstreams.streams import CallContext, KStreamBuilder, RetryPolicy, serdes
from airflow_kstreams.streams.calls.call import AsyncNode, MakeCaller
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("calls-of-a-key-in-order")

KEYS = "abcab" * 4
#: These are refused as long as the service is down for them.
DOWN = (3, 5, 6)


class Service:
    """Takes each call once, in the order in which they come; it is down for some."""

    def __init__(self) -> None:
        self.down = set(DOWN)
        self.effects: dict[str, int] = {}

    def take(self, value: int, context: CallContext) -> int:
        if value in self.down:
            raise ConnectionError(f"down for {value}")
        self.effects.setdefault(context.idempotency_key, value)
        return value

    async def wait_and_take(self, value: int, *, context: CallContext) -> int:
        await asyncio.sleep(0.01)
        return self.take(value, context)

    def take_on_thread(self, value: int, *, context: CallContext) -> int:
        return self.take(value, context)

    @property
    def by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for value in self.effects.values():
            found[KEYS[value // 2]].append(value)
        return found


def seeded(seed: int) -> MakeCaller:
    def make(async_nodes: Sequence[AsyncNode]) -> SeededCaller:
        return SeededCaller(async_nodes, seed=seed)

    return make


#: It does not take what the service raises.
OTHER_ERRORS = RetryPolicy(errors=(LookupError,), value_serde=serdes.json())


@pytest.mark.parametrize("retry", [None, OTHER_ERRORS], ids=["plain", "retry"])
@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
@pytest.mark.parametrize("seed", [*range(8), None])
def test_effects_of_a_key_stay_in_order_when_a_call_fails_the_run_and_it_is_repeated(
    seed: int | None, threads: bool, retry: RetryPolicy | None
) -> None:
    service = Service()
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    for number, key in enumerate(KEYS):
        kafka.append("in", b"%d" % number, key.encode())
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    # Two calls for each record.
    twice = builder.stream("in").flat_map_values(lambda number: [2 * number, 2 * number + 1])
    function = service.take_on_thread if threads else service.wait_and_take
    options: Any = {"threads": threads, "order": "key", "max_in_flight": 4, "retry": retry, "name": "ask"}
    twice.map_values_async(function, **options).send_to("out")
    application = Application(
        application_id="app",
        topology=builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={"num.threads.per.task": 3, "num.stream.threads": 3} if threads else {},
        make_caller=None if seed is None else seeded(seed),
    )

    slice_ = application.begin("run-1")
    for down in DOWN:
        with pytest.raises(RecordError, match=rf"down for {down}\b"):
            application.tasks(slice_)
        service.down.discard(down)
    application.tasks(slice_)

    assert [int(value or b"") for value in kafka.values("out")] == list(range(2 * len(KEYS)))
    assert service.by_key == {
        key: [value for value in range(2 * len(KEYS)) if KEYS[value // 2] == key] for key in "abc"
    }
