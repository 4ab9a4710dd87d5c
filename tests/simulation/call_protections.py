"""The protections of calls side by side (``docs/internals/async.md``), each with a way to switch it off."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Any
from unittest import mock

from airflow_kstreams.streams.calls.call import CallContext
from airflow_kstreams.streams.calls.call_queue import CallQueue
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.runtime.pipeline.async_pipeline import AsyncPipeline
from tests.simulation.protection import Protection, SwitchedOff
from tests.simulation.world_caller import ATTEMPT


def _changes_leave_at_once() -> SwitchedOff:
    """What a store above a call changes is logged by the next commit, whether or not the call has ended."""
    run = AsyncPipeline._run

    def running(self: AsyncPipeline, flight: Any, stage: int, *chosen: Any) -> None:
        run(self, flight, stage, *chosen)
        self._changes.add(flight.changes)
        flight.changes = []

    return mock.patch.object(AsyncPipeline, "_run", running)


def _offsets_of_what_was_chosen() -> SwitchedOff:
    """A record counts as done once it is chosen."""
    off = ExitStack()
    begin, release = AsyncPipeline._begin, PartitionGroup.release

    def beginning(self: AsyncPipeline, *record: Any) -> None:
        begin(self, *record)
        taken = self._queues[0][-1].taken
        assert taken is not None
        release(self._group, taken)

    off.enter_context(mock.patch.object(AsyncPipeline, "_begin", beginning))
    off.enter_context(mock.patch.object(PartitionGroup, "release", lambda *_: None))
    return off


def _first_come_first_released() -> SwitchedOff:
    """A record leaves once its own calls have ended."""
    move_on = AsyncPipeline._move_on

    def moving(self: AsyncPipeline, *arguments: Any, **named: Any) -> Any:
        self._queues = [deque(sorted(queue, key=lambda flight: flight.pending > 0)) for queue in self._queues]
        return move_on(self, *arguments, **named)

    return mock.patch.object(AsyncPipeline, "_move_on", moving)


def _keys_side_by_side() -> SwitchedOff:
    """Calls of a key do not wait for each other."""

    def added(self: CallQueue, call: Any) -> None:
        self._ready.append(call)

    def ended(self: CallQueue, call: Any) -> tuple[()]:
        self.running -= 1
        return ()

    return mock.patch.multiple(CallQueue, add=added, ended=ended)


def _any_number_at_once() -> SwitchedOff:
    """A node makes as many calls at once as there are."""

    def following(self: CallQueue) -> Any:
        if not self._ready:
            return None
        self.running += 1
        return self._ready.popleft()

    return mock.patch.object(CallQueue, "next", following)


def _keys_of_attempts() -> SwitchedOff:
    """Each attempt has idempotency keys of its own."""
    key = CallContext.idempotency_key.fget  # type: ignore[attr-defined]

    def named(self: CallContext) -> str:
        return f"{key(self)}-{id(ATTEMPT.get())}"

    return mock.patch.object(CallContext, "idempotency_key", property(named))


CALLS: tuple[Protection, ...] = tuple(
    Protection(
        name=name,
        section="5 threads",
        off=off,
        first=first,
        concerns=lambda scenario: scenario.calls is not None,
    )
    for name, off, first in (
        ("stores above calls wait for the release", _changes_leave_at_once, 147),
        ("offsets of released records", _offsets_of_what_was_chosen, 0),
        ("released in input order", _first_come_first_released, 0),
        ("calls of a key wait for each other", _keys_side_by_side, 18),
        ("calls of a node are bounded", _any_number_at_once, 21),
        ("idempotency keys outlive attempts", _keys_of_attempts, 9),
    )
)
