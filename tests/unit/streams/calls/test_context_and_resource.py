from __future__ import annotations

import asyncio
import functools
import random
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kstreams.streams import (
    CallContext,
    KStreamBuilder,
    KStreamsError,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    RetryPolicy,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.calls import abandoned, threaded_caller
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import TopologyTestDriver, seeded_caller
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

pytestmark = pytest.mark.promise("calls-keep-their-key")

IN = TopicPartition("in", 0)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def task(topology: Topology, *, make_caller: MakeCaller | None = None, crashes: int = 0) -> TaskOnLogs:
    log = log_of(IN, [(b"k", b"%d" % n, 100 + n) for n in range(12)])
    rng = random.Random(7)
    return TaskOnLogs(topology=topology, logs={IN: log}, rng=rng, crashes=crashes, make_caller=make_caller)


def test_context_tells_of_the_consumed_record() -> None:
    told = []

    async def ask(value: Any, *, context: CallContext) -> Any:
        told.append(
            (context.topic, context.partition, context.offset, context.timestamp_ms, context.headers[0][1])
        )
        assert (context.node, context.task_id) == ("ask", "0_0")
        return value

    made = builder()
    made.stream("in").map_values_async(ask, name="ask").send_to("out")
    task(made.build()).run()
    assert sorted(told) == [("in", 0, n, 100 + n, b"in-0@%d" % n) for n in range(12)]


def test_idempotency_key_is_the_same_in_every_attempt() -> None:
    keys: dict[int, set[str]] = {}

    async def first(value: Any, *, context: CallContext) -> Any:
        await asyncio.sleep(value % 3)
        keys.setdefault(value, set()).add(context.idempotency_key)
        return value

    async def second(value: Any, *, context: CallContext) -> Any:
        keys.setdefault(1000 + value, set()).add(context.idempotency_key)
        return value

    made = builder()
    twice = made.stream("in").flat_map_values(lambda value: [value, value + 100])
    twice.map_values_async(first, name="first").map_values_async(second, name="second").send_to("out")
    seeds = iter(range(100))
    run = task(
        made.build(),
        make_caller=lambda async_nodes: SeededCaller(async_nodes, seed=next(seeds)),
        crashes=4,
    )
    run.run()
    assert next(seeds) > 2, "no attempt died"
    assert len(run.outputs) == 24
    assert keys == {
        kind + value + 100 * ordinal: {f"app/in-0@{value}/id of in/{node}/{ordinal}"}
        for kind, node in ((0, "first"), (1000, "second"))
        for ordinal in (0, 1)
        for value in range(12)
    }


def test_idempotency_key_is_refused_when_a_commit_point_emits() -> None:
    async def ask(value: Any, *, context: CallContext) -> Any:
        assert (context.topic, context.partition, context.offset, context.headers) == (None, -1, -1, [])
        return context.idempotency_key

    made = builder()
    made.stream("in").group_by_key().count(store="n").to_stream().map_values_async(ask).send_to(
        "out", value_serde=serdes.json()
    )
    with pytest.raises(TopologyError, match="asks for the idempotency key of a call that no consumed record"):
        task(made.build()).run()


class Ticking(Processor):
    """Forwards by a clock alone."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(5, clock=self.clock)

    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""

    def punctuate(self, stream_time_ms: int) -> None:
        self.context.forward("tick", stream_time_ms)


@pytest.mark.parametrize("clock", ["stream_time", "wall_clock"])
@pytest.mark.parametrize("retry", [None, RetryPolicy(key_serde=serdes.string(), value_serde=serdes.json())])
def test_idempotency_key_is_refused_when_a_timer_led_to_the_call(
    clock: str, retry: RetryPolicy | None
) -> None:
    async def ask(value: Any, *, context: CallContext) -> Any:
        return context.idempotency_key

    made = builder()
    ticks = made.stream("in").process(lambda: Ticking(clock))
    ticks.map_values_async(ask, order="key", retry=retry, name="ask").send_to(
        "out", key_serde=serdes.string(), value_serde=serdes.json()
    )
    driver = TopologyTestDriver(made.build(), application_id="app")
    with pytest.raises(TopologyError, match="'ask' asks for the idempotency key of a call that no consumed"):
        for timestamp_ms in (1, 20):
            driver.pipe_input("in", key="k", value=1, timestamp_ms=timestamp_ms)
            driver.advance_wall_clock(10)
    driver.close()


class Opened:
    """Counts how a resource is entered and left, and on which thread."""

    def __init__(self) -> None:
        self.entered = self.left = 0
        self.threads: set[str] = set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[str]:
        self.entered += 1
        self.threads.add(threading.current_thread().name)
        try:
            yield "session"
        finally:
            await asyncio.sleep(0.001)  # says goodbye
            self.left += 1
            self.threads.add(threading.current_thread().name)

    @contextmanager
    def connection(self) -> Iterator[str]:
        self.entered += 1
        yield "connection"
        self.left += 1


async def ask(value: Any, *, resource: str) -> Any:
    return resource


def ask_on_thread(value: Any, *, resource: str) -> Any:
    return resource


SEEDED: list[MakeCaller | None] = [None, lambda async_nodes: SeededCaller(async_nodes, seed=1)]


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
def test_resource_is_opened_once_for_a_task_and_closed_at_its_end(make_caller: MakeCaller | None) -> None:
    opened, made = Opened(), builder()
    stream = made.stream("in").map_values_async(ask, resource=opened.session)
    # Another object, and the same resource.
    stream.map_values_async(ask, resource=opened.session).send_to("out")
    run = task(made.build(), make_caller=make_caller)
    run.run()
    assert {record.value for record in run.outputs} == {b'"session"'}
    assert (opened.entered, opened.left) == (1, 1)
    if make_caller is None:
        assert opened.threads == {"kstreams-task-0_0-event-loop"}


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
def test_plain_context_manager_will_do_when_calls_run_on_threads(make_caller: MakeCaller | None) -> None:
    opened, made = Opened(), builder()
    made.stream("in").map_values_async(ask_on_thread, threads=True, resource=opened.connection).send_to("out")
    run = task(made.build(), make_caller=make_caller)
    run.run()
    assert {record.value for record in run.outputs} == {b'"connection"'}
    assert (opened.entered, opened.left) == (1, 1)


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
def test_resource_is_closed_when_a_call_fails_the_task(make_caller: MakeCaller | None) -> None:
    opened, made = Opened(), builder()

    async def fails(value: Any, *, resource: str) -> Any:
        raise ValueError(resource)

    made.stream("in").map_values_async(fails, resource=opened.session).send_to("out")
    with pytest.raises(RecordError, match="ValueError: session"):
        task(made.build(), make_caller=make_caller).run()
    assert (opened.entered, opened.left) == (1, 1)


def test_task_fails_before_its_first_record_when_a_resource_cannot_be_opened() -> None:
    class Away:
        async def __aenter__(self) -> str:
            raise ConnectionError("the database is away")

        async def __aexit__(self, *_: object) -> None:
            """Nothing was entered."""

    made = builder()
    made.stream("in").map_values_async(ask, resource=Away, name="ask").send_to("out")
    with pytest.raises(RecordError, match=r"at node 'ask' .* ConnectionError: the database is away"):
        task(made.build()).run()


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
def test_task_fails_when_a_resource_takes_too_long_to_open(make_caller: MakeCaller | None) -> None:
    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield "never"

    made = builder()
    made.stream("in").map_values_async(ask, resource=hangs, name="ask", timeout_ms=50).send_to("out")
    with pytest.raises(RecordError, match=r"at node 'ask' .* not entered within the node's timeout_ms"):
        task(made.build(), make_caller=make_caller).run()


class ExitsAtTheDoor:
    async def __aenter__(self) -> str:
        sys.exit(3)

    async def __aexit__(self, *_: object) -> None:
        """Nothing was entered."""


class CancelsItself(ExitsAtTheDoor):
    async def __aenter__(self) -> str:
        raise asyncio.CancelledError


def exits() -> Any:
    sys.exit(3)


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
@pytest.mark.parametrize("threads", [False, True], ids=["coroutine", "thread"])
@pytest.mark.parametrize(
    ("factory", "found"),
    [
        (ExitsAtTheDoor, "CallEndedError: the call ended by SystemExit"),
        (exits, "CallEndedError: the call ended by SystemExit"),
        (CancelsItself, "CallEndedError: the call ended by CancelledError"),
        (object, "resource= of node 'ask' made an object of type object, expected a context manager"),
    ],
)
def test_task_fails_and_names_the_node_when_a_resource_exits_or_is_none(
    factory: Any, found: str, threads: bool, make_caller: MakeCaller | None
) -> None:
    made = builder()
    function = ask_on_thread if threads else ask
    options: Any = {"threads": threads, "resource": factory, "name": "ask"}
    made.stream("in").map_values_async(function, **options).send_to("out")
    with pytest.raises(KStreamsError, match=f"node 'ask'.*{found}|{found}"):
        task(made.build(), make_caller=make_caller).run()


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
@pytest.mark.parametrize("threads", [False, True], ids=["coroutine", "thread"])
def test_resource_is_made_where_a_loop_runs_as_an_http_session_asks_for(
    make_caller: MakeCaller | None, threads: bool
) -> None:
    class Session:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def __aenter__(self) -> str:
            assert asyncio.get_running_loop() is self.loop
            return "session"

        async def __aexit__(self, *_: object) -> None:
            assert asyncio.get_running_loop() is self.loop

    made = builder()
    function = ask_on_thread if threads else ask
    options: Any = {"threads": threads, "resource": Session}
    made.stream("in").map_values_async(function, **options).send_to("out")
    run = task(made.build(), make_caller=make_caller)
    run.run()
    assert {record.value for record in run.outputs} == {b'"session"'}


def test_task_fails_in_time_when_entering_a_resource_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threaded_caller, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(threaded_caller, "_CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(abandoned, "_left", [])
    go_on = threading.Event()

    @contextmanager
    def blocks() -> Iterator[None]:
        go_on.wait()
        yield

    made = builder()
    made.stream("in").map_values_async(ask, resource=blocks, name="ask", timeout_ms=20).send_to("out")
    with pytest.raises(RecordError, match=r"at node 'ask' .* blocks the event loop for longer than"):
        task(made.build()).run()
    assert abandoned.count() == 1
    loops = [t for t in threading.enumerate() if t.name == "kstreams-task-0_0-event-loop"]
    go_on.set()
    for thread in loops:
        thread.join()


@pytest.mark.parametrize("make_caller", SEEDED, ids=["threads", "seeded"])
def test_task_ends_well_when_leaving_a_resource_takes_too_long(
    make_caller: MakeCaller | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threaded_caller, "_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(seeded_caller, "_CLOSE_SECONDS", 0.05)

    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        yield "session"
        await asyncio.Event().wait()

    made = builder()
    made.stream("in").map_values_async(ask, resource=hangs, name="ask").send_to("out")
    run = task(made.build(), make_caller=make_caller)
    run.run()
    assert len(run.outputs) == 12
    assert "closing the resource of node 'ask' failed" in caplog.text
    assert "it was not left within 0.05 s" in caplog.text
    assert not [t for t in threading.enumerate() if t.name.startswith("kstreams-task-")]


def test_context_is_given_when_it_is_a_parameter_like_the_others() -> None:
    seen = []

    async def note(key: Any, value: Any, context: CallContext, resource: str = "none") -> None:
        seen.append((context.offset, resource))

    async def by_name_alone(key: Any, value: Any, *, resource: str, context: CallContext) -> None:
        seen.append((value, resource))

    opened, made = Opened(), builder()
    stream = made.stream("in").filter(lambda key, value: value == 3)
    stream.foreach_async(note, resource=opened.session)
    stream.foreach_async(by_name_alone, resource=opened.session, name="by-name")
    task(made.build()).run()
    assert seen == [(3, "session"), (3, "session")]


def test_driver_opens_a_resource_for_each_run_and_closes_it() -> None:
    opened, made = Opened(), builder()
    made.stream("in").map_values_async(ask, resource=opened.session).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1)
        driver.restart()
        driver.pipe_input("in", key="k", value=2, timestamp_ms=2)
        assert [record.value for record in driver.read_output("out")] == ["session", "session"]
    assert (opened.entered, opened.left) == (2, 2)


def test_generator_runs_in_its_call_when_it_gives_values_one_by_one() -> None:
    threads = set()

    def one_by_one(value: Any, *, context: CallContext) -> Iterator[Any]:
        threads.add(threading.current_thread().name)
        yield value
        yield context.offset

    async def lazily(value: Any) -> Any:
        def parts() -> Iterator[Any]:
            threads.add(threading.current_thread().name)
            yield from (value, value)

        return parts()

    made = builder()
    stream = made.stream("in").flat_map_values_async(one_by_one, threads=True)
    stream.flat_map_values_async(lazily).send_to("out")
    run = task(made.build())
    run.run()
    assert [record.value for record in run.outputs] == [b"%d" % (n // 4) for n in range(48)]
    assert threads == {"kstreams-task-0_0-thread-1", "kstreams-task-0_0-event-loop"}


def named(value: Any, context: Any, resource: Any) -> list[Any]:
    return [context, resource]


def defaulted(value: Any, other: Any = "context", resource: Any = "resource") -> list[Any]:
    return [other, resource]


async def named_async(value: Any, context: Any = "context", resource: Any = "resource") -> list[Any]:
    return [context, resource]


def test_plain_function_keeps_its_own_parameters_when_it_runs_on_threads() -> None:
    made = builder()
    stream = made.stream("in")
    stream.map_values(functools.partial(named, context="context", resource="resource")).send_to("out")
    stream.map_values(defaulted).send_to("out")
    settings = {"num.threads.per.task": 2, "num.stream.threads": 2}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1)
        assert [record.value for record in driver.read_output("out")] == [["context", "resource"]] * 2


def test_parameters_stay_the_users_when_a_partial_object_has_filled_them_or_there_is_no_resource() -> None:
    opened, made = Opened(), builder()
    stream = made.stream("in")
    filled = functools.partial(named_async, context="mine", resource="mine")
    stream.map_values_async(filled, resource=opened.session).send_to("out")
    stream.map_values_async(functools.partial(named_async, context="mine")).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1)
        assert [record.value for record in driver.read_output("out")] == [
            ["mine", "mine"],
            ["mine", "resource"],
        ]


@pytest.mark.parametrize("threads", [False, True])
def test_function_is_refused_when_it_needs_a_resource_and_none_is_given(threads: bool) -> None:
    stream = builder().stream("in")
    with pytest.raises(TopologyError, match=r"test_context_and_resource\.py:\d+ .* and no resource="):
        stream.map_values_async(ask_on_thread if threads else ask, threads=threads)  # type: ignore[call-overload]


def test_headers_of_the_record_stay_as_they_are_when_a_call_changes_its_list() -> None:
    async def adds(value: Any, *, context: CallContext) -> Any:
        context.headers.append(("more", b"y"))
        return value

    made = builder()
    stream = made.stream("in")
    stream.map_values_async(adds).send_to("out")
    stream.send_to("raw")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=1, headers=[("one", b"x")])
        for topic in ("out", "raw"):
            assert [record.headers for record in driver.read_output(topic)] == [[("one", b"x")]]


@dataclass
class Pool:
    """Makes a resource, and cannot be hashed."""

    opened: list[str]

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        self.opened.append("pool")
        yield "pool"


def test_nodes_share_a_resource_when_its_factory_cannot_be_hashed() -> None:
    pool, made = Pool([]), builder()
    stream = made.stream("in").map_values_async(ask, resource=pool)
    stream.map_values_async(ask, resource=pool).send_to("out")
    run = task(made.build())
    run.run()
    assert {record.value for record in run.outputs} == {b'"pool"'}
    assert pool.opened == ["pool"]
