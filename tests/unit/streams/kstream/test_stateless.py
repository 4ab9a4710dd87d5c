from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.streams import KStream, KStreamBuilder, Topology, TopologyError, serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

Build = Callable[[KStream], KStream]


def _run(build: Build, *records: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """Run (key, value) records through ``build`` and return what comes out."""
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    build(builder.stream("in")).send_to("out")
    bound = BoundTopology(builder.build())
    for key, value in records:
        bound.pipe("in", key, value)
    return [(output.key, output.value) for output in bound.read("out")]


def test_filter_keeps_records_when_predicate_holds() -> None:
    result = _run(lambda s: s.filter(lambda k, v: k == "a" and v > 1), ("a", 1), ("a", 2), ("b", 3), ("a", 4))
    assert result == [("a", 2), ("a", 4)]


def test_map_replaces_key_and_value_when_called() -> None:
    assert _run(lambda s: s.map(lambda k, v: (v, [k])), ("a", 1), ("b", 2)) == [(1, ["a"]), (2, ["b"])]


def test_map_values_keeps_the_key_when_value_is_replaced() -> None:
    assert _run(lambda s: s.map_values(lambda v: v * 2), ("a", 1), (None, 2)) == [("a", 2), (None, 4)]


def test_map_values_sees_none_when_the_record_is_a_tombstone() -> None:
    assert _run(lambda s: s.map_values(lambda v: "gone" if v is None else v), ("a", None)) == [("a", "gone")]


def test_flat_map_gives_any_number_of_records_when_called() -> None:
    result = _run(
        lambda s: s.flat_map(lambda k, v: ((k * n, n) for n in range(v))), ("a", 3), ("b", 0), ("c", 1)
    )
    assert result == [("", 0), ("a", 1), ("aa", 2), ("", 0)]


def test_flat_map_values_keeps_the_key_when_values_multiply() -> None:
    result = _run(lambda s: s.flat_map_values(str.split), ("a", "x y"), ("b", ""), ("c", "z"))
    assert result == [("a", "x"), ("a", "y"), ("c", "z")]


def test_branch_takes_the_first_match_when_several_hold() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    small, even = builder.stream("in").branch(lambda k, v: v < 10, lambda k, v: v % 2 == 0)
    small.send_to("small")
    even.map_values(lambda v: -v).send_to("even")
    bound = BoundTopology(builder.build())
    for value in (1, 2, 12, 13, 3, 14):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("small")] == [1, 2, 3]
    assert [output.value for output in bound.read("even")] == [-12, -14]


def test_branch_drops_its_records_when_nobody_uses_it() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    _, rest = builder.stream("in").branch(lambda k, v: v < 10, lambda k, v: True)
    rest.send_to("rest")
    bound = BoundTopology(builder.build())
    for value in (1, 10):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("rest")] == [10]


def test_every_use_sees_each_record_when_a_stream_is_used_twice() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    stream.map_values(lambda v: v + 1).send_to("one")
    stream.filter(lambda k, v: v > 1).send_to("two")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1)
    bound.pipe("in", "a", 2)
    assert [output.value for output in bound.read("one")] == [2, 3]
    assert [output.value for output in bound.read("two")] == [2]


def test_timestamp_is_the_records_when_it_is_passed_on() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    builder.stream("in").through("mid").flat_map_values(lambda v: [v, v]).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=7)
    assert bound.read("mid") == [Output("a", 1, 7)]
    assert bound.read("out") == [Output("a", 1, 7), Output("a", 1, 7)]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda s: s.filter(True),
        lambda s: s.map(None),
        lambda s: s.map_values("x"),
        lambda s: s.flat_map(1),
        lambda s: s.flat_map_values([]),
        lambda s: s.branch(),
        lambda s: s.branch(lambda k, v: True, 1),
        lambda s: s.group_by("carrier"),
        lambda s: s.group_by_key().reduce(None),
        lambda s: s.group_by_key().aggregate(0, lambda k, v, a: a),
        lambda s: s.process(None),
    ],
)
def test_mistake_is_refused_with_the_users_line_when_no_function_is_given(
    mistake: Callable[[KStream], Any],
) -> None:
    stream = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json()).stream("in")
    with pytest.raises(TopologyError) as caught:
        mistake(stream)
    assert f"{__file__}:" in caught.value.cause
    assert caught.value.fix


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


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
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


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
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


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keys", [["a", "b", "c"], [None, "a"], [{"id": [1]}, {"id": [2]}]])
def test_calls_of_a_key_come_one_by_one_in_input_order_when_order_is_key(keys: list[Any], seed: int) -> None:
    watched, made = Watched(), builder()
    made.stream("in").map_async(watched, order="key", max_in_flight=8).send_to("out")
    outputs(made.build(), [(keys[n % len(keys)], n, n) for n in range(24)], seed)
    assert {*watched.of_key.values()} == {1}
    assert all(values == sorted(values) for values in watched.order.values())
    assert watched.most == len(keys)


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
def test_no_more_calls_run_at_once_than_max_in_flight() -> None:
    most = set()
    for seed in SEEDS:
        watched, made = Watched(), builder()
        made.stream("in").map_async(watched, max_in_flight=5).send_to("out")
        outputs(made.build(), RECORDS, seed)
        most.add(watched.most)
    assert most == {5}


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
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


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
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
    with pytest.raises(TopologyError, match=rf"test_stateless\.py:\d+ is given {found}"):
        stream.map_values_async(function, threads=threads)  # type: ignore[call-overload]


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
def test_topology_is_refused_when_a_store_is_used_above_and_below_an_asynchronous_node() -> None:
    made = builder()
    counts = made.stream("in").group_by_key().count(store="counts")
    again = counts.to_stream().map_values_async(as_coroutine(len))
    again.left_join(counts, lambda one, two: [one, two], value_serde=serdes.json()).send_to("out")
    with pytest.raises(TopologyError, match="store 'counts' is used above the asynchronous node"):
        made.build()


@pytest.mark.promise("calls-of-a-key-in-order", "stores-around-calls-are-refused")
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
