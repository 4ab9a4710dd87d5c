"""Closes the windows of a join as time passes: elements without partner are joined with None when their
window closes or the run ends, and the stores forget what is past. The rule is that of
:mod:`airflow_kstreams.streams.kstream.operators.windows.windowed_join`.

One timer serves both sides. It stands at the first moment at which a waiting element's window is closed, or
at which a store has a period to remove: the next multiple of the period. Both follow from what the stores
hold and from stream time, so the timer of a restored task stands where the old one stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import Any

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import NEVER, Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.windows.windowed_join import (
    JoinSide,
    WindowedJoin,
)
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_join_store import RocksDBJoinStore

#: An element that waits no longer: (moment its window closes, side, arrival, time, serialized key, value).
#: The first three are unique, so sorting compares no more.
_Released = tuple[int, int, int, int, bytes, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClose:
    """Stands below both sides, where their results meet, and passes them on at no cost.

    Its stream time is the larger one of both sides'.
    """

    join: WindowedJoin

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"{self.join.type}_close"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        sides = self.join.left, self.join.right
        return OperatorTraits(held_back_ms=max(side.store.retention_ms for side in sides))

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Return what is below; what time brings goes there too."""
        JoinClock(self.join, forward, context)
        return forward


class JoinClock:
    """Closes the windows of one task's join, and gives its stores their stream time.

    :param forward: takes the elements that found no partner.
    :param context: of the node below both sides.
    """

    def __init__(self, join: WindowedJoin, forward: Forward, context: NodeContext) -> None:
        self._sides = (
            WaitingSide(0, join.left, join.left.open_ms(join.right), context),
            WaitingSide(1, join.right, join.right.open_ms(join.left), context),
        )
        self._emitters = tuple(context.guarded(emit) for emit in _alone(join, forward, _node=context.node))
        self._period_ms = min(side.store.period_ms for side in self._sides)
        self._removal_ms = self._waited_ms = NEVER
        self._record_context = context.record_context
        self._deserialize_key = context.store(join.left.store.name).deserialize_key
        self._stream_time = context.stream_time()
        self._timer = context.stream_timer(partial(self._pass_time, _node=context.node))
        for side in self._sides:
            side.store.follow(self._stream_time, partial(self._wake, side.open_ms))
        context.on_open(self._open)
        if any(side.flushed for side in self._sides):
            context.on_close(partial(self._end_run, _node=context.node))

    def _open(self) -> None:
        self._plan_removal(self._stream_time())
        self._set_timer()

    def _wake(self, open_ms: int, time_ms: int) -> None:
        """Have the timer ready for an element that begins to wait."""
        due_ms = time_ms + open_ms + 1
        if due_ms < self._waited_ms:
            self._waited_ms = due_ms
            self._arm()

    def _pass_time(self, now_ms: int, _node: str) -> None:
        try:
            if now_ms >= self._waited_ms:
                self._emit([side.release(now_ms) for side in self._sides])
        finally:
            if now_ms >= self._removal_ms:
                for side in self._sides:
                    side.store.remove_expired(now_ms)
                self._plan_removal(now_ms)
            self._set_timer()

    def _end_run(self, _node: str) -> None:
        self._emit([side.release(NEVER) for side in self._sides if side.flushed])

    def _plan_removal(self, now_ms: int) -> None:
        self._removal_ms = (now_ms // self._period_ms + 1) * self._period_ms

    def _set_timer(self) -> None:
        self._waited_ms = min(side.due_ms() for side in self._sides)
        self._arm()

    def _arm(self) -> None:
        self._timer.set(min(self._removal_ms, self._waited_ms), needed_ms=self._waited_ms)

    def _emit(self, released: Sequence[Iterator[_Released]]) -> None:
        """Join elements with None, in the order in which their windows close.

        :param released: of each side, in that order; as many as there are need not fit into memory.
        """
        record_context = self._record_context
        before_ms = record_context.timestamp_ms
        for _, side, _, time_ms, key, value in merge(*released):
            record_context.timestamp_ms = time_ms
            self._emitters[side](self._deserialize_key(key), value)
        record_context.timestamp_ms = before_ms


def _alone(join: WindowedJoin, forward: Forward, *, _node: str) -> tuple[Forward, Forward]:
    """Return what joins a left element, and a right one, with None."""
    joiner: Callable[..., Any] = join.joiner

    def by_name(key: Any) -> dict[str, Any]:
        return {"key": key} if join.with_key else {}

    def left(key: Any, value: Any, _node: str = _node) -> None:
        forward(key, joiner(value, None, **by_name(key)))

    def right(key: Any, value: Any, _node: str = _node) -> None:
        forward(key, joiner(None, value, **by_name(key)))

    return left, right


class WaitingSide:
    """The elements of one side that wait for a partner.

    :param number: 0 for the left, 1 for the right side.
    :param open_ms: for how long after its own time an element may find a partner.
    """

    __slots__ = ("flushed", "number", "open_ms", "store")

    def __init__(self, number: int, side: JoinSide, open_ms: int, context: NodeContext) -> None:
        self.number = number
        self.open_ms = open_ms
        self.flushed = side.window.at_run_end == "flush"
        self.store: JoinStore | RocksDBJoinStore = context.store(side.store.name)

    def due_ms(self) -> int:
        """Return the first moment at which an element's window is closed."""
        first_ms = self.store.first_waiting_ms()
        return NEVER if first_ms is None else first_ms + self.open_ms + 1

    def release(self, now_ms: int) -> Iterator[_Released]:
        """Let go the elements whose window is closed at a moment, one by one, in the order of closing."""
        open_ms, number = self.open_ms, self.number
        for key, (time_ms, arrival, value) in self.store.release(now_ms - open_ms):
            yield time_ms + open_ms, number, arrival, time_ms, key, value
