"""Joins two windowed streams, ``left`` and ``right``, and closes the join's windows as time passes.

Rule: a left element at ``l`` and a right one at ``r`` match if their keys are equal and

    ``-size(left) <= l - r <= size(right)``

so an element arriving at t meets those of the other stream that lie in ``[t - size(other), t + size(own)]``
and arrived before it, in the order (time, arrival). ``join_prior`` takes only those before t. A result has
the larger one of both times, and the joiner gets (left value, right value) whichever arrived last.

An element that is older than its window plus grace when it arrives is late: the join drops and counts it.
Age is judged by the join's stream time, which is the larger one of both sides' and counts the record being
processed; an element that was late under less grace stays late (``runtime/window_closings.py``). Each stream
keeps its elements for those that may still arrive on the other side: a right element at ``r`` is not late
while ``r + size(right) + grace(right) >= now``, and meets left ones from ``r - size(left)``. So a left
element is kept for

    ``size(left) + size(right) + grace(right)``

and a right one in the same way, sides exchanged. An element that is not late finds every partner that arrived
before it. An element whose own grace is so long that it arrives when its time to be kept is over is joined
with the partners in the store and is not kept: each element that could still meet it is late.

An element arrives on a side when its record passes that side's node. A stream joined with itself passes the
left one first, so an element that comes on the right finds itself among the left ones: each pair of different
elements gives two results, and each element one with itself, except in ``join_prior``. Where both sides come
from one topic by different ways, the way built first is passed first.

**Elements without partner** (``left_join``: left ones; ``outer_join``: both) are joined with None once no
partner can come any more: when stream time passes the end of the time for which they are kept, here called
the close of their window. So an element has one result, pairs or None. Results are emitted ahead of the
record that brings stream time there, in the order in which windows close, left ones first, then by arrival,
with the element's own time. They are as late as that, and no later (``stream_clock.py``): another join or
window behind this one needs a grace to take them in. An element without key can have no partner: it is joined
with None as it arrives, and not kept.

One timer serves both sides. It is set to the first time at which a waiting element's window is closed, or
at which a store has a period to remove: the next multiple of the period. Both follow from the content of the
stores and from stream time, so the timer of a restored task is set to the same time.

At the end of a run, elements whose window is still open wait for the next run (``at_run_end="hold"``). With
``flush`` they are joined with None then, a single time, and stay in the store: a partner that comes in a
later run gives the joined result, which replaces the first.

Invariant: an element waits, in its store and so in the changelog, if and only if it belongs to a side that
waits, had no partner yet, and was not joined with None yet.

Crash argument: elements, whether they wait, their removal, and all results are functions of the records
processed and the stream time they brought, and the records' offsets, the stores' changes and the results are
committed together. The stores put the elements that wait in order again when they are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import Any, ClassVar, Literal

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import NEVER, Forward, LoopCode, NodeContext
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.kstream.operators.table_emitter import (
    flat_copy,
    handed_out,
    taken_in,
    write_copy,
)
from airflow_kstreams.streams.kstream.operators.tables.table_join import ValueJoiner
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_join_store import RocksDBJoinStore
from airflow_kstreams.streams.windows import SlidingWindow

JoinKind = Literal["join", "join_prior", "left_join", "outer_join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide:
    """One of the two streams of a join.

    :param window: size and grace of its elements.
    :param store: spec of the store that keeps an element for as long as it may find a partner.
    :param waits: True if an element without partner is joined with None.
    """

    window: SlidingWindow
    store: JoinStoreSpec
    waits: bool

    @property
    def late_ms(self) -> int:
        """Most milliseconds by which an element's time may lie behind stream time without being late."""
        return self.window.size_ms + self.window.grace_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedJoin:
    """The parts that the three nodes of a join share.

    :param kind: name of the DSL method.
    :param joiner: function that makes a result of both values.
    :param left: the left stream.
    :param right: the right stream.
    :param with_key: True if the joiner is given the key by name.
    """

    kind: JoinKind
    joiner: ValueJoiner
    left: JoinSide
    right: JoinSide
    with_key: bool = False

    @property
    def type(self) -> str:
        """Kind of join and sizes of its windows, which are part of what the topology hash covers."""
        return f"{self.kind}_{self.left.window.size_ms}_{self.right.window.size_ms}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinArrivals:
    """Takes the elements of one side: joins each with the other side's and keeps it.

    Elements without value are dropped and counted, and so are those without key on a side that does not wait.
    The node has the join's ``WindowClose`` as its child, which is bound before it and gives the stores the
    stream time of both sides.

    :param join: the join.
    :param is_left: True for the left side.
    """

    join: WindowedJoin
    is_left: bool

    traits: ClassVar[OperatorTraits] = OperatorTraits()

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"{self.join.type}_{'left' if self.is_left else 'right'}"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        own, other = (self.join.left, self.join.right)[:: 1 if self.is_left else -1]
        before_ms = other.window.size_ms
        after_ms = -1 if self.join.kind == "join_prior" else own.window.size_ms
        late_ms, kept_ms = own.late_ms, own.store.retention_ms
        elements = context.store(own.store.name)
        others = context.store(other.store.name)
        stream_time, late_time = elements.stream_time, elements.late_time

        def write(code: LoopCode, key: str, value: str) -> None:
            hints = ("time_ms", "now_ms", "key_bytes", "found", "other_ms", "theirs", "at_ms", "held")
            time_ms, now_ms, key_bytes, found, other_ms, theirs, at_ms, held = map(code.variable, hints)

            def alone() -> None:
                """Write the lines that join the element with None."""
                code.place()
                code.forward(key, self._joined(code, key, value, "None"))

            def put(waits: bool) -> None:
                """Write the lines that store the element, if later elements can meet it."""
                line = f"{code.name(elements.put, 'put')}({key_bytes}, {time_ms}, {held}, {waits})"
                if late_ms <= kept_ms:
                    code.line(line)
                    return
                with code.block(f"if {now_ms} <= {time_ms} + {kept_ms}"):
                    code.line(line)
                if waits:
                    with code.block("else"):
                        alone()

            code.line(f"{time_ms} = {code.timestamp_ms}")
            code.line(f"{now_ms} = {code.name(stream_time, 'stream_time')}()")
            with code.block(f"if {value} is None"):
                code.count_left_out("null")
            judged_ms = now_ms if late_time is stream_time else f"{code.name(late_time, 'late_time')}()"
            with code.block(f"elif {time_ms} + {late_ms} < {judged_ms}"):
                code.count_left_out("late")
            with code.block(f"elif {key} is None"):
                if own.waits:
                    alone()
                else:
                    code.count_left_out("null")
            with code.block("else"):
                code.line(
                    f"{key_bytes} = {code.serialized(key, elements.spec.key_serde, elements.serialize_key)}"
                )
                span = f"{time_ms} - {before_ms}, {time_ms} + {after_ms}"
                code.line(f"{found} = {code.name(others.find, 'find')}({key_bytes}, {span})")
                # The stores come first: a joiner that fails under a handler which skips leaves them right.
                code.line(f"{held} = {value}")
                with code.block(f"if not {found}"):
                    if not context.alone:
                        write_copy(code, taken_in(elements), held, flat_copy(elements))
                    put(own.waits)
                with code.block("else"):
                    write_copy(code, taken_in(elements), held, flat_copy(elements))
                    put(False)
                    if other.waits:
                        code.line(f"{code.name(others.match, 'match')}({key_bytes}, {found})")
                    with code.block(f"for {other_ms}, _, {theirs} in {found}"):
                        write_copy(code, handed_out(others), theirs, flat_copy(others))
                        code.line(f"{at_ms} = {other_ms} if {other_ms} > {time_ms} else {time_ms}")
                        with code.changed("timestamp_ms", at_ms):
                            code.forward(key, self._joined(code, key, value, theirs))

        return context.written(write, forward, children)

    def _joined(self, code: LoopCode, key: str, value: str, theirs: str) -> str:
        """Write the joiner's call for an element's value and the other side's, and return the variable of its
        answer.
        """
        result = code.variable("result")
        sides = f"{value}, {theirs}" if self.is_left else f"{theirs}, {value}"
        by_name = f", key={key}" if self.join.with_key else ""
        code.line(f"{result} = {code.name(self.join.joiner, 'joiner')}({sides}{by_name})")
        return result


#: An element whose wait is over: (time at which its window closes, side, arrival, time, serialized key,
#: value). The first three are unique, so sorting compares no others.
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
        """The facts about the operator that the engine uses."""
        sides = self.join.left, self.join.right
        waits_ms = (side.store.retention_ms for side in sides if side.waits)
        return OperatorTraits(held_back_ms=max(*(side.late_ms for side in sides), *waits_ms))

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Return the function that takes records below; results that time brings go there too."""
        JoinClock(self.join, forward, context)
        return forward


class JoinClock:
    """Closes the windows of one task's join, and gives its stores their stream time.

    :param join: the join.
    :param forward: function that takes the results of elements that found no partner.
    :param context: the services of the node below both sides.
    """

    def __init__(self, join: WindowedJoin, forward: Forward, context: NodeContext) -> None:
        self._sides = (
            WaitingSide(0, join.left, context),
            WaitingSide(1, join.right, context),
        )
        self._emitters = tuple(context.guarded(emit) for emit in _alone(join, forward, _node=context.node))
        self._period_ms = min(side.store.period_ms for side in self._sides)
        self._removal_ms = self._waited_ms = NEVER
        self._record_context = context.record_context
        self._deserialize_key = context.store(join.left.store.name).deserialize_key
        self._stream_time = context.stream_time()
        self._timer = context.stream_timer(partial(self._pass_time, _node=context.node))
        for side in self._sides:
            late_time = context.closing_time(side.store.name, side.late_ms, self._stream_time)
            side.store.follow(self._stream_time, late_time, partial(self._wake, side.open_ms))
        context.on_open(self._open)
        if any(side.flushed for side in self._sides):
            context.on_close(partial(self._end_run, _node=context.node))

    def _open(self) -> None:
        self._plan_removal(self._stream_time())
        self._set_timer()

    def _wake(self, open_ms: int, time_ms: int) -> None:
        """Set the timer for an element that begins to wait."""
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

        :param released: the elements of each side, in that order; iterators, since they need not fit into
            memory.
        """
        record_context = self._record_context
        before_ms = record_context.timestamp_ms
        for _, side, _, time_ms, key, value in merge(*released):
            record_context.timestamp_ms = time_ms
            copied = handed_out(self._sides[side].store)
            self._emitters[side](self._deserialize_key(key), value if copied is None else copied(value))
        record_context.timestamp_ms = before_ms


def _alone(join: WindowedJoin, forward: Forward, *, _node: str) -> tuple[Forward, Forward]:
    """Return two functions, which join a left element and a right one with None."""
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
    :param side: the side.
    :param context: the services of the node below both sides.
    """

    __slots__ = ("flushed", "late_ms", "number", "open_ms", "store")

    def __init__(self, number: int, side: JoinSide, context: NodeContext) -> None:
        self.number = number
        self.open_ms = side.store.retention_ms
        self.late_ms = side.late_ms
        self.flushed = side.window.at_run_end == "flush"
        self.store: JoinStore | RocksDBJoinStore = context.store(side.store.name)

    def due_ms(self) -> int:
        """Return the first time at which an element's window is closed, epoch milliseconds."""
        first_ms = self.store.first_waiting_ms()
        return NEVER if first_ms is None else first_ms + self.open_ms + 1

    def release(self, now_ms: int) -> Iterator[_Released]:
        """Yield the elements whose window is closed at a time, in the order of closing, and note that they do
        not wait any more.

        :param now_ms: the time, epoch milliseconds.
        """
        open_ms, number = self.open_ms, self.number
        for key, (time_ms, arrival, value) in self.store.release(now_ms - open_ms):
            yield time_ms + open_ms, number, arrival, time_ms, key, value
