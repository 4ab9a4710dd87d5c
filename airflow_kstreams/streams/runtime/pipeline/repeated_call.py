"""What every node has whose calls are made again: in a retry topic or in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallContext
from airflow_kstreams.streams.graph.retry_policy import RetryPolicy, calls_again_after, delay_after
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord


class RepeatedCall:
    """What is known of a call beside itself.

    :param node: takes note of its end.
    :param key: as the node got it, so that it can be called again; so is ``value``.
    :ivar held: whether it is not made, because its key is parked.
    :ivar failed: whether it failed, and is to be made again.
    :ivar entry: the parked record that it is made for; None for a record that has just come.
    :ivar last: the call made last in its place, if it was repeated there.
    :ivar failures: how many of those have failed.
    :ivar since_ms: when the first of them did.
    """

    __slots__ = (
        "entry",
        "failed",
        "failures",
        "held",
        "key",
        "last",
        "node",
        "ordinal",
        "record",
        "since_ms",
        "value",
    )

    def __init__(self, node: Any, key: Any, value: Any, ordinal: str) -> None:
        self.node = node
        self.key = key
        self.value = value
        self.ordinal = ordinal
        self.held = self.failed = False
        self.entry: Any = None
        self.last: Call | None = None
        #: The consumed record, while its call is repeated in place.
        self.record: Record | None = None
        self.failures = 0
        self.since_ms = 0

    @property
    def repeats(self) -> bool:
        """Whether it is to be made because one before it has failed."""
        return self.failures > 0 or (self.entry is not None and self.entry.record.failures > 0)


class Repeating:
    """How a node calls what it may have to call again, and how that ends.

    :param async_node: the node.
    :param policy: of the node.
    :param stage: in which it gives.
    :param now_ms: epoch milliseconds, of a clock that nobody sets.
    :param delivered: takes a call that has ended as one that is never repeated.
    :param letter: sends the record being processed to the dead-letter topic, with an error.
    """

    def __init__(
        self,
        async_node: AsyncNode,
        policy: RetryPolicy,
        *,
        stage: int,
        now_ms: Callable[[], int],
        context: TaskRecordContext,
        delivered: Callable[[Call], None],
        letter: Callable[[Exception], None],
    ) -> None:
        self.async_node = async_node
        self.policy = policy
        self.stage = stage
        self.now_ms = now_ms
        self._context = context
        self._delivered = delivered
        self._letter = letter

    def call(self, flight: InFlightRecord, key: Any, value: Any, ordinal: str) -> Call:
        """Make a call for the record being processed."""
        async_node, context, about = self.async_node, self._context, None
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
        """Say whether a call failed and may be made again, if it has calls left."""
        return calls_again_after(self.policy, call.error)

    def delay_ms(self, failures: int, record: Record | None, ordinal: str) -> int:
        """Return how long to wait after a failure; the same in every attempt.

        :param failures: of the call.
        :param record: that led to it.
        """
        place = "" if record is None else f"{record.topic()}-{record.partition()}@{record.offset()}"
        return delay_after(self.policy, failures, f"{place}/{self.async_node.name}/{ordinal}")

    def deliver(self, call: Call) -> None:
        """Take a call that is not repeated any more; what follows from it is told apart by its ordinal."""
        self._context.branch = call.again.ordinal
        self._delivered(call)

    def give_up(self, error: Exception) -> None:
        """End a record whose last call has failed.

        :raises Exception: the error, if the policy is to fail.
        """
        if self.policy.then == "fail":
            raise error
        self._letter(error)
