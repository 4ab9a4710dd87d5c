"""Calls on an event loop: each is a task of its own from its first step on, and follows another."""

from __future__ import annotations

import asyncio
import logging
import selectors
import socket
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.streams.calls import loop_calls
from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.calls.loop_calls import CallLoop, CoroutineCalls, punctual_selector
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec

ROUNDS = pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="Linux rounds, others do not")


def async_node(function: Callable[..., Any], **options: Any) -> AsyncNode:
    spec = CallSpec(function=function, arguments=lambda key, value: (value,), options=CallOptions(**options))
    return AsyncNode("ask", spec, key_prefix="app", topic_ids={}, task_id="0_0")


class Scene:
    """A loop that runs until so many calls have ended."""

    def __init__(self, at: AsyncNode, values: int) -> None:
        self.loop = CallLoop()
        self.ended: list[Call] = []
        #: What asyncio found wrong.
        self.wrong: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.wrong.append(context))
        self.calls = CoroutineCalls(self.loop, [at], self._announce)
        self._values = values
        for value in range(values):
            call = Call(at, None, None, value, None)
            call.arguments = (value,)
            self.calls.inbox.append(call)

    def run(self) -> list[Any]:
        self.loop.call_soon(self.calls.fill)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()
        assert [call.error for call in self.ended] == [None] * self._values
        assert self.wrong == []
        return [call.result for call in self.ended]

    def _announce(self, call: Call) -> None:
        self.ended.append(call)
        if len(self.ended) == self._values:
            self.loop.stop()


def test_call_sees_nothing_that_another_one_set_when_it_begins_where_that_ends() -> None:
    seen: ContextVar[int] = ContextVar("seen", default=-1)

    async def sets(value: int) -> int:
        before = seen.get()
        seen.set(value)
        await asyncio.sleep(0)
        return before

    assert Scene(async_node(sets, max_in_flight=1), 3).run() == [-1, -1, -1]


def test_call_is_a_task_of_its_own_when_it_begins_in_the_step_of_another_one() -> None:
    tasks = []

    async def names_itself(value: int) -> bool:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        tasks.append(first)  # kept: no two of them are one object
        return first is not None and first is asyncio.current_task()

    assert Scene(async_node(names_itself, max_in_flight=2), 6).run() == [True] * 6
    assert len(set(tasks)) == 6


def test_cancel_scope_of_a_call_ends_that_call_alone() -> None:
    async def times_out(value: int) -> str:
        try:
            async with asyncio.timeout(0 if value == 1 else 30):
                await asyncio.sleep(0.001)
        except TimeoutError:
            return "late"
        return "in time"

    assert sorted(Scene(async_node(times_out, max_in_flight=1), 3).run()) == ["in time", "in time", "late"]


def test_loop_has_its_turn_when_no_call_ever_waits() -> None:
    at_turn: list[int] = []

    async def never_waits(value: int) -> int:
        return value

    scene = Scene(async_node(never_waits, max_in_flight=4), 40)

    def turn() -> None:
        at_turn.append(len(scene.ended))
        scene.loop.call_soon(turn)

    scene.loop.call_soon(turn)
    assert scene.run() == [*range(40)]
    assert at_turn[:4] == [0, 0, 4, 8]


def test_next_call_begins_in_the_round_after_the_one_in_which_one_has_ended() -> None:
    rounds = [0]

    async def waits_once(value: int) -> tuple[int, int]:
        began = rounds[0]
        await asyncio.sleep(0)
        return began, rounds[0]

    scene = Scene(async_node(waits_once, max_in_flight=1), 3)

    def turn() -> None:
        rounds[0] += 1
        scene.loop.call_soon(turn)

    scene.loop.call_soon(turn)
    (_, end), (second, second_end), (third, _) = scene.run()
    assert (second, third) == (end + 1, second_end + 1)


@ROUNDS
def test_part_of_a_millisecond_is_waited_for_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(read: Any, written: Any, failed: Any, seconds: float) -> tuple[Any, ...]:
        waited.append(seconds)
        return (), (), ()

    monkeypatch.setattr(loop_calls, "select", SimpleNamespace(select=wait))
    with punctual_selector() as selector:
        assert selector.select(0.0004) == []
    assert waited == [0.0004]


@ROUNDS
@pytest.mark.parametrize("timeout", [30.0, None, 0])
def test_file_that_is_ready_is_named_at_once(timeout: float | None) -> None:
    one, other = socket.socketpair()
    with one, other, punctual_selector() as selector:
        selector.register(one, selectors.EVENT_READ, "ours")
        other.send(b"x")
        (found,) = selector.select(timeout)
        assert (found[0].data, found[1]) == ("ours", selectors.EVENT_READ)


@ROUNDS
def test_file_with_a_high_number_is_waited_for_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_MOST_FILES", 0)
    one, other = socket.socketpair()
    with one, other, punctual_selector() as selector:
        selector.register(one, selectors.EVENT_READ, "ours")
        other.send(b"x")
        assert [key.data for key, _ in selector.select(30.0)] == ["ours"]


@ROUNDS
def test_loop_of_calls_has_it() -> None:
    loop = CallLoop()
    with punctual_selector() as selector:
        assert type(loop._selector) is type(selector)  # type: ignore[attr-defined]
    loop.close()


@ROUNDS
def test_what_goes_wrong_on_the_loop_is_logged_but_that_a_call_left_behind_goes_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = CallLoop()
    loop.call_exception_handler({"message": "Task was destroyed but it is pending!"})
    loop.call_exception_handler({"message": "a task of the user's own has failed"})
    loop.close()
    heard = [each for each in caplog.records if each.name == "asyncio" and each.levelno > logging.DEBUG]
    assert [each.getMessage() for each in heard] == ["a task of the user's own has failed"]
