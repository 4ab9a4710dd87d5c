"""Calls that may never return."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from airflow_kstreams.kafka import connection
from airflow_kstreams.kafka.client_errors import CallOverdueError
from airflow_kstreams.kafka.connection import BoundedCaller

NAME = "bounded-calls-under-test"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def make(timeout_seconds: float = 10) -> BoundedCaller:
    return BoundedCaller(NAME, timeout_seconds=timeout_seconds)


def raising(error: Any) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_calls_are_made_in_order_on_one_thread() -> None:
    caller, made = make(), list[tuple[int, threading.Thread]]()
    assert not threads(), "no thread before the first call"
    for number in range(3):
        assert caller.attempt(lambda n: made.append((n, threading.current_thread())), number) is None
    assert made == [(number, *threads()) for number in range(3)]
    caller.close()
    caller.close()
    made[0][1].join(10)
    assert not threads()


def test_error_of_a_call_is_returned() -> None:
    caller, error = make(), ValueError("v")
    assert caller.attempt(raising(error)) is error
    assert isinstance(caller.attempt(raising(KafkaError(KafkaError._STATE))), TypeError | KafkaError)
    assert caller.attempt(lambda: None) is None, "the next call is made as well"
    caller.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_is_raised(interrupt: type[BaseException]) -> None:
    caller = make()
    with pytest.raises(interrupt):
        caller.attempt(raising(interrupt()))
    caller.close()


def test_every_call_is_refused_when_one_did_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_OVERDUE_SECONDS", 0.01)
    caller, release, made = make(0.01), threading.Event(), list[int]()
    assert isinstance(caller.attempt(release.wait), CallOverdueError)
    (left,) = threads()
    assert str(caller.attempt(lambda: made.append(1))) == "no answer within 0.01 s"
    assert caller.stuck
    caller.close()
    release.set()
    left.join(10)
    assert not threads()
    assert not made


def test_thread_ends_when_nobody_holds_the_caller(wait_until: Callable[..., Any]) -> None:
    caller = make()
    assert caller.attempt(lambda: None) is None
    del caller
    gc.collect()
    wait_until(lambda: not threads(), "the thread's end")
