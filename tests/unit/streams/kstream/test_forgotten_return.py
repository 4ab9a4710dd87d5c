"""Functions that return nothing: refused where they are given, warned of where only a run can tell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("forgotten-returns-are-seen")


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def forgotten(*arguments: Any) -> Any:
    sum(len(arguments) for _ in arguments)


def at_every_end(key: Any, value: Any) -> Any:
    if value:
        return None
    print(key)


async def never_answered(key: Any, value: Any) -> Any:
    print(key, value)


class Forgetful:
    def __call__(self, key: Any, value: Any) -> Any:
        print(key, value)

    def method(self, key: Any, value: Any) -> Any:
        print(key, value)


GIVEN: dict[str, Callable[[KStream[Any, Any]], object]] = {
    "filter is given forgotten as predicate": lambda s: s.filter(forgotten),
    "filter is given at_every_end as predicate": lambda s: s.filter(at_every_end),
    "filter is given Forgetful as predicate": lambda s: s.filter(Forgetful()),
    "filter is given method as predicate": lambda s: s.filter(Forgetful().method),
    "filter is given partial as predicate": lambda s: s.filter(functools.partial(forgotten, 1)),
    "filter_not is given forgotten as predicate": lambda s: s.filter_not(forgotten),
    "filter_async is given never_answered as predicate": lambda s: s.filter_async(never_answered),
    "filter_async is given at_every_end as predicate": lambda s: s.filter_async(at_every_end, threads=True),
    "split(big=) is given at_every_end as predicates": lambda s: s.split(big=at_every_end),
    "map is given forgotten as mapper": lambda s: s.map(forgotten),
    "map_async is given never_answered as mapper": lambda s: s.map_async(never_answered),
    "flat_map_values is given forgotten as mapper": lambda s: s.flat_map_values(forgotten),
    "group_by is given forgotten as selector": lambda s: s.group_by(forgotten),
    "filter of a table": lambda s: s.to_table().filter(forgotten),
    "group_by of a table": lambda s: s.to_table().group_by(forgotten),
}


@pytest.mark.parametrize("call", GIVEN)
def test_function_is_refused_when_its_code_can_only_return_none(call: str) -> None:
    with pytest.raises(TopologyError) as caught:
        GIVEN[call](builder().stream("in"))
    assert "which can only return None" in str(caught.value)
    assert call.endswith("table") or str(caught.value).startswith(call.split(" is ")[0])
    assert f"{__name__.rpartition('.')[2]}.py" in str(caught.value)
    assert "return" in caught.value.fix


def sometimes(key: Any, value: Any) -> Any:
    if value:
        return value
    print(key)
    return None


def stops(key: Any, value: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    "predicate",
    [
        lambda key, value: value.get("flag"),
        lambda key, value: value and None,
        lambda key, value: print(value),
        lambda key, value: value if key else None,
        functools.wraps(forgotten)(lambda *given: given),
        sometimes,
        stops,
    ],
)
def test_function_is_taken_when_its_code_may_return_something(predicate: Any) -> None:
    builder().stream("in").filter(predicate)


def test_a_function_may_give_none_where_none_means_something() -> None:
    stream = builder().stream("in")
    stream.map_values(lambda value: None)
    stream.peek(forgotten)
    stream.foreach(forgotten)


WINDOWS = [None, TumblingWindow(size_ms=10), SlidingWindow(size_ms=10), SessionWindow(gap_ms=10)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_log_says_once_that_a_reducer_gave_none(
    window: Any, goes_on: bool, tracked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = builder()
    group: Any = made.stream("in").group_by_key()
    group = group if window is None else group.windowed_by(window)
    table = group.reduce(lambda one, other: {}.get(one), name="sums")
    (table.filter(lambda key, value: True) if tracked else table).to_stream().send_to("out")
    settings = {"processing.exception.handler": "skip"} if goes_on else {}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        for value in range(4):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=20)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "node 'sums' (" in line
    assert ") gave None of two values" in line
    assert line.endswith("must return it")


@pytest.mark.remedy("aggregation.nothing_kept.say")
def test_records_are_kept_when_the_function_returns_the_aggregate_that_it_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def kept(add: Callable[[Any, Any, Any], Any]) -> list[Any]:
        made = builder()
        totals = made.stream("in").group_by_key().aggregate(list, add, store="totals")
        totals.to_stream().send_to("out")
        with TopologyTestDriver(made.build(), application_id="app") as driver:
            for value in (1, 2):
                driver.pipe_input("in", key="a", value=value, timestamp_ms=20)
            return [record.value for record in driver.read_output("out")]

    def returns(key: Any, value: Any, so_far: Any) -> Any:
        so_far.append(value)
        return so_far

    kept(lambda key, value, so_far: so_far.append(value))
    (line,) = caplog.messages
    assert line.endswith("a function that changes its aggregate in place must return it")
    caplog.clear()
    assert kept(returns)[-1] == [1, 2]
    assert caplog.messages == []


def test_log_says_once_that_an_adder_of_a_table_gave_none(caplog: pytest.LogCaptureFixture) -> None:
    made = builder()
    grouped = made.table("in").group_by(lambda key, value: ("all", value))
    grouped.aggregate(
        list, lambda k, v, so_far: so_far.append(v), lambda k, v, so_far: so_far
    ).to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for key in ("a", "b"):
            driver.pipe_input("in", key=key, value=1, timestamp_ms=20)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "gave None for a key that has no aggregate yet" in line


def test_an_entry_of_a_table_is_in_no_group_when_the_selector_gives_none() -> None:
    made = builder()
    grouped = made.table("in").group_by(lambda key, value: ("all", value) if value > 1 else None)
    grouped.count(store="n").to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for key, value in (("a", 1), ("b", 2), ("a", 3), ("b", 0)):
            driver.pipe_input("in", key=key, value=value, timestamp_ms=20)
        assert [record.value for record in driver.read_output("out")] == [1, 2, 1]
        assert driver.store("n").get("all") == 1


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Have an effect elsewhere."""


@pytest.mark.parametrize(
    "end",
    [lambda s: s.peek(forgotten), lambda s: s.process(Silent), lambda s: s.map_values(str).peek(forgotten)],
)
def test_a_topology_may_end_in_what_has_its_effect_elsewhere(end: Callable[[Any], object]) -> None:
    made = builder()
    end(made.stream("in"))
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)


def test_a_topology_without_any_effect_is_refused() -> None:
    made = builder()
    made.stream("in").map_values(str)
    with pytest.raises(TopologyError, match="topology without sink"):
        made.build()
