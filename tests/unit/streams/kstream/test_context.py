from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordContext,
    StoreSpec,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

Build = Callable[[Any], KStream]

HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None)]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def told(context: RecordContext) -> list[Any]:
    names = [name for name, _ in context.headers]
    return [context.topic, context.partition, context.offset, context.timestamp_ms, names]


#: What `told` says of the record that the tests pipe: the second one of its topic.
PLACE = ["in", 0, 1, 70, ["h", "h"]]

CALLS: dict[str, Build] = {
    "filter": lambda s: s.filter(lambda k, v, context: told(context) == PLACE),
    "filter_not": lambda s: s.filter_not(lambda k, v, context: told(context) != PLACE),
    "map": lambda s: s.map(lambda k, v, context: (k, [v, told(context)])),
    "map_values": lambda s: s.map_values(lambda v, context: [v, told(context)]),
    "flat_map": lambda s: s.flat_map(lambda k, v, context: [(k, told(context)), (k, v)]),
    "flat_map_values": lambda s: s.flat_map_values(lambda v, context: (each for each in (told(context), v))),
    "select_key": lambda s: s.select_key(lambda k, v, context: str(context.offset)),
    "branch": lambda s: s.branch(lambda k, v, context: told(context) == PLACE)[0],
    "split": lambda s: s.split(other=lambda k, v, context: told(context) != PLACE, default="it")["it"],
}
GIVEN: dict[str, list[tuple[str, Any]]] = {
    "filter": [("k", 7)],
    "filter_not": [("k", 7)],
    "map": [("k", [7, PLACE])],
    "map_values": [("k", [7, PLACE])],
    "flat_map": [("k", PLACE), ("k", 7)],
    "flat_map_values": [("k", PLACE), ("k", 7)],
    "select_key": [("1", 7)],
    "branch": [("k", 7)],
    "split": [("k", 7)],
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize("call", [*CALLS])
def test_function_gets_the_context_of_its_record(call: str, *, stepping: bool, threads: int) -> None:
    made = builder()
    stream = CALLS[call](made.stream("in"))
    stream.send_to("out")
    if stepping:  # who asks for stream time has another loop
        made.stream("in").process(Ticking).send_to("ticks")
    settings = {"num.threads.per.task": threads, "num.stream.threads": threads}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="k", value=6, timestamp_ms=60)
        driver.read_output("out")
        driver.pipe_input("in", key="k", value=7, timestamp_ms=70, headers=HEADERS)
        found = [(record.key, record.value) for record in driver.read_output("out")]
    assert found == GIVEN[call]


class Ticking(Processor):
    """Forwards at every 100 ms of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(100)

    def process(self, record: ProcessorRecord) -> None:
        pass

    def punctuate(self, stream_time_ms: int) -> None:
        self._context.forward("tick", stream_time_ms)


@pytest.mark.parametrize("call", ["peek", "foreach"])
def test_contexts_stay_as_they_are_when_an_action_keeps_them(call: str) -> None:
    made, kept = builder(), list[RecordContext]()
    getattr(made.stream("in"), call)(lambda k, v, context: kept.append(context))
    made.stream("in").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms in (5, 6):
            driver.pipe_input("in", key="k", value=1, timestamp_ms=time_ms, headers=HEADERS)
    kept[0].headers.clear()
    assert [told(context) for context in kept] == [["in", 0, 0, 5, ["h", "h"]], ["in", 0, 1, 6, ["h", "h"]]]


def test_context_is_that_of_no_record_when_a_table_emits_at_a_commit_point() -> None:
    made = builder()
    spec = StoreSpec(name="n", key_serde=serdes.string(), value_serde=serdes.int64(), cached=True)
    counts = made.stream("in").group_by_key().count(store=spec).to_stream()
    counts.map_values(lambda v, context: [v, *told(context)]).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=9, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [[1, None, -1, -1, 9, []]]


def test_context_is_that_of_no_record_when_a_timer_forwards() -> None:
    made = builder()
    ticks = made.stream("in").process(Ticking)
    ticks.map_values(lambda v, context: [v, *told(context)]).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=100, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [[100, None, -1, -1, 100, []]]


def test_context_has_what_a_processor_above_gave_its_result() -> None:
    class Redating(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._context = context

        def process(self, record: ProcessorRecord) -> None:
            self._context.forward("k", 1, timestamp_ms=3, headers=[("new", b"")])

    made = builder()
    made.stream("in").process(Redating).map_values(lambda v, context: told(context)).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=9, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [["in", 0, 0, 3, ["new"]]]


def test_contexts_are_the_same_when_runs_begin_anew_between_the_records() -> None:
    made = builder()
    made.stream("in").map_values(lambda v, context: context.offset).send_to("out")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number in range(4):
        kafka.append("in", b"1", b"k")
        if number != 1:
            app.run(f"run-{number}")
    assert [*kafka.values("out")] == [b"0", b"1", b"2", b"3"]


class Placing:
    def __call__(self, value: Any, context: RecordContext) -> Any:
        return [value, context.offset]

    def placed(self, value: Any, *, context: RecordContext) -> Any:
        return [value, context.offset]


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **others: Any) -> Any:
        return function(*arguments, **others)

    return wrapper


def passing_two_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(one: Any, two: Any) -> Any:
        return function(one, two)

    return wrapper


def placed(value: Any, more: int = 0, *, context: RecordContext | None) -> Any:
    return [value, None if context is None else context.offset + more]


def by_place_alone(context: Any, /) -> Any:
    return [context, None]


def mapped(function: Callable[..., Any]) -> Any:
    made = builder()
    made.stream("in").map_values(function).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=7, timestamp_ms=9)
        return driver.read_output("out")[0].value


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda v, context: [v, context.offset], id="last"),
        pytest.param(lambda v, *, context: [v, context.offset], id="by_name_alone"),
        pytest.param(lambda *given, context, **others: [*given, context.offset], id="beside_any_others"),
        pytest.param(placed, id="behind_a_default"),
        pytest.param(Placing(), id="object"),
        pytest.param(Placing().placed, id="method"),
        pytest.param(functools.partial(placed, more=0), id="partial"),
        pytest.param(passing_on(placed), id="decorated"),
    ],
)
def test_function_gets_the_context_when_it_declares_one(function: Callable[..., Any]) -> None:
    assert mapped(function) == [7, 0]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        pytest.param(lambda *given, **others: [*given, others], [7, {}], id="any"),
        pytest.param(functools.partial(placed, context=None), [7, None], id="filled"),
        pytest.param(by_place_alone, [7, None], id="by_place_alone"),
        pytest.param(lambda v, context="mine": [v, context], [7, "mine"], id="with_a_default"),
        pytest.param(lambda v, context=None: [v, context], [7, None], id="with_none_as_default"),
        pytest.param(decimal.Decimal, "7", id="a_class_of_others"),
        pytest.param(str, "7", id="without_signature"),
    ],
)
def test_function_gets_no_context_when_it_declares_none(function: Callable[..., Any], value: Any) -> None:
    assert mapped(function) == value


def test_predicates_of_a_node_get_the_context_each_for_itself() -> None:
    made = builder()
    stream: Any = made.stream("in")
    first, second = stream.branch(lambda k, v: v > 5, lambda k, v, context: context.offset == v, name="by")
    first.send_to("out")
    second.send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for value in (0, 6, 1, 3):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [0, 6, 3]


@pytest.mark.parametrize(
    ("build", "said", "fix"),
    [
        pytest.param(
            lambda s: s.filter(lambda key, context: True),
            r"filter at FILE:\d+ is given <lambda>\(key, context\) as predicate, and calls it with "
            r"\(key, value, context=context\)",
            "lambda key, value, context: ...; a parameter for anything else needs another name than context",
            id="name_of_an_argument",
        ),
        pytest.param(
            lambda s: s.map_values(lambda context, value: value),
            r"map_values at FILE:\d+ is given <lambda>\(context, value\) as mapper, .* \(value, context=con",
            "lambda value, context: ...",
            id="first",
        ),
        pytest.param(
            lambda s: s.filter(passing_two_on(lambda key, value, *, context: True)),
            r"filter at FILE:\d+ is given <lambda>\(one, two\) as predicate, .* \(key, value, context=con",
            "lambda key, value, context: ...",
            id="decorator_that_does_not_pass_it_on",
        ),
        pytest.param(
            lambda s: s.group_by(lambda key, value, context: key),
            r"group_by at FILE:\d+ is given <lambda>\(key, value, context\) as selector, "
            r".* \(key, value\) \[KS-APP-003\]\n",
            "give filter, map_values, peek or the like of a stream what needs the record's context",
            id="where_there_is_none",
        ),
    ],
)
def test_function_is_refused_by_name_when_its_context_is_no_context(
    build: Build, said: str, fix: str
) -> None:
    with pytest.raises(TopologyError, match=said.replace("FILE", re.escape(__file__))) as refused:
        build(builder().stream("in"))
    assert fix in refused.value.fix


@pytest.mark.parametrize("call", ["filter_async", "map_values_async"])
def test_async_function_is_refused_when_its_context_takes_an_argument(call: str) -> None:
    async def asked(context: Any, *others: Any) -> bool:
        return True

    with pytest.raises(
        TopologyError, match=rf"{call} at .* is given asked\(context, \*others\) .* context=con"
    ):
        getattr(builder().stream("in"), call)(asked)
