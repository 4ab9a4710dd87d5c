"""The caller of production by itself: how it ends, and how it looks after what runs calls."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from airflow_kstreams.streams.calls import abandoned, loop_calls, threaded_caller
from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.calls.measured_caller import MeasuredCaller
from airflow_kstreams.streams.calls.threaded_caller import ThreadedCaller
from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "_left", [])
    for module in (loop_calls, threaded_caller):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)


def async_node(function: Callable[..., Any], **options: Any) -> AsyncNode:
    spec = CallSpec(function=function, arguments=lambda key, value: (value,), options=CallOptions(**options))
    return AsyncNode("ask", spec, key_prefix="app", topic_ids={}, task_id="0_0")


def start(caller: ThreadedCaller, at: AsyncNode, value: Any) -> Call:
    call = Call(at, None, None, value, None)
    call.arguments = (value,)
    caller.start(call)
    return call


def opened(*async_nodes: AsyncNode, threads: int = 1) -> ThreadedCaller:
    caller = ThreadedCaller(async_nodes, threads=threads, task_id="0_0")
    caller.open()
    return caller


def test_no_call_begins_on_a_thread_behind_the_close() -> None:
    began, go_on, inside = [], threading.Event(), threading.Event()

    def holds(value: int) -> None:
        began.append(value)
        inside.set()
        go_on.wait()

    at = async_node(holds, threads=True, max_in_flight=100)
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


def test_no_call_begins_on_the_loop_behind_the_close() -> None:
    began, inside = [], threading.Event()

    async def waits(value: int) -> None:
        began.append(value)
        inside.set()
        await asyncio.Event().wait()

    at = async_node(waits, max_in_flight=1)
    caller = opened(at)
    for number in range(5):
        start(caller, at, number)
    caller.hurry()
    inside.wait()
    caller.close()
    assert began == [0]


def test_calls_time_out_one_after_the_other_when_each_hangs() -> None:
    async def hangs(value: int) -> None:
        await asyncio.Event().wait()

    at = async_node(hangs, max_in_flight=1, timeout_ms=10)
    caller = opened(at)
    calls = [start(caller, at, number) for number in range(3)]
    ended: list[Call] = []
    while len(ended) < len(calls):
        ended += caller.ended(0.05)
    assert ended == calls
    caller.close()


def test_waiting_call_takes_the_place_of_one_that_hangs_on_a_thread() -> None:
    go_on = threading.Event()

    def holds(value: int) -> int:
        if value == 0:
            go_on.wait()
        return value

    at = async_node(holds, threads=True, max_in_flight=1, timeout_ms=20)
    caller = opened(at)
    threads = [t for t in threading.enumerate() if t.name.startswith("kstreams-task-0_0-thread")]
    assert all(thread.daemon for thread in threads), "a process could not end in spite of them"
    hanging, waiting = start(caller, at, 0), start(caller, at, 1)
    ended: list[Call] = []
    while waiting not in ended:
        ended += caller.ended(0.05)
    assert ended == [hanging, waiting]
    go_on.set()
    for thread in threads:
        thread.join()
    caller.close()


def test_dead_thread_is_replaced_and_its_call_has_ended() -> None:
    go_on, inside = threading.Event(), threading.Event()

    def holds(value: int) -> int:
        if value == 0:
            inside.set()
            go_on.wait()
        return value

    at = async_node(holds, threads=True)
    caller = opened(at, threads=2)
    pool, dead = caller._pool, threading.Thread(target=int)
    assert pool is not None
    dead.start()
    dead.join()
    held = start(caller, at, 0)
    inside.wait()
    threads = [worker.thread for worker in pool._workers]
    for worker in pool._workers:
        worker.thread = dead  # one that is at a call, and one that is at none
    ended: list[Call] = []
    while held not in ended:
        ended += caller.ended(0.05)
    assert str(held.error) == "the thread of the call is gone"
    assert caller.threads_replaced == 2
    assert abandoned.count() == 0
    other = start(caller, at, 1)
    while other not in ended:
        ended += caller.ended(0.05)
    assert other.result == 1
    go_on.set()
    caller.close()
    for thread in threads:
        thread.join()


def test_call_begins_unasked_when_a_place_comes_free() -> None:
    go_on, began = threading.Event(), [threading.Event(), threading.Event()]

    async def holds(value: int) -> None:
        began[value].set()
        while not go_on.is_set():
            await asyncio.sleep(0)

    at = async_node(holds, max_in_flight=1)
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

    at = async_node(begins)
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

    at = async_node(holds, threads=True)
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

    at = async_node(swallows, timeout_ms=50)
    caller = opened(at)
    call = start(caller, at, 1)
    while call not in caller.ended(0.05):
        pass
    assert abandoned.count() == 1
    caller.close()
    assert abandoned.count() == 0


def test_call_left_behind_goes_away_with_its_loop_without_a_word_of_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn(value: int) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    at = async_node(stubborn, timeout_ms=20)
    caller = opened(at)
    call = start(caller, at, 1)
    while call not in caller.ended(0.05):
        pass
    caller.close()
    del caller, call, at
    gc.collect()
    # It says at DEBUG which selector it takes, where an earlier test has left the root logger at that level.
    heard = [each for each in caplog.records if each.name == "asyncio" and each.levelno > logging.DEBUG]
    assert [record.getMessage() for record in heard] == []


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
        async_node(on_loop, resource=failing),
        async_node(on_thread, resource=closing, threads=True),
        async_node(on_thread, resource=failing_too, threads=True),
    )
    with caplog.at_level(logging.WARNING):
        caller.close()
    assert closed == ["plain"]
    logged = [record for record in caplog.records if record.name.startswith("airflow_kstreams.")]
    assert [record.getMessage() for record in logged] == [
        "task 0_0: closing the resource of node 'ask' failed",
        "task 0_0: closing the resource of node 'ask' failed",
    ]
    errors = [str(record.exc_info[1]) for record in logged if record.exc_info]
    assert errors == ["reset, too", "reset at close"]
    assert not [t for t in threading.enumerate() if t.name.startswith("kstreams-task-")]


def test_loop_is_not_taken_to_be_blocked_when_the_process_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stood_still = [0.0]
    at = async_node(asyncio.sleep)
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


def test_loop_is_not_taken_to_be_blocked_while_it_goes_on_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threaded_caller, "_BEAT_SECONDS", 0.001)
    monkeypatch.setattr(threaded_caller, "_BLOCKED_SECONDS", 0.01)
    passed = [0.0]
    at = async_node(asyncio.sleep)
    caller = opened(at)
    loop, now = caller._loop, time.monotonic
    assert loop is not None
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed[0])
    for _ in range(200):
        beats, gives_up = loop._beats, now() + 30
        while loop._beats == beats:
            assert now() < gives_up, "the loop says no more that it goes on"
        passed[0] += 0.001
        loop.refuse_blocked()
    caller.close()


def states(caller: ThreadedCaller) -> dict[str, list[str]]:
    """Return what threads are at: those of the pool, and the loop."""
    found: dict[str, list[str]] = {"loop": [], "pool": []}
    for each in caller.thread_states():
        found["loop" if each.event_loop else "pool"].append(each.state)
    return found


def test_state_of_each_thread_is_told_while_calls_run_and_hang() -> None:
    go_on, inside = threading.Event(), threading.Event()

    async def waits(value: int) -> None:
        while not go_on.is_set():
            await asyncio.sleep(0.001)

    def holds(value: int) -> None:
        inside.set()
        go_on.wait()

    on_loop, on_thread = async_node(waits), async_node(holds, threads=True, timeout_ms=50)
    caller = opened(on_loop, on_thread, threads=2)
    measured = MeasuredCaller(caller, [on_loop, on_thread], threads=2, in_flight=lambda: 0)
    assert states(caller) == {"loop": ["IDLE"], "pool": ["IDLE", "IDLE"]}
    waiting, hanging = start(caller, on_loop, 1), start(caller, on_thread, 1)
    caller.hurry()
    inside.wait()
    while not on_loop.in_flight:
        pass
    assert states(caller)["loop"] == ["RUNNING"]
    assert sorted(states(caller)["pool"]) == ["IDLE", "RUNNING"]

    while hanging not in caller.ended(0.05):
        pass
    assert states(caller)["pool"] == ["IDLE", "IDLE", "ABANDONED"]
    assert caller.threads_replaced == 1
    threads = measured.figures().threads
    assert (threads.running, threads.idle, threads.abandoned, threads.replaced) == (1, 2, 1, 1)

    left = [t for t in threading.enumerate() if t.name == caller.thread_states()[-1].name]
    go_on.set()
    for thread in left:
        thread.join()
    while waiting not in caller.ended(0.05):
        pass
    assert states(caller) == {"loop": ["IDLE"], "pool": ["IDLE", "IDLE"]}
    assert (on_loop.in_flight, on_thread.in_flight) == (0, 0)
    caller.close()
    assert caller.thread_states() == ()


def test_calls_on_threads_are_in_flight_only_while_a_thread_is_at_them() -> None:
    at_once = threading.Barrier(2)

    def together(value: int) -> None:
        at_once.wait()

    at = async_node(together, threads=True, max_in_flight=64)
    inner = ThreadedCaller([at], threads=2, task_id="0_0")
    caller = MeasuredCaller(inner, [at], threads=2, in_flight=lambda: 6)
    caller.open()
    for value in range(6):
        call = Call(at, None, None, value, None)
        call.arguments = (value,)
        caller.start(call)
    left = 6
    while left:
        left -= len(caller.ended(0.05))
    figures = caller.figures()
    (of_node,) = figures.nodes
    assert (of_node.latency.count, of_node.most_in_flight, figures.most_waiting) == (6, 2, 6)
    assert figures.threads.busy_ns == of_node.latency.total_ns <= figures.threads.open_ns
    assert figures.threads.open_ns == 2 * figures.open_ns
    caller.close()


@pytest.mark.promise("calls-are-measured")
def test_latency_ends_with_the_call_when_the_task_takes_it_back_late() -> None:
    now, ended = [100.0], threading.Event()

    def takes_a_second(value: int) -> None:
        now[0] += 1.0

    at = async_node(takes_a_second, threads=True, max_in_flight=1)
    at.now = lambda: now[0]
    inner = ThreadedCaller([at], threads=1, task_id="0_0")
    caller = MeasuredCaller(inner, [at], threads=1, in_flight=lambda: 1)
    caller.open()
    pool = inner._pool
    assert pool is not None
    announce = pool._announce

    def announced(call: Call) -> None:
        announce(call)
        ended.set()

    pool._announce = announced
    call = Call(at, None, None, 1, None)
    call.arguments = (1,)
    caller.start(call)
    ended.wait()
    now[0] += 60.0  # the task's thread has other things to do
    call.started = 100.0  # threads look at the machine's clock when a call begins
    while call not in caller.ended(0.05):
        pass
    (of_node,) = caller.figures().nodes
    assert of_node.latency.max_ns == 1_000_000_000
    caller.close()
