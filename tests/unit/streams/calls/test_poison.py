"""Calls that raise, hang, exit, or hold what runs them: each has a bounded outcome, at its own record."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RecordError, Topology, serdes
from airflow_kstreams.streams.calls import abandoned, loop_calls, threaded_caller
from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.hints.function_checks import PACKAGE_FOLDER
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

pytestmark = pytest.mark.promise("threads-are-shared-whole", "failed-calls-have-an-outcome")

IN = TopicPartition("in", 0)
#: The record at which something goes wrong, of so many.
POISON, RECORDS = 7, 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is waited for end soon, and what one test leaves behind not count in the next."""
    monkeypatch.setattr(loop_calls, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(threaded_caller, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(threaded_caller, "_BLOCKED_SECONDS", 0.05)
    monkeypatch.setattr(threaded_caller, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(threaded_caller, "_CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(abandoned, "_left", [])


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What a function waits for that does not come back; the test's end lets it go."""
    event = threading.Event()
    yield event
    event.set()


def topology(function: Callable[..., Any], **options: Any) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values_async(function, name="ask", **options).send_to("out")
    return builder.build()


def task(made: Topology, **settings: Any) -> TaskOnLogs:
    log = log_of(IN, [(b"k", b"%d" % n, n) for n in range(RECORDS)])
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return TaskOnLogs(topology=made, logs={IN: log}, rng=random.Random(1), settings=named)


def values(run: TaskOnLogs) -> list[int]:
    return [int(record.value or b"") for record in run.outputs if record.topic == "out"]


def came_back() -> bool:
    """Wait until nothing that was left behind goes on."""
    for thread in threading.enumerate():
        if thread.name.startswith("kstreams-task-"):
            thread.join(timeout=30)
    return abandoned.count() == 0


async def raises(value: int) -> int:
    if value >= POISON:
        raise ValueError(f"no answer for {value}")
    return value


async def exits(value: int) -> int:
    if value == POISON:
        sys.exit(3)
    return value


async def cancels_itself(value: int) -> int:
    if value == POISON:
        raise asyncio.CancelledError
    return value


async def hangs(value: int) -> int:
    if value == POISON:
        await asyncio.Event().wait()
    return value


async def swallows(value: int) -> int:
    while value == POISON:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
    return value


async def has_a_task_that_exits(value: int) -> int:
    if value == POISON:
        await asyncio.create_task(exits(value))
    return value


async def forgets_to_await(value: int) -> Any:
    return hangs(value) if value == POISON else value


def forgets_to_await_on_thread(value: int) -> Any:
    return hangs(value) if value == POISON else value


def raises_on_thread(value: int) -> int:
    if value >= POISON:
        raise ValueError(f"no answer for {value}")
    return value


def exits_on_thread(value: int) -> int:
    if value == POISON:
        sys.exit(3)
    return value


#: Function -> name of the error at the record, and whether it runs on a thread.
FAILING: dict[Callable[..., Any], tuple[str, bool]] = {
    raises: ("ValueError", False),
    exits: ("CallEndedError", False),
    cancels_itself: ("CallEndedError", False),
    hangs: ("CallTimeoutError", False),
    swallows: ("CallTimeoutError", False),
    has_a_task_that_exits: ("CallEndedError", False),
    forgets_to_await: ("TypeError: the function returned a coroutine", False),
    forgets_to_await_on_thread: ("TypeError: the function returned a coroutine", True),
    raises_on_thread: ("ValueError", True),
    exits_on_thread: ("CallEndedError", True),
}


@pytest.mark.parametrize("function", FAILING)
def test_task_fails_at_the_first_record_whose_call_failed(function: Callable[..., Any]) -> None:
    error, threads = FAILING[function]
    run = task(topology(function, timeout_ms=100, threads=threads))
    with pytest.raises(RecordError, match=f"in-0@{POISON} at node 'ask' .*{error}") as failed:
        run.run()
    assert (failed.value.offset, failed.value.node) == (POISON, "ask")


@pytest.mark.parametrize("function", FAILING)
def test_others_are_processed_when_the_handler_skips_the_record(function: Callable[..., Any]) -> None:
    _, threads = FAILING[function]
    run = task(topology(function, timeout_ms=100, threads=threads), processing_exception_handler="skip")
    run.run()
    failing = RECORDS - POISON if function in (raises, raises_on_thread) else 1
    assert values(run) == [n for n in range(RECORDS) if n != POISON and (failing == 1 or n < POISON)]
    assert run.progress.records_in == RECORDS
    assert run.progress.records_dropped == failing


@pytest.mark.parametrize("threads", [False, True])
def test_predicate_keeps_nothing_when_it_gives_a_coroutine(threads: bool) -> None:
    async def never(key: str, value: int) -> bool:
        return False

    async def forgets(key: str, value: int) -> Any:
        return never(key, value)

    def forgets_on_thread(key: str, value: int) -> Any:
        return never(key, value)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    function: Any = forgets_on_thread if threads else forgets
    options: Any = {"threads": threads}
    builder.stream("in").filter_async(function, **options).send_to("out")
    run = task(builder.build(), processing_exception_handler="skip")
    run.run()
    assert values(run) == []
    assert run.progress.records_dropped == RECORDS


def test_loop_goes_on_when_a_call_stops_it() -> None:
    async def stops_the_loop(value: int) -> int:
        if value == POISON:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0.001)
        return value

    run = task(topology(stops_the_loop))
    run.run()
    assert values(run) == [*range(RECORDS)]


def test_dead_letters_hold_the_records_in_input_order_when_calls_fail() -> None:
    run = task(topology(raises), processing_exception_handler="dead-letter")
    run.run()
    letters = [record for record in run.outputs if record.topic == "app-dead-letter"]
    assert [int(letter.value or b"") for letter in letters] == [*range(POISON, RECORDS)]
    headers = dict(letters[0].headers)
    assert headers["__streams.errors.node"] == b"ask"
    assert headers["__streams.errors.offset"] == b"%d" % POISON
    assert b"raise ValueError" in (headers["__streams.errors.stacktrace"] or b"")
    assert run.progress.records_dead_lettered == RECORDS - POISON


@pytest.mark.parametrize("function", [exits, exits_on_thread])
def test_letter_says_where_a_call_wanted_to_exit_and_how(function: Callable[..., Any]) -> None:
    made = topology(function, threads=function is exits_on_thread)
    run = task(made, processing_exception_handler="dead-letter")
    run.run()
    (letter,) = (record for record in run.outputs if record.topic == "app-dead-letter")
    trace = dict(letter.headers)["__streams.errors.stacktrace"] or b""
    cause, error = trace.split(b"direct cause of")
    assert b"SystemExit: 3" in cause
    assert b"sys.exit(3)" in cause
    assert b"sys.exit(3)" in error


@pytest.mark.parametrize("function", [raises, raises_on_thread])
def test_error_shows_the_line_of_the_user_when_a_call_raised(function: Callable[..., Any]) -> None:
    run = task(topology(function, threads=function is raises_on_thread))
    with pytest.raises(RecordError) as failed:
        run.run()
    assert 'raise ValueError(f"no answer for {value}")' in failed.value.trace
    assert "node 'ask', defined at" in failed.value.trace
    assert PACKAGE_FOLDER not in failed.value.trace


def test_threads_go_on_when_a_call_hangs_on_one(held: threading.Event) -> None:
    def blocks(value: int) -> int:
        if value == POISON:
            held.wait()
        return value

    run = task(
        topology(blocks, threads=True, timeout_ms=100),
        processing_exception_handler="skip",
        num_threads_per_task=2,
        num_stream_threads=2,
    )
    run.run()
    assert values(run) == [n for n in range(RECORDS) if n != POISON]
    assert abandoned.count() == 1
    held.set()
    assert came_back()


def test_thread_of_a_coroutine_counts_when_its_call_is_given_up(held: threading.Event) -> None:
    async def hands_to_a_thread(value: int) -> int:
        await asyncio.to_thread(held.wait if value == POISON else int)
        return value

    run = task(topology(hands_to_a_thread, timeout_ms=200), processing_exception_handler="skip")
    run.run()
    assert values(run) == [n for n in range(RECORDS) if n != POISON]
    assert abandoned.count() == 1
    held.set()
    while abandoned.count():
        pass


@pytest.mark.remedy(
    "threaded_caller._LoopThread.refuse_blocked: await", "threaded_caller._LoopThread.refuse_blocked: it must"
)
def test_task_fails_and_names_the_function_when_it_blocks_the_event_loop(held: threading.Event) -> None:
    async def blocks_the_loop(value: int) -> int:
        if value == POISON:
            held.wait()
        return value

    run = task(topology(blocks_the_loop, timeout_ms=100), processing_exception_handler="skip")
    with pytest.raises(CallsStuckError, match=r"node 'ask', in blocks_the_loop at .*test_poison\.py:\d+"):
        run.run()
    assert abandoned.count() == 1
    held.set()

    async def awaits(value: int) -> int:
        await asyncio.sleep(0)
        return value

    def waits(value: int) -> int:
        held.wait()
        return value

    for told in (topology(awaits), topology(waits, threads=True)):
        run = task(told)
        run.run()
        assert values(run) == [*range(RECORDS)]


@pytest.mark.remedy("abandoned.refuse_too_many")
def test_task_fails_when_too_many_threads_do_not_come_back(
    held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "MOST", 2)

    def blocks(value: int) -> int:
        held.wait()
        return value

    run = task(
        topology(blocks, threads=True, timeout_ms=50),
        processing_exception_handler="skip",
        num_threads_per_task=2,
        num_stream_threads=2,
    )
    with pytest.raises(CallsStuckError, match="more than 2"):
        run.run()
    assert abandoned.too_many()
    held.set()
    assert came_back()
    held.clear()

    def gives_up(value: int) -> int:
        held.wait(timeout=0)
        return value

    run = task(topology(gives_up, threads=True), num_threads_per_task=2, num_stream_threads=2)
    run.run()
    assert values(run) == [*range(RECORDS)]


def test_calls_run_on_as_many_threads_as_the_task_has() -> None:
    together = threading.Barrier(4)

    def meets(value: int) -> int:
        together.wait(timeout=30)
        return value

    run = task(topology(meets, threads=True), num_threads_per_task=4, num_stream_threads=4)
    run.run()
    assert values(run) == [*range(RECORDS)]
