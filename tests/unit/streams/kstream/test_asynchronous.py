from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.streams import KStreamBuilder, Topology, TopologyError, serdes
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")

SEEDS = range(6)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())


def outputs(topology: Topology, records: list[tuple[Any, Any, int]], seed: int) -> list[tuple[Any, Any, int]]:
    with TopologyTestDriver(topology, application_id="app", async_seed=seed) as driver:
        driver.pipe_records("in", records)
        return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]


RECORDS = [(f"k{n % 3}", n, n) for n in range(30)]
#: DSL call -> what it is given, and what the plain call of that name is given.
CALLS: dict[str, Callable[..., Any]] = {
    "map_values": lambda value: [value, "mapped"],
    "map": lambda key, value: (value, key),
    "filter": lambda key, value: value % 2,
    "flat_map_values": lambda value: ["more"] * (value % 3),
}


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        await asyncio.sleep(arguments[-1] % 4 / 10)
        return function(*arguments)

    return call


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("threads", [False, True], ids=["coroutine", "thread"])
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
def test_call_gives_what_the_plain_one_gives_when_calls_end_in_any_order(
    call: str, threads: bool, order: str
) -> None:
    made = builder()
    getattr(made.stream("in"), call)(CALLS[call]).send_to("out")
    expected = outputs(made.build(), RECORDS, 0)
    assert expected
    for seed in SEEDS:
        made = builder()
        function = CALLS[call] if threads else as_coroutine(CALLS[call])
        calling = getattr(made.stream("in"), f"{call}_async")
        calling(function, threads=threads, order=order, max_in_flight=4).send_to("out")
        assert outputs(made.build(), RECORDS, seed) == expected


@pytest.mark.parametrize("threads", [False, True], ids=["coroutine", "thread"])
def test_action_sees_each_record_once_when_a_stream_ends_in_it(threads: bool) -> None:
    seen = []
    made = builder()
    action = CALLS["map"]

    def note(key: Any, value: Any) -> None:
        seen.append(action(key, value))

    function = note if threads else as_coroutine(note)
    made.stream("in").foreach_async(function, threads=threads)  # type: ignore[call-overload]
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_records("in", RECORDS)
        assert driver.counts.read == {"in": 30}
    assert sorted(seen) == [(value, key) for key, value, _ in RECORDS]


class Watched:
    """A function that notes which calls run at the same time."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self.most: int = 0
        self.of_key: dict[Any, int] = defaultdict(int)
        self.order: dict[Any, list[int]] = defaultdict(list)

    async def __call__(self, key: Any, value: Any) -> Any:
        self.running.append(key)
        name = str(key)
        self.order[name].append(value)
        self.most = max(self.most, len(self.running))
        self.of_key[name] = max(self.of_key[name], self.running.count(key))
        await asyncio.sleep(value % 5 / 100)
        self.running.remove(key)
        return key, value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keys", [["a", "b", "c"], [None, "a"], [{"id": [1]}, {"id": [2]}]])
def test_calls_of_a_key_come_one_by_one_in_input_order_when_order_is_key(keys: list[Any], seed: int) -> None:
    watched, made = Watched(), builder()
    made.stream("in").map_async(watched, order="key", max_in_flight=8).send_to("out")
    outputs(made.build(), [(keys[n % len(keys)], n, n) for n in range(24)], seed)
    assert {*watched.of_key.values()} == {1}
    assert all(values == sorted(values) for values in watched.order.values())
    assert watched.most == len(keys)


def test_no_more_calls_run_at_once_than_max_in_flight() -> None:
    most = set()
    for seed in SEEDS:
        watched, made = Watched(), builder()
        made.stream("in").map_async(watched, max_in_flight=5).send_to("out")
        outputs(made.build(), RECORDS, seed)
        most.add(watched.most)
    assert most == {5}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"max_in_flight": 0}, "max_in_flight=0"),
        ({"timeout_ms": 1.5}, "timeout_ms=1.5"),
        ({"order": "none"}, "order='none'"),
        ({"resource": 5}, "int as resource"),
    ],
)
def test_option_is_named_when_it_cannot_be(options: dict[str, Any], found: str) -> None:
    stream = builder().stream("in")
    with pytest.raises(TopologyError, match=found):
        stream.map_values_async(as_coroutine(CALLS["map_values"]), **options)


def yielding() -> Callable[..., Any]:
    async def generator(value: Any) -> Any:
        yield value

    return generator


@pytest.mark.parametrize(
    ("function", "threads", "found"),
    [
        (len, False, "a plain function as mapper"),
        (as_coroutine(len), True, "an async function as mapper and threads=True"),
        (yielding(), False, "an async generator as mapper"),
        ("text", False, "str as mapper"),
    ],
)
def test_function_is_refused_when_it_cannot_be_called_so(function: Any, threads: bool, found: str) -> None:
    stream = builder().stream("in")
    with pytest.raises(TopologyError, match=rf"test_asynchronous\.py:\d+ is given {found}"):
        stream.map_values_async(function, threads=threads)  # type: ignore[call-overload]


def test_topology_is_refused_when_a_store_is_used_above_and_below_an_asynchronous_node() -> None:
    made = builder()
    counts = made.stream("in").group_by_key().count(store="counts")
    again = counts.to_stream().map_values_async(as_coroutine(len))
    again.left_join(counts, lambda one, two: [one, two], value_serde=serdes.json()).send_to("out")
    with pytest.raises(TopologyError, match="store 'counts' is used above the asynchronous node"):
        made.build()


def test_exploring_shows_what_calls_give_and_what_fails() -> None:
    async def checked(value: Any) -> Any:
        if value == 1:
            raise ValueError("no")
        return value * 2

    made = builder()
    made.stream("in").map_values_async(checked, name="check").send_to("out")
    records = tuple(
        SampleRecord(topic="in", offset=n, key=b'"k"', value=b"%d" % n, timestamp_ms=n) for n in range(3)
    )
    shown = explore(made.build(), sample=Sample(records=records, partitions={"in": 1}))
    counts = shown.counts("check")
    assert (counts.records_in, counts.records_out, counts.failed) == (3, 2, 1)
    assert "ValueError" in str(shown)
