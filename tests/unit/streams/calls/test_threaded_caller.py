"""The caller of production by itself: how it ends, and how it looks after what runs calls."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from airflow_kstreams.streams.calls import abandoned, loop_calls, threaded_caller
from airflow_kstreams.streams.calls.call import Call, Station
from airflow_kstreams.streams.calls.threaded_caller import ThreadedCaller
from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "_left", [])
    for module in (loop_calls, threaded_caller):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)


def station(function: Callable[..., Any], **options: Any) -> Station:
    spec = CallSpec(function=function, arguments=lambda key, value: (value,), options=CallOptions(**options))
    return Station("ask", spec, application_id="app", task_id="0_0")


def start(caller: ThreadedCaller, at: Station, value: Any) -> Call:
    call = Call(at, None, None, value, None)
    call.arguments = (value,)
    caller.start(call)
    return call


def opened(*stations: Station, threads: int = 1) -> ThreadedCaller:
    caller = ThreadedCaller(stations, threads=threads, task_id="0_0")
    caller.open()
    return caller


def test_no_call_begins_on_a_thread_behind_the_close() -> None:
    began, go_on, inside = [], threading.Event(), threading.Event()

    def holds(value: int) -> None:
        began.append(value)
        inside.set()
        go_on.wait()

    at = station(holds, threads=True, max_in_flight=100)
    caller = opened(at)
    for number in range(50):
        start(caller, at, number)
    inside.wait()
    threads = [t for t in threading.enumerate() if t.name.startswith("kstreams-task-0_0-thread")]
    caller.close()
    go_on.set()
    for thread in threads:
        thread.join()
    start(caller, at, 50)
    assert began == [0]


def test_call_begins_unasked_when_a_place_comes_free() -> None:
    go_on, began = threading.Event(), [threading.Event(), threading.Event()]

    async def holds(value: int) -> None:
        began[value].set()
        while not go_on.is_set():
            await asyncio.sleep(0)

    at = station(holds, max_in_flight=1)
    caller = opened(at)
    start(caller, at, 0)
    caller.hurry()
    assert began[0].wait(30)
    start(caller, at, 1)  # and no hurry: the loop looks for itself
    go_on.set()
    assert began[1].wait(30)
    caller.close()


def test_calls_begin_while_the_task_does_something_else_once_it_said_hurry() -> None:
    began = threading.Event()

    async def begins(value: int) -> None:
        began.set()

    at = station(begins)
    caller = opened(at)
    start(caller, at, 0)
    caller.hurry()
    assert began.wait(30)
    caller.close()


def test_call_that_is_left_behind_counts_until_it_ends() -> None:
    go_on, inside = threading.Event(), threading.Event()

    def holds(value: int) -> None:
        inside.set()
        go_on.wait()

    at = station(holds, threads=True)
    caller = opened(at)
    start(caller, at, 1)
    inside.wait()
    threads = [t for t in threading.enumerate() if t.name.startswith("kstreams-task-0_0-thread")]
    caller.close()
    assert abandoned.count() == 1
    go_on.set()
    for thread in threads:
        thread.join()
    assert abandoned.count() == 0


def test_coroutine_that_swallows_its_cancellation_counts_until_the_loop_ends() -> None:
    async def swallows(value: int) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    at = station(swallows, timeout_ms=50)
    caller = opened(at)
    call = start(caller, at, 1)
    while call not in caller.ended(0.05):
        pass
    assert abandoned.count() == 1
    caller.close()
    assert abandoned.count() == 0


def test_everything_is_closed_when_closing_a_resource_fails(caplog: pytest.LogCaptureFixture) -> None:
    closed = []

    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        yield
        raise OSError("reset at close")

    @contextmanager
    def failing_too() -> Iterator[None]:
        yield
        raise OSError("reset, too")

    @contextmanager
    def closing() -> Iterator[None]:
        try:
            yield
        finally:
            closed.append("plain")

    async def on_loop(value: int, *, resource: Any) -> None:
        """Nothing is called."""

    def on_thread(value: int, *, resource: Any) -> None:
        """Nothing is called."""

    caller = opened(
        station(on_loop, resource=failing),
        station(on_thread, resource=closing, threads=True),
        station(on_thread, resource=failing_too, threads=True),
    )
    with caplog.at_level(logging.WARNING):
        caller.close()
    assert closed == ["plain"]
    logged = [record for record in caplog.records if record.name.startswith("airflow_kstreams.")]
    assert [record.getMessage() for record in logged] == [
        "task 0_0: closing the event loop or a resource on it failed",
        "task 0_0: closing a resource failed",
    ]
    assert not [t for t in threading.enumerate() if t.name.startswith("kstreams-task-")]


def test_loop_is_not_taken_to_be_blocked_when_the_process_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stood_still = [0.0]
    at = station(asyncio.sleep)
    caller = opened(at)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + stood_still[0])
    hold, held = threading.Event(), threading.Event()

    def blocks() -> None:
        held.set()
        hold.wait()

    loop = caller._loop
    assert loop is not None
    loop._loop.call_soon_threadsafe(blocks)
    held.wait()
    loop.refuse_blocked()
    stood_still[0] = 10_000.0
    try:
        loop.refuse_blocked()  # the task's thread goes on before the loop's
        loop.refuse_blocked()
        with pytest.raises(CallsStuckError, match="does not go on"):
            for _ in range(100):
                stood_still[0] += 0.25
                loop.refuse_blocked()
    finally:
        hold.set()
        caller.close()
