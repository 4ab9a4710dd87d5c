"""The protections of calls side by side (``docs/internals/async.md``), each with a way to switch it off."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Any
from unittest import mock

from airflow_kstreams.streams.calls.call import CallContext
from airflow_kstreams.streams.calls.turnstile import Turnstile
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.runtime.pipeline.lanes import Lanes
from tests.simulation.protection import Protection, SwitchedOff
from tests.simulation.world_caller import ATTEMPT


def _changes_leave_at_once() -> SwitchedOff:
    """What a store above a call changes is logged by the next commit, whether or not the call has ended."""
    run = Lanes._run

    def running(self: Lanes, life: Any, stage: int, *chosen: Any) -> None:
        run(self, life, stage, *chosen)
        self._changes.add(life.changes)
        life.changes = []

    return mock.patch.object(Lanes, "_run", running)


def _offsets_of_what_was_chosen() -> SwitchedOff:
    """A record counts as done once it is chosen."""
    off = ExitStack()
    enter, release = Lanes._enter, PartitionGroup.release

    def entering(self: Lanes, life: Any, *run: Any) -> None:
        enter(self, life, *run)
        if life.taken is not None:
            release(self._group, life.taken)

    off.enter_context(mock.patch.object(Lanes, "_enter", entering))
    off.enter_context(mock.patch.object(PartitionGroup, "release", lambda *_: None))
    return off


def _first_come_first_released() -> SwitchedOff:
    """A record leaves once its own calls have ended."""
    advance = Lanes._advance

    def advancing(self: Lanes, *arguments: Any, **named: Any) -> Any:
        self._queues = [deque(sorted(queue, key=lambda life: life.pending > 0)) for queue in self._queues]
        return advance(self, *arguments, **named)

    return mock.patch.object(Lanes, "_advance", advancing)


def _keys_side_by_side() -> SwitchedOff:
    """Calls of a key do not wait for each other."""

    def added(self: Turnstile, call: Any) -> None:
        self._ready.append(call)

    def ended(self: Turnstile, call: Any) -> tuple[()]:
        self.running -= 1
        return ()

    return mock.patch.multiple(Turnstile, add=added, ended=ended)


def _any_number_at_once() -> SwitchedOff:
    """A node makes as many calls at once as there are."""

    def following(self: Turnstile) -> Any:
        if not self._ready:
            return None
        self.running += 1
        return self._ready.popleft()

    return mock.patch.object(Turnstile, "next", following)


def _keys_of_attempts() -> SwitchedOff:
    """Each attempt has idempotency keys of its own."""
    key = CallContext.idempotency_key.fget  # type: ignore[attr-defined]

    def named(self: CallContext) -> str:
        return f"{key(self)}-{id(ATTEMPT.get())}"

    return mock.patch.object(CallContext, "idempotency_key", property(named))


CALLS: tuple[Protection, ...] = tuple(
    Protection(name=name, section="5 threads", off=off)
    for name, off in (
        ("stores above calls wait for the release", _changes_leave_at_once),
        ("offsets of released records", _offsets_of_what_was_chosen),
        ("released in input order", _first_come_first_released),
        ("calls of a key wait for each other", _keys_side_by_side),
        ("calls of a node are bounded", _any_number_at_once),
        ("idempotency keys outlive attempts", _keys_of_attempts),
    )
)
