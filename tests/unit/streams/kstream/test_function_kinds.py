"""A function that returns no pair where one is expected, or no list of results, is told what it returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from airflow_kstreams.streams import KStreamBuilder, RecordError, Topology, serdes
from airflow_kstreams.testing import TopologyTestDriver

Build = Callable[[Any], Topology]


class Pair(NamedTuple):
    key: str
    value: int


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def mapped(result: Any) -> Topology:
    made = builder()
    made.stream("in").map(lambda key, value: result).send_to("out")
    return made.build()


def mapped_async(result: Any) -> Topology:
    async def mapper(key: str, value: Any) -> Any:
        return result

    made = builder()
    made.stream("in").map_async(mapper, name="m").send_to("out")
    return made.build()


def flat_mapped(result: Any) -> Topology:
    made = builder()
    made.stream("in").flat_map(lambda key, value: [("z", 0), result]).send_to("out")
    return made.build()


def flat_mapped_whole(results: Any) -> Topology:
    made = builder()
    made.stream("in").flat_map(lambda key, value: results).send_to("out")
    return made.build()


def flat_mapped_values(results: Any) -> Topology:
    made = builder()
    made.stream("in").flat_map_values(lambda value: results).send_to("out")
    return made.build()


def flat_mapped_values_async(results: Any) -> Topology:
    async def mapper(value: Any) -> Any:
        return results

    made = builder()
    made.stream("in").flat_map_values_async(mapper, name="m").send_to("out")
    return made.build()


def grouped(result: Any) -> Topology:
    made = builder()
    made.table("in").group_by(lambda key, value: result).count(store="n").to_stream().send_to("out")
    return made.build()


THREADS = {"num.threads.per.task": 2, "num.stream.threads": 2}
WAYS: list[Any] = [
    pytest.param(mapped, "map: ", {}, id="map"),
    pytest.param(mapped, "map: ", THREADS, id="map on threads"),
    pytest.param(mapped_async, "map: ", {}, id="map_async"),
    pytest.param(flat_mapped, "flat_map: ", {}, id="flat_map"),
    pytest.param(flat_mapped, "flat_map: ", THREADS, id="flat_map on threads"),
    pytest.param(grouped, "group_by: ", {}, id="group_by"),
]


def outputs(topology: Topology, settings: dict[str, Any]) -> list[tuple[Any, Any]]:
    with TopologyTestDriver(topology, application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0)
        return [(record.key, record.value) for record in driver.read_output("out")]


@pytest.mark.error_example("KS-TASK-001")
def test_error_says_what_a_mapper_returned_when_it_is_nothing() -> None:
    with pytest.raises(RecordError, match="map: the function returned NoneType"):
        outputs(mapped(None), {})


@pytest.mark.parametrize(("build", "call", "settings"), WAYS)
@pytest.mark.parametrize(
    ("result", "found"),
    [
        (7, "int"),
        ("ab", "str"),
        (b"ab", "bytes"),
        ({"a": 1, "b": 2}, "dict"),
        ({"a", "b"}, "set"),
        (("a",), "tuple of 1"),
        (("a", 1, 2), "tuple of more than 2"),
        ([], "list of 0"),
    ],
)
def test_error_says_what_the_function_returned_when_it_is_no_pair(
    build: Build, call: str, settings: dict[str, Any], result: Any, found: str
) -> None:
    with pytest.raises(
        RecordError, match=f"TypeError: {call}the function returned {found}.*, expected .*pair"
    ):
        outputs(build(result), settings)


@pytest.mark.parametrize(("build", "call", "settings"), WAYS)
@pytest.mark.parametrize("result", [("a", 1), ["a", 1], Pair("a", 1)])
def test_tuple_list_and_named_tuple_are_pairs(
    build: Build, call: str, settings: dict[str, Any], result: Any
) -> None:
    assert outputs(build(result), settings)[-1] == ("a", 1)


SEVERAL: list[Any] = [
    pytest.param(flat_mapped_whole, {}, id="flat_map"),
    pytest.param(flat_mapped_whole, THREADS, id="flat_map on threads"),
    pytest.param(flat_mapped_values, {}, id="flat_map_values"),
    pytest.param(flat_mapped_values, THREADS, id="flat_map_values on threads"),
    pytest.param(flat_mapped_values_async, {}, id="flat_map_values_async"),
]


@pytest.mark.parametrize(("build", "settings"), SEVERAL)
@pytest.mark.parametrize(
    ("results", "found"),
    [(7, "int"), (None, "NoneType"), ("an ox", "str"), (b"an ox", "bytes"), ({"ox": 1}, "dict")],
)
def test_error_says_what_the_function_returned_when_it_is_no_list(
    build: Build, settings: dict[str, Any], results: Any, found: str
) -> None:
    expected = rf"TypeError: flat_map\w*: the function returned {found}, expected a list of results"
    with pytest.raises(RecordError, match=expected):
        outputs(build(results), settings)


@pytest.mark.parametrize(("build", "settings"), SEVERAL)
@pytest.mark.parametrize("make", [list, tuple, iter, lambda results: dict(results).items()])
def test_results_are_taken_when_they_come_one_by_one(
    build: Build, settings: dict[str, Any], make: Callable[[Any], Any]
) -> None:
    found = outputs(build(make([("a", 1), ("b", 2)])), settings)
    by_key = [("a", 1), ("b", 2)]
    assert found in (by_key, [("k", [*pair]) for pair in by_key])
