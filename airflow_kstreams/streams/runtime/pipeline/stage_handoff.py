"""Keeps the work of a record in flight for later stages, and the calls that it makes.

Rule: a pending effect keeps its place among those of the record in flight, in the order in which the record
would have travelled depth first. A call starts in its node's stage, and its result keeps its place in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallContext
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.records.kept_values import refused
from airflow_kstreams.streams.records.record_context import RecordContext, TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import Moment, StreamClock
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord, PendingEffect
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, kept


class StageHandoff:
    """Keeps the work of the current record in flight for later stages; one per task.

    :param context: the record being processed.
    :param last: number of the last stage.
    :param task_id: the task's id, for messages.
    :param implicit: True if nodes call on threads only because the task has several.
    :ivar stage: number of the stage that is running.
    :ivar flight: the record in flight that is running.
    :ivar start: function that starts a call.
    """

    def __init__(self, context: TaskRecordContext, last: int, *, task_id: str, implicit: bool) -> None:
        self._context = context
        self._task_id = task_id
        self._implicit = implicit
        self.last = last
        self.stage = last
        self.flight = InFlightRecord(None)
        #: Stream clock of the stage that is running.
        self.clock: StreamClock | None = None
        #: Moment of the pending effect that is running; None if a record led to it.
        self.moment: Moment | None = None
        #: The list of the record's pending effects to which new ones are added.
        self.effects: list[PendingEffect] = []
        self.start: Callable[[Call], None] = _not_open

    def later(self, stage: int, function: Callable[..., None], *arguments: Any) -> None:
        """Keep a function with its arguments for a later stage.

        :param stage: number of the stage that calls it.
        """
        self.effects.append(PendingEffect(stage, self._context, function, arguments, moment=self._moment))

    def into(self, stage: int, target: Forward, node: str, *, alone: bool) -> Forward:
        """Return the function that hands a key and a value to a node of a later stage.

        :param stage: number of the stage.
        :param target: the node's closure.
        :param node: name of the node.
        :param alone: True if the node alone holds key and value, so that they need not be copied.
        """

        def cross(key: Any, value: Any) -> None:
            if not alone:
                try:
                    key, value = kept(key), kept(value)
                except UncopyableError as error:
                    raise refused(error, node, task_id=self._task_id, implicit=self._implicit) from error
            self.flight.size_bytes += size_of(key) + size_of(value)
            self.later(stage, target, key, value)

        return cross

    def calling(self, async_node: AsyncNode, delivered: Callable[[Call], None], *, alone: bool) -> Forward:
        """Return the function that starts a call for a key and a value, and keeps its place.

        :param delivered: function that takes the call in the next stage.
        :param alone: True if the node alone holds key and value, so that they need not be copied.
        """
        context = self._context
        arguments = async_node.spec.arguments
        wants_context = async_node.wants_context
        with_context = async_node.spec.with_context
        node = async_node.name
        implicit = async_node.options.implicit

        def run(key: Any, value: Any, _node: str = node) -> None:
            flight, here = self.flight, False
            if not alone:
                try:
                    key, value = kept(key), kept(value)
                except UncopyableError as error:
                    if not implicit:
                        raise refused(error, node, task_id=async_node.task_id, implicit=False) from error
                    here = True
            about: RecordContext | None = None
            if wants_context:
                about = CallContext(
                    async_node,
                    context.record,
                    timestamp_ms=context.timestamp_ms,
                    headers=context.headers(),
                    ordinal=flight.next_ordinal(node, context.branch),
                )
            elif with_context:
                about = RecordContext(context.record, context.timestamp_ms, context.headers())
            call = Call(async_node, flight, key, value, about)
            call.arguments = arguments(key, value)
            if here:
                _call_here(call)
                self.keep_place(call, delivered)
                return
            flight.size_bytes += size_of(key) + size_of(value)
            flight.pending += 1
            self.keep_place(call, delivered)
            self.start(call)

        return run

    def keep_place(self, call: Call, delivered: Callable[[Call], None]) -> None:
        """Keep for the next stage the function that takes the call once it has ended."""
        moment = self.moment
        if moment is None and self.clock is not None:
            moment = self.clock.moment
        self.effects.append(
            PendingEffect(self.stage + 1, self._context, delivered, (call,), moment=moment, call=call)
        )

    @property
    def _moment(self) -> Moment | None:
        if self.moment is not None or self.clock is None:
            return self.moment
        return self.clock.moment

    @property
    def early(self) -> bool:
        """True if the running stage is not the last: no result may leave the task in it."""
        return self.stage < self.last


def _call_here(call: Call) -> None:
    """Call a function at once, on the task's own thread, for a key or value that cannot be copied, and keep
    its answer.

    :raises TopologyError: the answer, or a part of the record that the node passes on, cannot be copied.
    """
    spec = call.async_node.spec
    hands_on = spec.hands_on
    try:
        result = call.invoke()
        call.result = result if spec.buffers_output else kept(result)
        call.key = kept(call.key) if "key" in hands_on else None
        call.value = kept(call.value) if "value" in hands_on else None
    except UncopyableError as error:
        async_node = call.async_node
        raise refused(error, async_node.name, task_id=async_node.task_id, implicit=True) from error
    except KStreamsError:
        raise
    except Exception as error:
        call.error = error


def _not_open(call: Call) -> None:
    raise RuntimeError("a node makes a call before its task is open")
