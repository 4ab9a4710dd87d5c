"""Every public call of the DSL refuses what is no serde or no plain function, and names the argument. The
calls are found by the annotations of their parameters, so that a new one is covered as soon as it is there.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyarrow import schema, string

from airflow_kstreams import testing
from airflow_kstreams.streams import (
    DeltaTable,
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TopologyBuilder,
    TopologyError,
    TumblingWindow,
    ValueTransformer,
    WindowStoreSpec,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.state.stores.keyed_access import KeyedAccess
from airflow_kstreams.testing import TopologyTestDriver

WINDOWS = (
    TumblingWindow(size_ms=10),
    HoppingWindow(size_ms=10, advance_ms=5),
    SlidingWindow(size_ms=10),
    SessionWindow(gap_ms=10),
)
#: Types of parameters that hold a user's function.
FUNCTIONS = re.compile(
    r"\b(Predicate|Peek|Action|\w*Selector|\w*Mapper|\w*Joiner|Reducer|Initializer|Aggregator|Merger|Extract|"
    r"(Batch|Headers|Timestamp)Function|ProcessorDef|Partitioner|Callable)\b"
)


class Nothing(Processor):
    def process(self, record: ProcessorRecord) -> None:
        pass


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _windowed(window: Any) -> Any:
    return builder().stream("in").group_by_key().windowed_by(window)


def owners() -> dict[str, Callable[[], Any]]:
    """Return what has public calls: by name, how to make it."""
    found: dict[str, Callable[[], Any]] = {
        "KStreamBuilder": builder,
        "TopologyBuilder": lambda: TopologyBuilder().add_source("a", "in"),
        "KStream": lambda: builder().stream("in"),
        "WindowedKStream": lambda: builder().stream("in").with_window(SlidingWindow(size_ms=1)),
        "KGroupedStream": lambda: builder().stream("in").group_by_key(),
        "CogroupedKStream": lambda: builder().stream("in").group_by_key().cogroup(lambda *_: None),
        "KTable": lambda: builder().table("in"),
        "timestamps": lambda: timestamps,
        "serdes": lambda: serdes,
    }
    for window in WINDOWS:
        found[f"by {type(window).__name__}"] = functools.partial(_windowed, window)
    return found


#: What a parameter without default gets while another one is tried, by its name.
FITTING: dict[str, Callable[[Any], Any]] = {
    "topic": lambda _: "other",
    "name": lambda _: "n",
    "parent": lambda _: "a",
    "path": lambda _: "field",
    "size_ms": lambda _: 10,
    "partitions": lambda _: 2,
    "key_serde": lambda _: serdes.string(),
    "value_serde": lambda _: serdes.string(),
    "processor_def": lambda _: Nothing,
    "table": lambda _: DeltaTable("/lake/rows", row=schema([("text", string())])),
    "other": lambda owner: _partner(owner),
    "grouped": lambda owner: _group_beside(owner),
}
VARIADIC: dict[str, tuple[Any, ...]] = {"topics": ("more",), "parents": ("a",), "stores": ()}


def _partner(owner: Any) -> Any:
    known = owner._known
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    made._graph = known.graph
    if type(owner).__name__ == "WindowedKStream":
        return made.stream("partner").with_window(SlidingWindow(size_ms=1))
    return made.table("partner")


def _global_table_beside(owner: Any) -> Any:
    """What is joined by ``key=``."""
    made = builder()
    made._graph = owner._known.graph
    return made.global_table("partner")


def _group_beside(owner: Any) -> Any:
    made = builder()
    made._graph = owner._cogroup.groups[0].stream.graph
    return made.stream("partner").group_by_key()


#: Calls and parameters that an owner always refuses, whatever they are given.
_REFUSED = {
    "KStream": {"join_prior", "outer_join"},
    "by TumblingWindow": {"merger"},
    "by HoppingWindow": {"merger"},
    "by SlidingWindow": {"merger"},
}


def _a_function(_: Any) -> Callable[..., None]:
    return lambda *_: _[0]


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield owner, call, parameter of everything that takes a serde or a function."""
    for owner, make in owners().items():
        made = make()
        refused = _REFUSED.get(owner, set())
        for name in sorted(getattr(made, "__all__", dir(made))):
            call = getattr(made, name, None)
            if name.startswith("_") or not inspect.isroutine(call):
                continue
            for parameter in inspect.signature(call).parameters.values():
                if {name, parameter.name} & refused:
                    continue
                annotation = str(parameter.annotation)
                if re.search(r"\bSerde\b", annotation) or FUNCTIONS.search(annotation):
                    yield owner, name, parameter.name


#: What is needed though it has a default.
_NEEDED = ("by SessionWindow", "merger")


def call_with(owner: str, name: str, parameter: str, given: Any) -> None:
    """Make the call with one wrong argument and the others right."""
    made = owners()[owner]()
    call = getattr(made, name)
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for each in inspect.signature(call).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            named["one"] = given if each.name == parameter else _a_function(made)
        elif each.kind is each.VAR_POSITIONAL:
            arguments += [given] if each.name == parameter else VARIADIC[each.name]
        elif each.name == parameter:
            if each.kind is each.KEYWORD_ONLY:
                named[each.name] = given
            else:
                arguments.append(given)
        elif each.default is inspect.Parameter.empty or (owner, each.name) == _NEEDED:
            make: Callable[[Any], Any] = FITTING.get(each.name, _a_function)
            if (parameter, each.name) == ("key", "other"):
                make = _global_table_beside
            fitting = make(made)
            if each.kind is each.KEYWORD_ONLY:
                named[each.name] = fitting
            else:
                arguments.append(fitting)
    call(*arguments, **named)


async def _coroutine(*_: Any) -> Any:
    return True


async def _generator(*_: Any) -> Any:
    yield True


class _Called:
    async def __call__(self, *_: Any) -> Any:
        return True

    async def method(self, *_: Any) -> Any:
        return True


ASYNC = (
    _coroutine,
    _generator,
    functools.partial(_coroutine, 1),
    functools.partial(functools.partial(_coroutine, 1), 2),
    _Called(),
    _Called().method,
)
CALLS = sorted(set(calls()))
SERDE_CALLS = [each for each in CALLS if each[2].endswith("serde")]
FUNCTION_CALLS = [each for each in CALLS if not each[2].endswith("serde")]


def test_calls_are_found_when_there_are_some() -> None:
    assert len(SERDE_CALLS) >= 25
    assert len(FUNCTION_CALLS) >= 25


@pytest.mark.parametrize(("owner", "name", "parameter"), SERDE_CALLS)
@pytest.mark.parametrize("given", [serdes.string, "string"], ids=["not called", "text"])
def test_argument_is_named_when_it_is_no_serde(owner: str, name: str, parameter: str, given: Any) -> None:
    with pytest.raises(TopologyError, match=rf"test_arguments\.py:\d+ is given .* as {parameter}, ") as no:
        call_with(owner, name, parameter, given)
    assert "serdes.string()" in no.value.fix


class Order:
    pass


class Own(Serde[Any]):
    pass


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (str, "pass serdes.string()"),
        (int, "pass serdes.int64()"),
        (float, "pass serdes.double()"),
        (bytes, "pass serdes.bytes()"),
        (dict, "pass serdes.json()"),
        (Order, "pass serdes.of(Order)"),
        (Own, "pass Own(...)"),
        (lambda: serdes.string(), "pass what it returns, if that is one"),
        *((getattr(serdes, name), f"call it: serdes.{name}(") for name in serdes.__all__ if name != "Serde"),
    ],
)
def test_hint_names_a_serde_that_there_is(given: Any, fix: str) -> None:
    with pytest.raises(TopologyError) as no:
        builder().stream("in", key_serde=given)
    assert no.value.fix.startswith(fix)
    named = re.findall(r"serdes\.(\w+)", no.value.fix)
    assert all(callable(getattr(serdes, name)) for name in named)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (lambda record: 5, "wrap it: timestamps.extract(function)"),
        (max, "wrap it: timestamps.extract(function)"),
        (timestamps.wall_clock, "call it: timestamps.wall_clock()"),
        (timestamps.record_time, "call it: timestamps.record_time()"),
        (timestamps.value_field, "call it: timestamps.value_field('placed_ms')"),
        (timestamps.extract, "call it: timestamps.extract(function)"),
        ("placed_ms", "pass an extractor, e.g. timestamps.value_field('placed_ms')"),
    ],
)
def test_timestamps_are_named_when_they_are_no_extractor(given: Any, fix: str) -> None:
    def refused(call: Callable[[], Any], name: str) -> None:
        with pytest.raises(
            TopologyError, match=rf"{name} at .*test_arguments\.py:\d+ .* as timestamps,"
        ) as no:
            call()
        assert no.value.fix == fix

    refused(lambda: builder().stream("in", timestamps=given), "stream")
    refused(lambda: builder().table("in", timestamps=given), "table")
    refused(lambda: TopologyBuilder().add_source("a", "in", timestamps=given), "source 'a'")


@pytest.mark.parametrize("call", ["stream", "table", "global_table"])
@pytest.mark.parametrize("given", [5, None, b"in"])
def test_topic_is_named_when_it_is_no_text(call: str, given: Any) -> None:
    with pytest.raises(
        TopologyError,
        match=rf"{call} at .*test_arguments\.py:\d+ is given {type(given).__name__}, expected a",
    ) as no:
        getattr(builder(), call)(given)
    assert call in no.value.fix


@pytest.mark.parametrize("call", ["send_to", "through"])
@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (
            lambda key, value, context: "out",
            "write split(small=predicate), and send_to(topic) of each branch",
        ),
        (3, "pass a name, "),
    ],
)
def test_topic_is_asked_for_by_name_when_a_stream_is_sent_to_something_else(
    call: str, given: Any, fix: str
) -> None:
    with pytest.raises(TopologyError, match=rf"{call} at .*test_arguments\.py:\d+ is given") as no:
        getattr(builder().stream("in"), call)(given)
    assert no.value.fix.startswith(fix)


def _table(builder: KStreamBuilder) -> Any:
    return builder.table("table")


WINDOWED_BY = SlidingWindow(size_ms=3)


@pytest.mark.parametrize(
    ("build", "said", "fix"),
    [
        (lambda made: made.stream("in").repartition(), "missing a required argument: 'partitions'", "(8)"),
        (
            lambda made: made.stream("in").join(made.global_table("all"), str, str, str),
            "join at .*too many positional arguments",
            "join(global_table, joiner, key=selector)",
        ),
        (
            lambda made: made.stream("in").with_window(WINDOWED_BY).left_join(_table(made), str, str),
            "left_join at .*too many positional arguments",
            "join(table, joiner)",
        ),
        (
            lambda made: _table(made).join(_table(made), lambda value: value, lambda one, other: one),
            "join at .*too many positional arguments",
            "join(table, joiner, foreign_key=selector)",
        ),
        (
            lambda made: made.stream("in").split(lambda key, value: True),
            "split at .*too many positional arguments",
            "split(small=predicate, default='other')",
        ),
        (
            lambda made: made.stream("in").repartition(8, numberOfPartitions=8),
            "got an unexpected keyword argument 'numberOfPartitions'",
            "options by name",
        ),
    ],
)
def test_call_is_refused_with_its_line_when_its_arguments_are_those_of_java(
    build: Any, said: str, fix: str
) -> None:
    with pytest.raises(TopologyError, match=rf"at {__file__}:\d+: .*|{said}") as no:
        build(builder())
    assert re.search(said, no.value.cause)
    assert f"{__file__}:" in no.value.cause
    assert fix in no.value.fix


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda made: made.stream("in").filter(str, "name"), "KStream.filter"),
        (lambda made: made.stream("in").process_values(), "KStream.process_values"),
        (lambda made: made.stream("in").set_headers(), "KStream.set_headers"),
        (lambda made: made.stream("in").map_values_async(), "KStream.map_values_async"),
        (lambda made: KeyedAccess.get(made), "KeyValueStore.get"),  # type: ignore[call-arg]
    ],
)
def test_error_of_python_names_the_class_that_users_know(call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{re.escape(name)}\(\) "):
        call(builder())


@pytest.mark.parametrize("given", ["a b", "", "..", "x" * 250])
def test_topic_of_a_global_table_is_refused_when_kafka_does_not_allow_its_name(given: str) -> None:
    with pytest.raises(
        TopologyError, match=r"global_table at .*test_arguments\.py:\d+ reads '.*', which Kafka"
    ):
        builder().global_table(given)


@pytest.mark.parametrize("name", testing.__all__)
def test_room_is_named_when_a_test_asks_the_engine_for_what_testing_has(name: str) -> None:
    with pytest.raises(ImportError, match=f"from airflow_kstreams.testing import {name}"):
        exec(f"from airflow_kstreams.streams import {name}")


@pytest.mark.parametrize(("owner", "name", "parameter"), FUNCTION_CALLS)
@pytest.mark.parametrize("number", range(len(ASYNC)))
def test_argument_is_named_when_it_is_async(owner: str, name: str, parameter: str, number: int) -> None:
    with pytest.raises(
        TopologyError, match=rf"is given an async function( as {parameter}|, which would make)"
    ):
        call_with(owner, name, parameter, ASYNC[number])


def _yielding(*_: Any) -> Any:
    yield True


@pytest.mark.parametrize(("owner", "name", "parameter"), FUNCTION_CALLS)
@pytest.mark.parametrize("given", [_yielding, functools.partial(_yielding, 1)], ids=["plain", "partial"])
def test_argument_is_named_when_it_is_a_generator_function(
    owner: str, name: str, parameter: str, given: Any
) -> None:
    if name in ("flat_map", "flat_map_values"):
        call_with(owner, name, parameter, given)
        return
    with pytest.raises(
        TopologyError, match=rf"is given a (generator|plain) function( as {parameter}|, which would make)"
    ):
        call_with(owner, name, parameter, given)


def test_generator_function_is_refused_when_threads_call_it_unless_it_gives_several() -> None:
    stream = builder().stream("in")
    for call in (stream.filter_async, stream.map_values_async, stream.foreach_async):
        with pytest.raises(
            TopologyError, match=r"is given a generator function as (predicate|mapper|action)"
        ):
            call(_yielding, threads=True)
    stream.flat_map_values_async(_yielding, threads=True)


def _with_eight(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "parameter"), [each for each in FUNCTION_CALLS if each[2] != "processor_def"]
)
def test_argument_is_named_when_it_takes_other_arguments(owner: str, name: str, parameter: str) -> None:
    with pytest.raises(
        TopologyError,
        match=rf"test_arguments\.py:\d+ is given _with_eight\(.*\) as {parameter}, and calls it with",
    ) as no:
        call_with(owner, name, parameter, _with_eight)
    assert "e.g. lambda" in no.value.fix


@pytest.mark.parametrize("mapper", [str, max, print, functools.partial(pow, 2), lambda *given: given])
def test_function_is_taken_when_it_can_be_called_or_python_cannot_tell(mapper: Any) -> None:
    builder().stream("in").map_values(mapper)


@pytest.mark.parametrize(
    ("build", "instead"),
    [
        (
            lambda stream: stream.filter(lambda c, k, v: True),
            "; or for the record's context, lambda key, value, con",
        ),
        (
            lambda stream: stream.peek(lambda c, k, v: None),
            "; or for the record's context, lambda key, value, conte",
        ),
        (
            lambda stream: stream.map_values(lambda k, v: v),
            "; for the record's context, lambda value, context: ",
        ),
        (
            lambda stream: stream.map_values(lambda k, v: v),
            "; or for the record's key, lambda value, key: ...",
        ),
        (
            lambda stream: stream.flat_map_values(lambda k, v: [v]),
            "; or for the record's key, lambda value, key",
        ),
        (lambda stream: stream.to_table().map_values(lambda k, v: v), "record's key, lambda value, key: ..."),
        (
            lambda stream: stream.join(stream.to_table(), lambda k, v, o: v),
            "; or for the record's key, lambda value, other, key: ...",
        ),
        (
            lambda stream: stream.to_table().join(stream.to_table(store="2"), lambda k, v, o: v),
            "; or for the key, transform_values(definition) behind the join",
        ),
    ],
)
def test_what_takes_one_argument_more_is_told_what_gives_it(build: Any, instead: str) -> None:
    with pytest.raises(TopologyError, match="and calls it with") as no:
        build(builder().stream("in"))
    assert instead in no.value.fix


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.filter(lambda v: True),
        lambda stream: stream.filter(lambda a, b, c, d: True),
        lambda stream: stream.to_table().filter(lambda c, k, v: True),
    ],
)
def test_what_takes_other_arguments_is_told_nothing_more(build: Any) -> None:
    with pytest.raises(TopologyError, match="and calls it with") as no:
        build(builder().stream("in"))
    assert no.value.fix.endswith(": ...")


def test_call_is_taken_when_it_declares_what_it_is_offered() -> None:
    async def called(value: str, *, context: Any, resource: Any = None) -> str:
        return value

    async def pair(first: str, second: str) -> str:
        return first

    builder().stream("in").map_values_async(called)
    two: Any = pair
    with pytest.raises(TopologyError, match=r"given pair\(.*\) as mapper, and calls it with \(value\)"):
        builder().stream("in").map_values_async(two)


@pytest.mark.parametrize("argument", ["default_key_serde", "default_value_serde"])
@pytest.mark.parametrize("given", [serdes.string, "string"], ids=["not called", "text"])
def test_default_is_named_when_it_is_no_serde(argument: str, given: Any) -> None:
    with pytest.raises(TopologyError, match=rf"KStreamBuilder at .* as {argument}, expected a serde"):
        KStreamBuilder(**{argument: given})


@pytest.mark.parametrize("kind", [StoreSpec, WindowStoreSpec, SessionStoreSpec])
@pytest.mark.parametrize("argument", ["key_serde", "value_serde"])
@pytest.mark.parametrize("given", [serdes.string, "string"], ids=["not called", "text"])
def test_argument_of_a_store_is_named_when_it_is_no_serde(kind: Any, argument: str, given: Any) -> None:
    facts = {"name": "s", "key_serde": serdes.string(), "value_serde": serdes.string(), argument: given}
    if kind is not StoreSpec:
        facts["retention_ms"] = 1
    with pytest.raises(TopologyError, match=rf"{kind.__name__} at .* as {argument}, expected a serde"):
        kind(**facts)


def test_storage_is_named_when_there_is_no_such() -> None:
    with pytest.raises(TopologyError, match=r"StoreSpec at .*test_arguments.* has storage='rocks'") as no:
        StoreSpec(
            name="s",
            key_serde=serdes.string(),
            value_serde=serdes.string(),
            storage="rocks",  # type: ignore[arg-type]
        )
    assert "memory, rocksdb" in no.value.fix


@pytest.mark.parametrize(
    ("name", "hint"), [("retention.msec", "retention.ms"), ("min.compaction.lag", "min.compaction.lag.ms")]
)
def test_changelog_setting_is_named_when_no_topic_has_it(name: str, hint: str) -> None:
    with pytest.raises(TopologyError, match=f"store 's' sets '{name}' in changelog_configs") as no:
        StoreSpec(
            name="s",
            key_serde=serdes.string(),
            value_serde=serdes.string(),
            changelog_configs={name: "1"},
        )
    assert hint in no.value.fix


def test_changelog_setting_is_taken_when_only_one_maker_has_it() -> None:
    StoreSpec(
        name="s",
        key_serde=serdes.string(),
        value_serde=serdes.string(),
        changelog_configs={"confluent.placement.constraints": "{}", "segment.ms": "1"},
    )


def test_store_is_named_when_it_is_neither_name_nor_spec() -> None:
    with pytest.raises(TopologyError, match=r"count at .* is given serdes.string as store"):
        builder().stream("in").group_by_key().count(store=serdes.string())  # type: ignore[arg-type]


def test_name_of_a_store_is_refused_when_it_is_empty() -> None:
    stream = builder().stream("in")
    calls: dict[str, Callable[..., Any]] = {
        "table": lambda **store: builder().table("in", **store),
        "count": lambda **store: stream.group_by_key().count(**store),
        "to_table": lambda **store: stream.to_table(**store),
        "map_values": lambda **store: builder().table("in").map_values(str, **store),
    }
    for name, call in calls.items():
        with pytest.raises(TopologyError, match=rf"{name}(\(.*\))? at .* is given '' as store"):
            call(store="")


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (["s", "t"], "name them one by one: {call}(definition, 'totals', 'counts')"),
        ({"s"}, "name them one by one"),
        (None, "leave it out"),
        (5, "pass the store's name, or a StoreSpec"),
        ("table", "pass the name of the table's store: {call}(definition, table.store)"),
        ("global table", "join with the global table above"),
    ],
)
@pytest.mark.parametrize("call", ["process", "process_values", "transform_values"])
def test_store_of_a_processor_is_refused_when_it_is_neither_name_nor_spec(
    call: str, given: Any, fix: str
) -> None:
    made = builder()
    table = made.table("t")
    given = {"table": table, "global table": made.global_table("g")}.get(str(given), given)
    owner, definition = (
        (table, TransformsKeyAndValue) if call == "transform_values" else (made.stream("in"), Nothing)
    )
    with pytest.raises(
        TopologyError, match=rf"{call} at .* is given {type(given).__name__} as a store"
    ) as no:
        getattr(owner, call)(definition, given)
    assert fix.format(call=call) in no.value.fix


class Asynchronous(Processor):
    async def process(self, record: ProcessorRecord) -> None:  # type: ignore[override]
        pass


def test_processor_is_refused_when_a_method_is_async() -> None:
    with pytest.raises(TopologyError, match=r"Asynchronous\.process is async"):
        builder().stream("in").process(Asynchronous)
    made = builder()
    made.stream("in").process(lambda: Asynchronous()).send_to("out")
    with pytest.raises(TopologyError, match=r"Asynchronous\.process is async"):
        TopologyTestDriver(made.build(), application_id="app")


class Generating(Processor):
    def process(self, record: ProcessorRecord) -> Any:
        yield record


class TakesKeyAndValue(Processor):
    def process(self, key: Any, value: Any) -> None:  # type: ignore[override]
        pass


class TakesNoContext(Nothing):
    def init(self) -> None:  # type: ignore[override]
        pass


class WithoutProcess(Processor):
    pass


class TransformsKeyAndValue(ValueTransformer):
    def transform(self, key: Any, value: Any) -> Any:
        return value


class TransformsValue(ValueTransformer):
    def transform(self, value: Any) -> Any:  # type: ignore[override]
        return value


class TransformsOneByOne(ValueTransformer):
    def transform(self, key: Any, value: Any) -> Any:
        yield value


@pytest.mark.parametrize(
    ("call", "definition", "message", "fix"),
    [
        ("process", Generating, "Generating.process is a generator", "forwarded by the context"),
        (
            "process",
            TakesKeyAndValue,
            r"TakesKeyAndValue.process takes \(self, key, value\), and is called with \(self, record\)",
            "write def process(self, record)",
        ),
        ("process", TakesNoContext, r"init takes \(self\)", "write def init(self, context)"),
        (
            "process",
            WithoutProcess,
            "WithoutProcess has no method process",
            "write def process(self, record)",
        ),
        ("process", Order, "is given Order, which is no Processor", "derive the class from"),
        ("process", TransformsKeyAndValue, "which is no Processor", "pass it to KTable.transform_values"),
        ("process_values", TransformsKeyAndValue, "which is no Processor", "KTable.transform_values"),
        ("transform_values", TransformsValue, r"takes \(self, value\)", "def transform(self, key, value)"),
        ("transform_values", TransformsOneByOne, "transform is a generator", "write transform without yield"),
    ],
)
def test_class_is_refused_at_its_line_when_its_methods_cannot_be_called(
    call: str, definition: Any, message: str, fix: str
) -> None:
    made = builder()
    owner = made.table("in") if call == "transform_values" else made.stream("in")
    with pytest.raises(TopologyError, match=rf"{call} at .*test_arguments\.py:\d+.*{message}") as no:
        getattr(owner, call)(definition)
    assert fix in no.value.fix


def test_function_is_refused_in_its_task_when_the_methods_of_what_it_makes_cannot_be_called() -> None:
    made = builder()
    made.stream("in").process(lambda: TakesKeyAndValue()).send_to("out")
    with pytest.raises(TopologyError, match=r"TakesKeyAndValue\.process takes"):
        TopologyTestDriver(made.build(), application_id="app")


class Schedules(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, callback=_coroutine)  # type: ignore[arg-type]

    def process(self, record: ProcessorRecord) -> None:
        pass


class SchedulesGenerator(Nothing):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, callback=_yielding)


class SchedulesWithoutTime(Nothing):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, callback=lambda: None)  # type: ignore[misc, arg-type]


class Sends(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.send("out", "k", "v", value_serde=serdes.string)  # type: ignore[arg-type]

    def process(self, record: ProcessorRecord) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Schedules, "schedules an async function"),
        (SchedulesGenerator, "schedules a generator function"),
        (SchedulesWithoutTime, r"schedule at .* as callback, and calls it with \(time_ms\)"),
        (Sends, r"send at .* as value_serde, expected a serde"),
    ],
)
def test_call_of_a_processor_is_refused_when_its_argument_does_not_fit(kind: Any, message: str) -> None:
    made = builder()
    made.stream("in").process(kind).send_to("out")
    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(made.build(), application_id="app")


def test_output_is_not_read_when_a_serde_is_none() -> None:
    made = builder()
    made.stream("in").send_to("out")
    with (
        TopologyTestDriver(made.build(), application_id="app") as driver,
        pytest.raises(TopologyError, match=r"read_output at .* as key_serde, expected a serde"),
    ):
        driver.read_output("out", key_serde=serdes.string)  # type: ignore[arg-type]
