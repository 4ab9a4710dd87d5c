"""The joins of two windowed streams, ``left`` and ``right``.

Rule: each stream keeps its elements for the other, for its own window and grace of stream time. A left
element at ``l`` and a right one at ``r`` match if their keys are equal and

    ``-size(left) <= l - r <= size(right)``

so an element arriving at t meets those of the other stream that lie in ``[t - size(other), t + size(own)]``
and arrived before it, in the order (time, arrival). ``join_prior`` takes only those before t. A result has
the larger one of both times, and the joiner gets (left value, right value) whichever arrived last.

An element older than its window plus grace when it arrives is late: it is dropped and counted. One that grew
as old since is not found any more. Old is judged by the join's stream time, which is the larger one of both
sides' and counts the record being processed.

An element arrives on a side when its record passes that side's node. A stream joined with itself passes the
left one first, so an element that comes on the right finds itself among the left ones: each pair of different
elements gives two results, and each element one with itself, except in ``join_prior``. Where both sides come
from one topic by different ways, the way built first is passed first.

**Elements without partner** (``left_join``: left ones; ``outer_join``: both) are joined with None once no
partner can come any more. A right element r can still match the left one l while r is not late and l is kept:
``r + size(right) + grace(right) >= now`` and ``l + size(left) + grace(left) >= now``. The latest r that
matches is ``l + size(left)``, so the window of l closes when stream time passes

    ``l + size(left) + min(grace(left), size(right) + grace(right))``

and that of a right element likewise, sides exchanged. Results are emitted ahead of the record that brings
stream time there, in the order in which windows close, left ones first, then by arrival, with the element's
own time. They are as late as that, and no later (``stream_clock.py``): another join or window behind this one
needs a grace to take them in.
An element without key can have no partner: it is joined with None as it arrives, and not kept.

At the end of a run, elements whose window is still open wait for the next run (``at_run_end="hold"``). With
``flush`` they are joined with None there and then, a single time, and stay: a partner that comes in a later
run gives the joined result, which replaces the first.

Invariant: an element waits, in its store and so in the changelog, if and only if it belongs to a side that
waits, had no partner yet, and was not joined with None yet.

Crash argument: elements, whether they wait, their removal, and all results are functions of the records
processed and the stream time they brought, and the records' offsets, the stores' changes and the results are
committed together. The stores put the elements that wait in order again when they are restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.type_variables import VO, VR, V
from airflow_kstreams.streams.windows import SlidingWindow

JoinKind = Literal["join", "join_prior", "left_join", "outer_join"]

#: ``joiner(left_value, right_value)``; one of them is None where an outer or left join found no
#: partner. One that declares a parameter ``key`` is given the key by that name.
StreamJoiner = Callable[[V, VO], VR]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide:
    """One of the two streams of a join.

    :param window: for how long its elements are kept for the other stream.
    :param store: where.
    :param waits: whether an element without partner is joined with None.
    """

    window: SlidingWindow
    store: JoinStoreSpec
    waits: bool

    def open_ms(self, other: JoinSide) -> int:
        """Return for how long after its own time an element may find a partner."""
        window = self.window
        return window.size_ms + min(window.grace_ms, other.store.retention_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedJoin:
    """What the three nodes of a join have in common.

    :param with_key: whether the joiner is given the key by name.
    """

    kind: JoinKind
    joiner: StreamJoiner
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

    :param is_left: whether it is the left side.
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
        kept_ms, open_ms = own.store.retention_ms, own.open_ms(other)
        elements = context.store(own.store.name)
        others = context.store(other.store.name)
        stream_time = others.stream_time

        def write(code: LoopCode, key: str, value: str) -> None:
            time_ms, now_ms, key_bytes, found, other_ms, theirs, at_ms = map(
                code.variable, ("time_ms", "now_ms", "key_bytes", "found", "other_ms", "theirs", "at_ms")
            )
            put = f"{code.name(elements.put, 'put')}({key_bytes}, {time_ms}, {value}"

            def alone() -> None:
                """Write that the element has no partner."""
                code.place()
                code.forward(key, self._joined(code, key, value, "None"))

            code.line(f"{time_ms} = {code.timestamp_ms}")
            code.line(f"{now_ms} = {code.name(stream_time, 'stream_time')}()")
            with code.block(f"if {value} is None"):
                code.count_left_out("null")
            with code.block(f"elif {time_ms} + {kept_ms} < {now_ms}"):
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
                code.line(f"{found} = {code.name(others.find, 'find')}({key_bytes}, {span}, {now_ms})")
                # The stores come first: a joiner that fails under a handler which skips leaves them right.
                with code.block(f"if not {found}"):
                    if own.waits:
                        code.line(f"{put}, {now_ms} <= {time_ms} + {open_ms})")
                        with code.block(f"if {now_ms} > {time_ms} + {open_ms}"):
                            alone()
                    else:
                        code.line(f"{put}, False)")
                with code.block("else"):
                    code.line(f"{put}, False)")
                    if other.waits:
                        code.line(f"{code.name(others.match, 'match')}({key_bytes}, {found})")
                    with code.block(f"for {other_ms}, _, {theirs} in {found}"):
                        code.line(f"{at_ms} = {other_ms} if {other_ms} > {time_ms} else {time_ms}")
                        with code.changed("timestamp_ms", at_ms):
                            code.forward(key, self._joined(code, key, value, theirs))

        return context.written(write, forward, children)

    def _joined(self, code: LoopCode, key: str, value: str, theirs: str) -> str:
        """Write what the joiner makes of an element's value and the other side's, and return the variable."""
        result = code.variable("result")
        sides = f"{value}, {theirs}" if self.is_left else f"{theirs}, {value}"
        by_name = f", key={key}" if self.join.with_key else ""
        code.line(f"{result} = {code.name(self.join.joiner, 'joiner')}({sides}{by_name})")
        return result
