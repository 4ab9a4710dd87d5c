"""Makes calls again when they fail: keeps their state, and repeats calls without a retry topic in place.

A node with a retry topic parks the record of a failed call (``parking.py``). Order ``partition`` has no retry
topic: its calls are repeated in place.

Rule in place: a call that failed and may be made again keeps its record in flight, and is made again when its
back-off has passed, up to the policy's attempts, and as long as ``retry.run.budget.ms`` after its first
failure. The records before it are released and committed meanwhile, as with any slow call. Its state is not
stored: the next attempt of the task begins anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallContext
from airflow_kstreams.streams.graph.calls import RetryPolicy, calls_again_after, delay_after
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.kept_values import refused
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, kept


@dataclass(slots=True, eq=False, repr=False)
class RepeatedCall:
    """The state of a call that is made again when it fails.

    :param node: the :class:`Parking` or :class:`InPlace` that it belongs to.
    :param key: the key for further calls: bytes for a retry topic, else a copy of the object.
    :param value: the value for further calls, in the same form.
    :param ordinal: ordinal of the call for the consumed record.
    :ivar held: True if it is not made, because its key is parked.
    :ivar failed: True if it failed with an error after which it may be made again.
    :ivar entry: the parked record that it is made for; None for a record that has just come.
    :ivar last: the call made last in place.
    :ivar failures: number of failed calls in place.
    :ivar since_ms: time at which the first of them failed, epoch milliseconds.
    """

    node: Any
    key: Any
    value: Any
    ordinal: str
    held: bool = False
    failed: bool = False
    entry: Any = None
    last: Call | None = None
    #: The consumed record, while its call is repeated in place.
    record: Record | None = None
    failures: int = 0
    since_ms: int = 0

    @property
    def repeats(self) -> bool:
        """True if it is made because a call before it has failed."""
        return self.failures > 0 or (self.entry is not None and self.entry.record.failures > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """Makes the calls of a node that has a retry policy, and ends them.

    :param async_node: the node.
    :param policy: the node's retry policy.
    :param stage: number of the stage that takes the node's results.
    :param now_ms: function that gives the time of a clock that is never set back or forward, epoch
        milliseconds.
    :param context: the record being processed.
    :param delivered: function that takes a call that has ended and is not repeated.
    :param letter: function that sends the record being processed to the dead-letter topic, with an error.
    """

    async_node: AsyncNode
    policy: RetryPolicy
    stage: int
    now_ms: Callable[[], int]
    context: TaskRecordContext
    delivered: Callable[[Call], None]
    letter: Callable[[Exception], None]

    def call(self, flight: InFlightRecord, key: Any, value: Any, ordinal: str) -> Call:
        """Make a call for the record being processed."""
        async_node, context, about = self.async_node, self.context, None
        if async_node.wants_context:
            about = CallContext(
                async_node,
                context.record,
                timestamp_ms=context.timestamp_ms,
                headers=context.headers(),
                ordinal=ordinal,
            )
        call = Call(async_node, flight, key, value, about)
        call.arguments = async_node.spec.arguments(key, value)
        return call

    def fails_for_now(self, call: Call) -> bool:
        """Return True if a call failed with an error after which the policy lets it be made again."""
        return calls_again_after(self.policy, call.error)

    def delay_ms(self, failures: int, record: Record | None, ordinal: str) -> int:
        """Return the milliseconds to wait after a failure; the same in every attempt of the task.

        :param failures: number of failed calls.
        :param record: the consumed record; None without one.
        :param ordinal: ordinal of the call for the consumed record.
        """
        place = "" if record is None else f"{record.topic()}-{record.partition()}@{record.offset()}"
        return delay_after(self.policy, failures, f"{place}/{self.async_node.name}/{ordinal}")

    def deliver(self, call: Call) -> None:
        """Take a call that is not repeated any more; its ordinal begins those of the calls below it."""
        self.context.branch = call.again.ordinal
        self.delivered(call)

    def give_up(self, error: Exception) -> None:
        """End a record whose last call has failed.

        :raises Exception: the error, if the policy is to fail.
        """
        if self.policy.then == "fail":
            raise error
        self.letter(error)


class InPlace:
    """The calls of one node that repeats them in place.

    :param repeating: the maker of its calls.
    :param handoff: the task's handoff.
    :param context: the record being processed.
    :param budget_ms: milliseconds after its first failure for which a call is repeated.
    """

    def __init__(
        self, repeating: Repeating, *, handoff: StageHandoff, context: TaskRecordContext, budget_ms: int
    ) -> None:
        self._repeating = repeating
        self._handoff = handoff
        self._context = context
        self._budget_ms = budget_ms
        self._waiting: list[tuple[int, int, Call]] = []
        self._number = 0

    @property
    def due_ms(self) -> int | None:
        """Time at which the next call is made again, epoch milliseconds; None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def forward(self) -> Forward:
        """Return the closure of the node: it starts a call for a key and a value."""
        async_node = self._repeating.async_node
        deliver = self._delivering(async_node.name)

        def run(key: Any, value: Any, _node: str = async_node.name) -> None:
            flight = self._handoff.flight
            try:
                key, value = kept(key), kept(value)
                again = RepeatedCall(self, key, value, flight.next_ordinal(_node, self._context.branch))
                call = self._repeating.call(flight, kept(key), kept(value), again.ordinal)
            except UncopyableError as error:
                raise refused(error, _node, task_id=async_node.task_id, implicit=False) from error
            again.record = self._context.record
            call.again = again
            flight.size_bytes += 2 * (size_of(key) + size_of(value))
            flight.pending += 1
            self._handoff.keep_place(call, deliver)
            self._handoff.start(call)

        return run

    def ended(self, call: Call) -> Sequence[Call]:
        """Keep an ended call if it is to be made again.

        :return: the call alone, or empty if it is made again.
        """
        again, repeating = call.again, self._repeating
        if repeating.fails_for_now(call):
            now_ms = repeating.now_ms()
            again.failures += 1
            if again.failures == 1:
                again.since_ms = now_ms
            due_ms = now_ms + repeating.delay_ms(again.failures, again.record, again.ordinal)
            if again.failures < repeating.policy.attempts and due_ms - again.since_ms <= self._budget_ms:
                self._number += 1
                heapq.heappush(self._waiting, (due_ms, self._number, call))
                return ()
            again.failed = True
        again.last = call
        return (call,)

    def call_again(self, now_ms: int) -> Call | None:
        """Return a call that is due, to be started; None if none is."""
        if not self._waiting or self._waiting[0][0] > now_ms:
            return None
        before = heapq.heappop(self._waiting)[2]
        again = before.again
        call = Call(before.async_node, before.owner, kept(again.key), kept(again.value), before.context)
        call.arguments = before.async_node.spec.arguments(call.key, call.value)
        call.again = again
        return call

    def _delivering(self, node: str) -> Callable[[Call], None]:
        def deliver(first: Call, _node: str = node) -> None:
            call = first.again.last  # the record's effects hold the call that was made first
            if first.again.failed:
                self._repeating.give_up(call.error)
            else:
                self._repeating.deliver(call)

        return deliver
