"""Functions of values that declare the record's key: Java's ValueMapperWithKey and ValueJoinerWithKey."""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    CallContext,
    KStream,
    KStreamBuilder,
    RecordContext,
    SlidingWindow,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

Build = Callable[[Any], KStream]
WINDOW = SlidingWindow(size_ms=10, grace_ms=0)
SELF = SlidingWindow(size_ms=0, grace_ms=0)


async def ask(value: Any, key: str) -> Any:
    return [key, value]


async def ask_each(value: Any, *, key: str, context: CallContext) -> Any:
    return [key, value, context.offset]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def joiner(value: Any, other: Any, key: str) -> Any:
    return [key, value, other]


def mapper(value: Any, *, key: str) -> Any:
    return [key, value]


CALLS: dict[str, Build] = {
    "map_values": lambda b: b.stream("in").map_values(mapper),
    "map_values, with context": lambda b: b.stream("in").map_values(
        lambda value, key, context: [key, value, context.offset]
    ),
    "map_values_async": lambda b: b.stream("in").map_values_async(ask),
    "map_values_async on threads": lambda b: b.stream("in").map_values_async(mapper, threads=True),
    "flat_map_values_async, with context": lambda b: b.stream("in").flat_map_values_async(ask_each),
    "flat_map_values": lambda b: b.stream("in").flat_map_values(lambda value, key: [key, value]),
    "map_values of a table": lambda b: b.table("in").map_values(mapper).to_stream(),
    "kept map_values of a table": lambda b: b.table("in").map_values(mapper, store="kept").to_stream(),
    "join with a table": lambda b: b.stream("in").join(b.table("other"), joiner),
    "left_join with a table": lambda b: b.stream("in").left_join(b.table("none"), joiner),
    "join of streams": lambda b: (
        b.stream("other").with_window(WINDOW).join(b.stream("in").with_window(WINDOW), joiner)
    ),
    "join_prior of streams": lambda b: (
        b.stream("other").with_window(WINDOW).join_prior(b.stream("in").with_window(WINDOW), joiner)
    ),
    "outer_join of streams": lambda b: (
        b.stream("in").with_window(SELF).outer_join(b.stream("late").with_window(SELF), joiner)
    ),
    "outer_join of streams, the right alone": lambda b: (
        b.stream("late").with_window(SELF).outer_join(b.stream("in").with_window(SELF), joiner)
    ),
}
GIVEN: dict[str, list[Any]] = {
    "map_values": [["a", 7]],
    "map_values, with context": [["a", 7, 0]],
    "map_values_async": [["a", 7]],
    "map_values_async on threads": [["a", 7]],
    "flat_map_values_async, with context": ["a", 7, 0],
    "flat_map_values": ["a", 7],
    "map_values of a table": [["a", 7]],
    "kept map_values of a table": [["a", 7]],
    "join with a table": [["a", 7, 1]],
    "left_join with a table": [["a", 7, None]],
    "join of streams": [["a", 1, 7]],
    "join_prior of streams": [["a", 1, 7]],
    "outer_join of streams": [["a", 7, None]],
    "outer_join of streams, the right alone": [["a", None, 7]],
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("threads", [1, 2])
def test_function_is_given_the_key_and_nothing_is_repartitioned(call: str, threads: int) -> None:
    built = builder()
    CALLS[call](built).send_to("out")
    topology = built.build()
    assert topology.internal_topics == ()
    read = {topic for sub in topology.subtopologies() for topic in sub.source_topics}
    settings = {"num.stream.threads": threads, "num.threads.per.task": threads}
    with TopologyTestDriver(topology, application_id="app", settings=settings) as driver:
        if "other" in read:
            driver.pipe_input("other", key="a", value=1, timestamp_ms=1)
        driver.pipe_input("in", key="a", value=7, timestamp_ms=2)
        if "late" in read:
            driver.pipe_input("late", key="b", value=0, timestamp_ms=500)
        assert [record.value for record in driver.read_output("out")] == GIVEN[call]


@pytest.mark.parametrize("left", [False, True])
def test_joiner_with_a_global_table_is_given_the_key_of_the_record(left: bool) -> None:
    built = builder()
    table, stream = built.global_table("rates"), built.stream("in")
    join = stream.left_join if left else stream.join
    join(table, joiner, key=lambda key, value: value).send_to("out")
    with TopologyTestDriver(built.build(), application_id="app") as driver:
        driver.pipe_input("rates", key="EUR", value=2, timestamp_ms=0)
        driver.pipe_input("in", key="a", value="EUR", timestamp_ms=0)
        driver.pipe_input("in", key="b", value="USD", timestamp_ms=0)
        found = [record.value for record in driver.read_output("out")]
    assert found == [["a", "EUR", 2], *([["b", "USD", None]] if left else [])]


def test_key_of_a_change_is_given_when_a_table_takes_an_old_value_back() -> None:
    built = builder()
    seen = []

    def note(value: Any, key: str) -> Any:
        seen.append((key, value))
        return value

    grouped = built.table("in").map_values(note).group_by(lambda key, value: (key, value))
    grouped.count(store="counts").to_stream().send_to("out")
    with TopologyTestDriver(built.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
        driver.pipe_input("in", key="a", value=2, timestamp_ms=1)
    assert {key for key, _ in seen} == {"a"}
    assert {value for _, value in seen} == {1, 2}


@dataclasses.dataclass
class Tagged:
    value: Any
    key: str | None = None


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(sorted, ["a", "b"], id="sorted"),
        pytest.param(functools.partial(heapq.nlargest, 1), ["b"], id="partial_of_the_library"),
        pytest.param(lambda value, key="0": [value, key], ["ba", "0"], id="captured"),
        pytest.param(lambda value: dataclasses.astuple(Tagged(value)), ["ba", None], id="class_in_a_lambda"),
        pytest.param(lambda value, key=None: [value, key], ["ba", None], id="none"),
    ],
)
def test_parameter_called_key_keeps_its_default(function: Callable[..., Any], expected: Any) -> None:
    built = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    built.stream("in").map_values(function).send_to("out")
    with TopologyTestDriver(built.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value="ba", timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [expected]


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "the key ahead of the value": (lambda s: s.map_values(lambda key, value: value), "value, key=key"),
    "more than there is": (
        lambda s: s.flat_map_values(lambda value, more: [value]),
        "lambda value, key: ...",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_function_is_refused_with_what_to_write(case: str) -> None:
    build, text = REFUSED[case]
    with pytest.raises(TopologyError) as caught:
        build(builder().stream("in"))
    assert text in f"{caught.value} {caught.value.fix}"


def test_key_that_a_partial_object_has_filled_in_is_the_users() -> None:
    built = builder()
    built.stream("in").map_values(functools.partial(mapper, key="mine")).send_to("out")
    with TopologyTestDriver(built.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=7, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [["mine", 7]]


def test_function_of_key_and_value_is_what_it_was() -> None:
    built = builder()

    def both(key: str, value: Any, context: RecordContext) -> tuple[str, Any]:
        return key, [value, context.offset]

    built.stream("in").map(both).send_to("out")
    with TopologyTestDriver(built.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=7, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [[7, 0]]
