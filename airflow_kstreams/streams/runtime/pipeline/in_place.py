"""Calls that are repeated where they are: order ``partition`` has no retry topic.

Rule: a call that failed and may be made again keeps its record's place in the flight, and is made again when
its back-off has passed, up to the policy's attempts, and as long as ``retry.run.budget.ms`` after its first
failure. What is before it is released and committed meanwhile, as with any slow call. Nothing of it is kept:
an attempt of the task that follows begins anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.records.kept_values import UncopyableError, kept, refused
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.pipeline.repeated_call import RepeatedCall, Repeating
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff
from airflow_kstreams.streams.runtime.value_sizes import size_of


class InPlace:
    """The calls of one node.

    :param repeating: how it calls.
    :param budget_ms: for how long a call is repeated.
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
        """When the next call is to be made again, None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def forward(self) -> Forward:
        """Return what the node does with a key and a value."""
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
        """Take note of a call that has ended.

        :return: it, unless it is made again.
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
            call = first.again.last
            # The record's own place has the call that was made first.
            if first.again.failed:
                self._repeating.give_up(call.error)
            else:
                self._repeating.deliver(call)

        return deliver
