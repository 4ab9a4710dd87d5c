"""The event loop of calls waits as long as it is to, and no whole milliseconds."""

from __future__ import annotations

import logging
import selectors
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.streams.calls import loop_calls
from airflow_kstreams.streams.calls.loop_calls import CallLoop, punctual_selector

pytestmark = pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="Linux rounds, others do not")


def test_part_of_a_millisecond_is_waited_for_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(read: Any, written: Any, failed: Any, seconds: float) -> tuple[Any, ...]:
        waited.append(seconds)
        return (), (), ()

    monkeypatch.setattr(loop_calls, "select", SimpleNamespace(select=wait))
    with punctual_selector() as selector:
        assert selector.select(0.0004) == []
    assert waited == [0.0004]


@pytest.mark.parametrize("timeout", [30.0, None, 0])
def test_file_that_is_ready_is_named_at_once(timeout: float | None) -> None:
    one, other = socket.socketpair()
    with one, other, punctual_selector() as selector:
        selector.register(one, selectors.EVENT_READ, "ours")
        other.send(b"x")
        (found,) = selector.select(timeout)
        assert (found[0].data, found[1]) == ("ours", selectors.EVENT_READ)


def test_file_with_a_high_number_is_waited_for_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_MOST_FILES", 0)
    one, other = socket.socketpair()
    with one, other, punctual_selector() as selector:
        selector.register(one, selectors.EVENT_READ, "ours")
        other.send(b"x")
        assert [key.data for key, _ in selector.select(30.0)] == ["ours"]


def test_loop_of_calls_has_it() -> None:
    loop = CallLoop()
    with punctual_selector() as selector:
        assert type(loop._selector) is type(selector)  # type: ignore[attr-defined]
    loop.close()


def test_what_goes_wrong_on_the_loop_is_logged_but_that_a_call_left_behind_goes_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = CallLoop()
    loop.call_exception_handler({"message": "Task was destroyed but it is pending!"})
    loop.call_exception_handler({"message": "a task of the user's own has failed"})
    loop.close()
    heard = [each for each in caplog.records if each.name == "asyncio" and each.levelno > logging.DEBUG]
    assert [each.getMessage() for each in heard] == ["a task of the user's own has failed"]
