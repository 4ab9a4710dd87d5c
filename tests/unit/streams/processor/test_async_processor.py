"""Processors whose calls run side by side: what they forward leaves as a plain processor's does, and what
they cannot do is said by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    KStreamBuilder,
    KStreamsError,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RetryPolicy,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("processors-forward-in-order", "processors-with-calls-have-no-state")

SEEDS = range(6)
STORE = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json())
RECORDS = [(f"k{n % 3}", n, n) for n in range(24)]

Act = Callable[[Any, ProcessorRecord], Any]


def spread(context: AsyncProcessorContext | ProcessorContext, record: ProcessorRecord) -> None:
    """Use all the ways out that a processor has."""
    held = [record.value]
    for number in range(record.value % 3):
        held.append(number)
        context.forward(record.key, held)
    held.append("later")
    context.forward("left", held, to="left", timestamp_ms=record.timestamp_ms + 100)
    context.forward("right", context.offset, to="right", headers=[*context.headers, ("h", b"1")])
    if record.value == 5:
        context.send("sent", b"by", b"name")


class Plain(Processor):
    """Acts at once, or on threads where a task has several."""

    threads = True

    def __init__(self, act: Act = spread) -> None:
        self.act = act

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        if self.act is spread:
            context.forward("init", context.timestamp_ms, to="left")

    def process(self, record: ProcessorRecord) -> None:
        self.act(self.context, record)

    def close(self) -> None:
        if self.act is spread:
            self.context.forward("close", self.context.timestamp_ms, to="right")


class Awaiting(AsyncProcessor):
    """Acts after a while, or awaits what its act gives."""

    def __init__(self, act: Act = spread) -> None:
        self.act = act

    def init(self, context: AsyncProcessorContext) -> None:
        self.context = context
        if self.act is spread:
            context.forward("init", context.timestamp_ms, to="left")

    async def process(self, record: ProcessorRecord) -> None:
        await asyncio.sleep(record.value % 4 / 10 if isinstance(record.value, int) else 0)
        answer = self.act(self.context, record)
        if answer is not None:
            await answer

    def close(self) -> None:
        if self.act is spread:
            self.context.forward("close", self.context.timestamp_ms, to="right")


class OnThread(AsyncProcessor):
    """Acts on a thread."""

    def __init__(self, act: Act = spread) -> None:
        self.act = act

    init = Awaiting.init
    close = Awaiting.close

    def process(self, record: ProcessorRecord) -> None:
        self.act(self.context, record)

    context: AsyncProcessorContext


def low_level(add: Callable[[TopologyBuilder], object]) -> Topology:
    """Build a topology around a processor ``p`` behind the source ``in``, with two sinks."""
    builder = TopologyBuilder().add_source("in", "in", key_serde=serdes.string(), value_serde=serdes.json())
    add(builder)
    for name in ("left", "right"):
        builder.add_sink(name, name, "p", key_serde=serdes.string(), value_serde=serdes.json())
    return builder.build()


def written(topology: Topology, seed: int = 0, **settings: Any) -> dict[str, list[Any]]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with TopologyTestDriver(topology, application_id="app", settings=named, async_seed=seed) as driver:
        driver.pipe_records("in", RECORDS)
        driver.restart()
        driver.pipe_records("in", [(key, value + 1, timestamp_ms) for key, value, timestamp_ms in RECORDS])
        driver.restart()
        return {topic: driver.read_output(topic) for topic in ("left", "right", "sent")}


def acting(act: Act, **options: Any) -> Topology:
    return low_level(lambda b: b.add_processor_async("p", functools.partial(Awaiting, act), "in", **options))


def failing(topology: Topology, **settings: Any) -> str:
    """Return what a task says when it fails at a record, or before it."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(KStreamsError) as caught:  # noqa: SIM117
        with contextlib.closing(TopologyTestDriver(topology, application_id="app", settings=named)) as driver:
            driver.pipe_input("in", key="k", value=1, timestamp_ms=7)
    # Not the traceback: it shows the lines of this file, and so what a test expects.
    return f"{type(caught.value).__name__}: {caught.value.cause}\n{caught.value.fix}"


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    found = written(low_level(lambda b: b.add_processor("p", Plain, "in")))
    assert [len(found[topic]) for topic in ("left", "right", "sent")] == [99, 98, 2]
    return found


@pytest.mark.parametrize("made", [Awaiting, OnThread])
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
def test_what_calls_forward_is_what_a_plain_processor_forwards_when_they_end_in_any_order(
    expected: dict[str, list[Any]], made: Any, order: Any
) -> None:
    for seed in SEEDS:
        topology = low_level(
            lambda b: b.add_processor_async(
                "p", made, "in", order=order, threads=made is OnThread, max_in_flight=4
            )
        )
        assert written(topology, seed) == expected


@pytest.mark.parametrize("definition", [Plain, lambda: Plain(), functools.partial(Plain, spread)])
def test_a_processor_that_declares_threads_forwards_the_same_on_them(
    expected: dict[str, list[Any]], definition: Any
) -> None:
    for seed in SEEDS:
        topology = low_level(lambda b: b.add_processor("p", definition, "in"))
        assert written(topology, seed, num_threads_per_task=3, num_stream_threads=3) == expected


class Ending(Processor):
    """Forwards at its end alone, beside what is below it."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value, to="p")

    def close(self) -> None:
        self.context.forward("above", 1, to="beside")


@pytest.mark.parametrize("made", [Awaiting, Plain])
def test_what_processors_forward_at_their_end_leaves_in_the_order_of_the_topology(made: Any) -> None:
    builder = TopologyBuilder().add_source("in", "in", key_serde=serdes.string(), value_serde=serdes.json())
    builder.add_processor("above", Ending, "in")
    if made is Awaiting:
        builder.add_processor_async("p", made, "above")
    else:
        builder.add_processor("p", made, "above")
    for name, topic, parent in (("beside", "right", "above"), ("left", "left", "p"), ("right", "right", "p")):
        builder.add_sink(name, topic, parent, key_serde=serdes.string(), value_serde=serdes.json())
    found = [record.key for record in written(builder.build())["right"] if record.key in ("above", "close")]
    assert found == ["above", "close"] * 2


def test_dsl_stream_is_what_the_processor_forwards() -> None:
    async def twice(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        context.forward(record.key, record.value)
        await asyncio.sleep(1 / record.value)
        context.forward(record.key, -record.value)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in").process_async(functools.partial(Awaiting, twice), name="twice")
    stream.map_values(lambda value: [value]).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app", async_seed=3) as driver:
        driver.pipe_records("in", [("a", 1, 1), ("b", 2, 2)])
        found = driver.read_output("out")
        assert [record.value for record in found] == [[1], [-1], [2], [-2]]


def test_a_topology_may_end_in_an_async_processor() -> None:
    seen: list[Any] = []
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    note = functools.partial(Awaiting, lambda context, record: seen.append(context.idempotency_key))
    builder.stream("in").process_async(note, name="note")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
    assert seen == ["app/in-0@0/test/note/0"]


def test_each_call_has_the_facts_of_its_own_record() -> None:
    seen: dict[Any, tuple[Any, ...]] = {}

    async def note(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        await asyncio.gather(asyncio.sleep(0.01), look(context, record))

    async def look(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        await asyncio.sleep(1 / (1 + record.value))
        seen[record.value] = (
            context.topic,
            context.partition,
            context.offset,
            context.timestamp_ms,
            context.headers,
            context.idempotency_key,
            context.task_id,
        )

    with TopologyTestDriver(acting(note), application_id="app", async_seed=1) as driver, driver.run():
        for n in range(5):
            driver.pipe_input("in", key="k", value=n, timestamp_ms=10 + n, headers=[("n", b"%d" % n)])
    assert seen == {
        n: ("in", 0, n, 10 + n, [("n", b"%d" % n)], f"app/in-0@{n}/test/p/0", "0_0") for n in range(5)
    }


def test_wall_clock_is_the_drivers() -> None:
    seen: list[int] = []
    with TopologyTestDriver(
        acting(lambda context, record: seen.append(context.wall_clock_ms)), application_id="app"
    ) as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=0)
        driver.advance_wall_clock(500)
        driver.pipe_input("in", key="k", value=0, timestamp_ms=0)
    assert seen[1] - seen[0] == 500


def test_calls_share_what_the_resource_gave() -> None:
    opened: list[object] = []

    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[object]:
        opened.append(object())
        yield opened[-1]
        opened.append("closed")

    seen: set[Any] = set()
    topology = acting(lambda context, record: seen.add(context.resource), resource=session)
    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe_records("in", RECORDS)
        assert seen == {opened[0]}
    assert opened[1:] == ["closed"]


def test_nothing_of_a_call_that_fails_leaves() -> None:
    def fail(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        context.forward(record.key, "before", to="left")
        if record.value == 1:
            raise ValueError("no")

    settings = {"processing.exception.handler": "dead-letter"}
    with TopologyTestDriver(acting(fail), application_id="app", settings=settings) as driver:
        driver.pipe_records("in", [("a", 1, 1), ("b", 2, 2)])
        assert [record.key for record in driver.read_output("left")] == ["b"]
        (letter,) = driver.read_output("app-dead-letter")
        assert dict(letter.headers)["__streams.errors.node"] == b"p"


def test_an_error_of_a_call_shows_the_users_line() -> None:
    def fail(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        raise ValueError("no")

    error = failing(acting(fail))
    assert error.startswith("RecordError")
    assert "in-0@0 at node 'p'" in error
    assert "test_async_processor.py" in error


class Forgetting(AsyncProcessor):
    """Awaits nothing of what would forward."""

    def init(self, context: AsyncProcessorContext) -> None:
        self.context = context

    async def forward(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)

    async def process(self, record: ProcessorRecord) -> Any:
        return self.forward(record)


class ForgettingOnThread(Forgetting):
    def process(self, record: ProcessorRecord) -> Any:
        return self.forward(record)


@pytest.mark.parametrize("made", [Forgetting, ForgettingOnThread])
def test_a_call_fails_when_it_gives_a_coroutine_that_would_never_run(made: Any) -> None:
    threads = made is ForgettingOnThread
    error = failing(low_level(lambda b: b.add_processor_async("p", made, "in", threads=threads)))
    assert "TypeError: the function returned a coroutine" in error


@pytest.mark.parametrize("order", ["key", "unordered", "partition"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_that_failed_is_made_again_and_what_it_forwards_leaves_once(order: Any, seed: int) -> None:
    keys: list[str] = []

    def ask(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        context.forward(record.key, [record.value, "first"], to="left")
        if record.value == 1:
            keys.append(context.idempotency_key)
        if len(keys) == 1 and record.value == 1:
            raise ConnectionError
        context.forward(record.key, [record.value, "second"], to="left")

    retry = RetryPolicy(jitter=0, key_serde=serdes.string(), value_serde=serdes.json())
    with TopologyTestDriver(
        acting(ask, order=order, retry=retry), application_id="app", async_seed=seed
    ) as driver:
        driver.pipe_records("in", [("a", 1, 1), ("b", 3, 2), ("a", 2, 3)])
        if order != "partition":
            assert [record.key for record in driver.read_output("left")] == ["b", "b"]
            driver.restart()
            driver.advance_wall_clock(1_000)
        found = [(record.value, record.timestamp_ms) for record in driver.read_output("left")]
        of_a = [each for each in found if each[0][0] != 3]
        assert of_a == [([1, "first"], 1), ([1, "second"], 1), ([2, "first"], 3), ([2, "second"], 3)]
    assert keys == ["app/in-0@0/test/p/0"] * 2


def test_dsl_parks_records_by_the_serdes_of_its_stream() -> None:
    def refuse(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        raise ConnectionError

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").process_async(
        functools.partial(Awaiting, refuse), order="key", retry=RetryPolicy(), name="ask"
    )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=7)
        (parked,) = driver.read_output("app-ask-retry")
        assert (parked.key.key, parked.value.value) == (b"a", b"1")


def test_exploring_shows_what_calls_forward() -> None:
    topology = acting(lambda context, record: context.forward(record.key, 1))
    records = tuple(
        SampleRecord(topic="in", offset=n, key=b"k", value=b"%d" % n, timestamp_ms=n) for n in range(3)
    )
    counts = explore(topology, sample=Sample(records=records, partitions={"in": 1})).counts("p")
    assert (counts.records_in, counts.records_out, counts.failed) == (3, 3, 0)


# What cannot be done in a call.


@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda c: c.commit(), "'p' asks for a commit.*above or below"),
        (lambda c: c.schedule(5), "'p' schedules a punctuation.*above, below or beside"),
        (lambda c: c.state_store("seen"), "'p' asks for a store.*with process"),
        (lambda c: c.get_state_store("seen"), "'p' asks for a store"),
        (lambda c: c.getStateStore("seen"), "'p' asks for a store"),
        (lambda c: c.stream_time_ms, "'p' asks for stream time.*timestamp_ms"),
        (lambda c: c.resource, "'p' asks for a resource, and was given none.*resource="),
        (lambda c: c.forward("k", 1, to="other"), "'p' has no child 'other'.*left, right"),
        (lambda c: c.forward("k", threading.Lock()), "'p' forwards what must stay as it is.*lock"),
    ],
)
def test_what_a_call_cannot_ask_for_is_said_by_name(use: Callable[[Any], object], found: str) -> None:
    error = failing(acting(lambda context, record: use(context) and None))
    assert re.search(f"^TopologyError.*{found}", error, re.DOTALL)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda c: c.commit(), "'p' asks for a commit"),
        (lambda c: c.schedule(5, callback=print), "'p' schedules a punctuation"),
        (lambda c: c.state_store("seen"), "'p' asks for a store"),
        (lambda c: c.stream_time_ms, "'p' asks for stream time"),
    ],
)
def test_a_processor_that_declares_threads_is_refused_the_same_whatever_their_number(
    threads: int, use: Callable[[Any], object], found: str
) -> None:
    made = functools.partial(Plain, lambda context, record: use(context))
    topology = low_level(lambda b: b.add_processor("p", made, "in"))
    error = failing(topology, num_threads_per_task=threads, num_stream_threads=threads)
    assert error.startswith("TopologyError")
    assert found in error


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"timestamp_ms": -1}, "timestamp_ms is a number below 0, expected epoch milliseconds from 0 to"),
        ({"timestamp_ms": 4.5}, "timestamp_ms is float, expected int"),
        ({"headers": {"a": b"b"}}, "headers are dict, expected a list of pairs"),
        ({"headers": [("a", "b")]}, "headers are a list that holds something else than pairs"),
    ],
)
def test_time_and_headers_are_refused_when_kafka_holds_no_such(given: dict[str, Any], found: str) -> None:
    error = failing(acting(lambda context, record: context.forward("k", 1, **given)))
    assert f"forward: {found}" in error


def test_other_names_of_kafka_streams_are_answered() -> None:
    error = failing(acting(lambda context, record: context.record_metadata()))
    assert "write topic, partition and offset" in error


def test_forwarding_is_refused_when_the_call_has_ended() -> None:
    left: list[asyncio.Task[None]] = []
    errors: list[BaseException | None] = []

    async def late(context: AsyncProcessorContext) -> None:
        await asyncio.sleep(1)
        try:
            context.forward("late", 1, to="left")
        except TopologyError as error:
            errors.append(error)

    async def leave_behind(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        if record.value == 0:
            left.append(asyncio.get_running_loop().create_task(late(context)))
        else:
            await asyncio.sleep(2)

    with TopologyTestDriver(acting(leave_behind), application_id="app") as driver:
        driver.pipe_records("in", [("a", 0, 1), ("a", 1, 2)])
        assert driver.read_output("left") == []
    (error,) = errors
    assert "'p' forwards after its call has ended" in str(error)
    assert "await in process" in str(error)


def test_forwarding_is_refused_on_a_thread_of_the_users_own() -> None:
    errors: list[str] = []

    def elsewhere(context: AsyncProcessorContext) -> None:
        try:
            context.forward("k", 1)
        except TopologyError as error:
            errors.append(str(error))

    def start(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        thread = threading.Thread(target=elsewhere, args=(context,))
        thread.start()
        thread.join()

    with TopologyTestDriver(acting(start), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0)
    (error,) = errors
    assert "'p' forwards outside of its calls" in error


class AsksInInit(Awaiting):
    def init(self, context: AsyncProcessorContext) -> None:
        self.act(context, ProcessorRecord("", "", 0, []))


@pytest.mark.parametrize(
    ("act", "found"),
    [
        (lambda context, record: context.idempotency_key, "asks for an idempotency key in init or close"),
        (lambda context, record: context.resource, "asks for its resource in init or close"),
        (lambda context, record: context.commit(), "asks for a commit"),
    ],
)
def test_what_belongs_to_calls_is_refused_in_init(act: Act, found: str) -> None:
    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[int]:
        yield 1

    made = functools.partial(AsksInInit, act)
    topology = low_level(lambda b: b.add_processor_async("p", made, "in", resource=session))
    assert found in failing(topology)


def test_there_is_no_record_in_init_and_no_call_once_it_is_over() -> None:
    seen: list[Any] = []
    kept: list[AsyncProcessorContext] = []

    def look(context: AsyncProcessorContext, record: ProcessorRecord) -> None:
        kept.append(context)
        seen.append((context.topic, context.partition, context.offset, context.headers, context.timestamp_ms))

    made = functools.partial(AsksInInit, look)
    topology = low_level(lambda b: b.add_processor_async("p", made, "in"))
    with TopologyTestDriver(topology, application_id="app"):
        assert seen == [(None, -1, -1, [], 0)]
        with pytest.raises(TopologyError, match="'p' forwards outside of its calls"):
            kept[0].forward("k", 1)


# What cannot be built.


class Generating(AsyncProcessor):
    async def process(self, record: ProcessorRecord) -> Any:
        yield record


class AsyncInit(Awaiting):
    async def init(self, context: AsyncProcessorContext) -> None:  # type: ignore[override]
        self.context = context


class Coroutine(Plain):
    async def process(self, record: ProcessorRecord) -> None:  # type: ignore[override]
        pass


class Punctuating(Plain):
    def punctuate(self, stream_time_ms: int) -> None:
        pass


class Threads(Plain):
    threads = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("definition", "options", "found"),
    [
        (Awaiting(), {}, "an instance of Awaiting, which all tasks would share"),
        (5, {}, "5, which cannot be called.*pass an AsyncProcessor class"),
        (dict, {}, "dict, which is no AsyncProcessor"),
        (Plain, {}, "Plain, which is no AsyncProcessor.*pass it to process, where threads = True"),
        (OnThread, {}, "OnThread.process is plain: it would hold up every other call"),
        (Awaiting, {"threads": True}, "Awaiting.process is async, and threads=True"),
        (Generating, {}, "Generating.process is an async generator"),
        (AsyncInit, {}, "AsyncInit.init is async.*resource="),
        (Awaiting, {"max_in_flight": 0}, "max_in_flight=0"),
        (Awaiting, {"timeout_ms": 0}, "timeout_ms=0"),
        (Awaiting, {"order": "any"}, "order='any'"),
        (Awaiting, {"threads": 4}, "threads=4"),
        (Awaiting, {"retry": 3}, "int as retry"),
        (Awaiting, {"resource": 5}, "int as resource"),
    ],
)
@pytest.mark.parametrize("dsl", [True, False])
def test_a_node_is_refused_at_its_line_when_it_cannot_be(
    definition: Any, options: dict[str, Any], found: str, dsl: bool
) -> None:
    where = r"process_async at .*test_async_processor\.py:\d+" if dsl else r"processor 'p' at .*\.py:\d+"
    with pytest.raises(TopologyError, match=f"(?s)^{where}.*{found}"):
        if dsl:
            stream = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
            stream.stream("in").process_async(definition, name="p", **options)
        else:
            low_level(lambda b: b.add_processor_async("p", definition, "in", **options))


def test_a_function_that_makes_no_such_processor_is_refused_in_its_task() -> None:
    for definition, found in (
        (lambda: 5, "made a int, expected an AsyncProcessor"),
        (lambda: OnThread(), "OnThread.process is plain"),
    ):
        made: Any = definition
        topology = low_level(lambda b, made=made: b.add_processor_async("p", made, "in"))  # type: ignore[misc]
        assert found in failing(topology)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_function_that_makes_a_processor_that_cannot_be_is_refused_in_its_task(threads: int) -> None:
    topology = low_level(lambda b: b.add_processor("p", lambda: Punctuating(), "in"))
    error = failing(topology, num_threads_per_task=threads, num_stream_threads=threads)
    assert "declares threads = True and has a punctuate method" in error


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        (Coroutine, "(?s)Coroutine.process is async.*AsyncProcessor and use process_async"),
        (Punctuating, "declares threads = True and has a punctuate method"),
        (Threads, "Threads.threads is 3"),
    ],
)
def test_a_processor_class_is_refused_when_what_it_declares_cannot_be(definition: Any, found: str) -> None:
    with pytest.raises(TopologyError, match=found):
        low_level(lambda b: b.add_processor("p", definition, "in"))


@pytest.mark.parametrize(
    ("add", "found"),
    [
        (
            lambda b: b.add_processor_async("p", Awaiting, "in").add_state_store(STORE, "p"),
            r"'p' \(.*runs calls for several records at once, and is connected to the store 'seen'",
        ),
        (
            lambda b: b.add_processor("p", Plain, "in", stores=["seen"]).add_state_store(STORE),
            r"'p' \(.*declares threads = True, and is connected to the store 'seen'",
        ),
        (
            lambda b: b.add_processor_async("p", Awaiting, "in", order="key", retry=RetryPolicy()),
            "'p' at .* has a retry topic, and its RetryPolicy no key_serde",
        ),
    ],
)
def test_stores_are_refused_by_name_when_the_topology_is_built(
    add: Callable[[TopologyBuilder], object], found: str
) -> None:
    with pytest.raises(TopologyError, match=found):
        low_level(add)


@pytest.mark.parametrize("store", ["seen", STORE])
def test_stores_are_refused_by_name_where_the_dsl_is_given_them(store: Any) -> None:
    stream = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json()).stream("in")
    with pytest.raises(TopologyError, match=r"process_async at .* is given the store 'seen'"):
        stream.process_async(Awaiting, store)
