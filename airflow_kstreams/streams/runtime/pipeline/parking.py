"""Keeps the retry topic of one node in one task: parks records, and calls each again when it is due.

The retry topic is the changelog of a store of the stage that takes the node's results. So parking, another
failed attempt, and the end of a parked record are changes of state, released with their record and logged in
the transaction of its outputs and offsets; the next attempt and the next run restore them like any state.

Rule: a key is parked while it has entries. In the stage behind the node, in input order: a record whose call
failed and may be made again is parked, and so is each record of a parked key. In the node's own stage, a
record of a key that is parked, or will be, is not called at all; with order ``key``, a call begins only when
the one of its key before it has ended and is not made again. The first entry of a key is called when it is
due; the others wait for it.

Invariant: of each key, the entries in the order of their numbers, then the records in flight in their order,
are the records of the key that are not done, in input order; where one call of a key may run at a time, it is
the call of the first of them.

A back-off is measured with the clock of the process that waits; an entry holds its due time for later
processes. Their clocks may differ, and a process that finds a due time further away than the entry's back-off
makes it earlier, in its store, too. So a record waits for its back-off once more at most, by whatever clock
it was parked.

A function gets key and value as the serdes decode them, in its first call as in any later one, so that parked
records do not differ from others for it. Nodes, errors and dead letters see the consumed record that a parked
one comes from.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.calls.call_queue import key_name
from airflow_kstreams.streams.errors import KStreamsError, StateStoreError
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.first_place import ParkedOrigin, first_place
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord, PendingEffect
from airflow_kstreams.streams.runtime.pipeline.repeated_calls import RepeatedCall, Repeating
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import ParkedKey, ParkedRecord


class Parking:
    """The parked records of one node.

    :param repeating: the maker of the node's calls.
    :param spec: the store's spec.
    :param topic: real name of the retry topic.
    :param store: the store of the entries.
    :param handoff: the task's handoff.
    :param context: the record being processed.
    :ivar count: number of entries, those of records in flight included.
    """

    def __init__(
        self,
        repeating: Repeating,
        *,
        spec: RetryStoreSpec,
        topic: str,
        store: Any,
        handoff: StageHandoff,
        context: TaskRecordContext,
    ) -> None:
        async_node = repeating.async_node
        self.node = async_node.name
        self._task_id = async_node.task_id
        self._policy = repeating.policy
        self._repeating = repeating
        self._keys = spec.input_keys.bound(topic, "key")
        self._values = spec.input_values.bound(topic, "value")
        self._topic = topic
        self._store = store
        self._handoff = handoff
        self._context = context
        self._by_key = async_node.options.order == "key"
        self._deliver = self._delivering(async_node.name)
        self._next = 0
        self.count = 0
        #: Name of a key -> its entries, in order.
        self._entries: dict[Any, deque[Parked]] = {}
        #: Name of a key -> number of calls of records in flight that will be parked.
        self._coming: dict[Any, int] = {}
        #: Name of a key of which a call runs -> its calls behind that one.
        self._behind: dict[Any, deque[Call]] = {}
        #: Heap of (due time in epoch milliseconds, entry's number, name of the key): the first entry of each
        #: key that has no call running.
        self._due: list[tuple[int, int, Any]] = []

    @property
    def full(self) -> bool:
        """True if so many records are parked that no more may be chosen."""
        return self.count >= self._policy.max_parked

    @property
    def due_ms(self) -> int | None:
        """Time at which the next entry may be called again, epoch milliseconds; None if no entry waits for
        its time alone.
        """
        return self._due[0][0] if self._due else None

    def callable_at(self, now_ms: int) -> int:
        """Return the number of entries that may be called again at once at a time."""
        due = sum(due_ms <= now_ms for due_ms, _, _ in self._due)
        return min(due, self._repeating.async_node.max_in_flight)

    def load(self) -> Sequence[Parked]:
        """Load the entries of the restored store.

        :return: entries whose due time was moved up, for :meth:`keep`.
        """
        found = sorted(self._store.all(), key=lambda entry: entry[0].number)
        now_ms, sooner = self._repeating.now_ms(), list[Parked]()
        for (key, number), record in found:
            turn = self._turn(key, self._decoded(self._keys, key))
            entry = Parked(number, record)
            due_ms = now_ms + self._delay_ms(record, record.failures)
            if record.not_before_ms > due_ms:
                entry.record = msgspec.structs.replace(record, not_before_ms=due_ms)
                sooner.append(entry)
            self._entries.setdefault(turn, deque()).append(entry)
            self._next = number + 1
        self.count = len(found)
        for turn in self._entries:
            self._await_turn(turn)
        return sooner

    def keep(self, entries: Sequence[Parked]) -> None:
        """Put entries that have changed into the store."""
        for entry in entries:
            self._store.put(ParkedKey(entry.record.key, entry.number), entry.record)

    def forward(self) -> Forward:
        """Return the node's closure: it starts a call, makes it wait, or marks its record to be parked."""

        def run(key: Any, value: Any, _node: str = self.node) -> None:
            handoff, context = self._handoff, self._context
            flight = handoff.flight
            key_bytes, key = self._as_kept(self._keys, "key", key)
            value_bytes, value = self._as_kept(self._values, "value", value)
            ordinal = flight.next_ordinal(self.node, context.branch)
            call = self._repeating.call(flight, key, value, ordinal)
            call.turn = self._turn(key_bytes, key)
            call.again = RepeatedCall(self, key_bytes, value_bytes, ordinal)
            flight.size_bytes += len(key_bytes or b"") + len(value_bytes or b"")
            handoff.keep_place(call, self._deliver)
            self._admit(call)

        return run

    def ended(self, call: Call) -> Sequence[Call]:
        """Handle a call that has ended: start the next one of its key, or mark these as not to be made.

        :return: the calls for which their records in flight need not wait any more.
        """
        again, turn = call.again, call.turn
        if again.entry is not None:
            return (call,)
        again.failed = self._repeating.fails_for_now(call)
        if again.failed:
            self._coming[turn] = self._coming.get(turn, 0) + 1
        if not self._by_key:
            return (call,)
        behind = self._behind[turn]
        if again.failed:
            del self._behind[turn]
            for each in behind:
                self._hold(each)
            return (call, *behind)
        if behind:
            self._handoff.start(behind.popleft())
        else:
            del self._behind[turn]
        return (call,)

    def call_again(self, now_ms: int) -> Call | None:
        """Return the call of an entry that is due, in a record in flight of its own; None if none is due."""
        if not self._due or self._due[0][0] > now_ms:
            return None
        _, _, turn = heapq.heappop(self._due)
        entry = self._entries[turn][0]
        record, context = entry.record, self._context
        key, value = self._decoded(self._keys, record.key), self._decoded(self._values, record.value)
        before = context.record, context.timestamp_ms, context.replaced_headers, context.branch
        context.record, context.timestamp_ms = origin_of_parked(record), record.timestamp_ms
        context.replaced_headers, context.branch = record.replaced_headers, ""
        flight = InFlightRecord(None)
        flight.retry, flight.pending, flight.timestamp_ms = True, 1, record.timestamp_ms
        flight.size_bytes = len(record.key or b"") + len(record.value or b"")
        call = self._repeating.call(flight, key, value, record.ordinal)
        call.turn = turn
        call.again = RepeatedCall(self, record.key, record.value, record.ordinal)
        call.again.entry = entry
        flight.effects = [PendingEffect(self._repeating.stage, context, self._deliver, (call,), call=call)]
        context.record, context.timestamp_ms, context.replaced_headers, context.branch = before
        return call

    def _admit(self, call: Call) -> None:
        """Start a call, or make it wait for the one of its key before it, unless its key is parked."""
        turn = call.turn
        if turn in self._entries or turn in self._coming:
            self._hold(call)
            return
        call.owner.pending += 1
        if self._by_key:
            behind = self._behind.get(turn)
            if behind is not None:
                behind.append(call)
                return
            self._behind[turn] = deque()
        self._handoff.start(call)

    def _hold(self, call: Call) -> None:
        """Mark a call as one that is not made: its record is parked when it comes to the stage behind the
        node.
        """
        call.again.held = True
        self._coming[call.turn] = self._coming.get(call.turn, 0) + 1

    def _delivering(self, node: str) -> Callable[[Call], None]:
        def deliver(call: Call, _node: str = node) -> None:
            self._take(call)

        return deliver

    def _take(self, call: Call) -> None:
        """Take a call when its record comes to the stage behind the node."""
        again, turn = call.again, call.turn
        if again.entry is not None:
            self._take_again(call, again.entry)
            return
        if again.held or again.failed:
            left = self._coming[turn] - 1
            if left:
                self._coming[turn] = left
            else:
                del self._coming[turn]
        elif turn not in self._entries:
            self._repeating.deliver(call)
            return
        self._park(call)

    def _park(self, call: Call) -> None:
        again = call.again
        topic_ids = self._repeating.async_node.topic_ids
        record = to_park(self._context, again.key, again.value, ordinal=again.ordinal, topic_ids=topic_ids)
        failures = int(again.failed)
        due_ms = self._repeating.now_ms() + self._delay_ms(record, failures)
        entry = Parked(self._next, msgspec.structs.replace(record, failures=failures, not_before_ms=due_ms))
        self._next += 1
        queue = self._entries.setdefault(call.turn, deque())
        queue.append(entry)
        self.keep((entry,))
        self._counted(1)
        if len(queue) == 1:
            self._await_turn(call.turn)

    def _take_again(self, call: Call, entry: Parked) -> None:
        queue, record, error = self._entries[call.turn], entry.record, call.error
        failures = record.failures + 1
        repeatable = self._repeating.fails_for_now(call)
        if repeatable and failures < self._policy.attempts:
            due_ms = self._repeating.now_ms() + self._delay_ms(record, failures)
            entry.record = msgspec.structs.replace(record, failures=failures, not_before_ms=due_ms)
            self.keep((entry,))
            self._await_turn(call.turn)
            return
        queue.popleft()
        self._store.delete(ParkedKey(record.key, entry.number))
        self._counted(-1)
        if queue:
            self._await_turn(call.turn)
        else:
            del self._entries[call.turn]
        if repeatable and error is not None:
            self._repeating.give_up(error)
        else:
            self._repeating.deliver(call)

    def _counted(self, change: int) -> None:
        parked = self._handoff.flight.parked
        parked[self.node] = parked.get(self.node, 0) + change
        self.count += change

    def _await_turn(self, turn: Any) -> None:
        first = self._entries[turn][0]
        heapq.heappush(self._due, (first.record.not_before_ms, first.number, turn))

    def _delay_ms(self, record: ParkedRecord, failures: int) -> int:
        """Return the milliseconds that a record waits after ``failures`` failed calls."""
        if not failures:
            return 0
        return self._repeating.delay_ms(failures, origin_of_parked(record), record.ordinal)

    def _turn(self, key_bytes: bytes | None, key: Any) -> Any:
        """Return the name of a key, which is equal for equal keys; with order ``unordered``, its bytes."""
        return key_name(key) if self._by_key else key_bytes

    def _as_kept(self, serde: Serde, side: str, given: Any) -> tuple[bytes | None, Any]:
        """Return the bytes of a key or value for the retry topic, and the object that they decode to.

        :param side: ``key`` or ``value``.
        """
        if given is None:
            return None, None
        try:
            data = serde.serialize(given)
            return data, serde.deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise UnfitInputError(
                f"the {side} of type {type(given).__name__} cannot be kept by {serde!r}, the {side}_serde of "
                f"the node's retry topic: {type(error).__name__}: {error}"
            ) from error

    def _decoded(self, serde: Serde, data: bytes | None) -> Any:
        try:
            return None if data is None else serde.deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise StateStoreError(
                f"task {self._task_id}: a record parked in {self._topic} is not of {serde!r}: "
                f"{type(error).__name__}",
                fix="run the application with the serdes that it was parked with until nothing is parked",
            ) from error


@dataclass(slots=True, eq=False, repr=False)
class Parked:
    """An entry of the retry topic's store.

    :param number: number in the entry's key in the store.
    :param record: the parked record.
    """

    number: int
    record: ParkedRecord


class UnfitInputError(ValueError):
    """A key or value that the serdes of a retry topic do not take or do not give back."""


def origin_of_parked(parked: ParkedRecord) -> Record | None:
    """Return the consumed record of a parked one; None if it came without one, as from a timer."""
    return None if parked.topic is None else ParkedOrigin(parked, parked.topic)


def to_park(
    context: TaskRecordContext,
    key: bytes | None,
    value: bytes | None,
    *,
    ordinal: str,
    topic_ids: Mapping[str, str],
) -> ParkedRecord:
    """Return the record being processed as a parked record that is due at once.

    :param context: the record being processed.
    :param key: bytes of the key that the node got.
    :param value: bytes of the value that the node got.
    :param ordinal: ordinal of the call for the consumed record.
    :param topic_ids: topic that the task reads -> its id.
    """
    parked = ParkedRecord(
        key=key,
        value=value,
        timestamp_ms=context.timestamp_ms,
        ordinal=ordinal,
        failures=0,
        not_before_ms=0,
        replaced_headers=_copied(context.replaced_headers),
    )
    record = context.record
    if record is None:
        return parked
    original = (record.key(), record.value())
    return msgspec.structs.replace(
        parked,
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        consumed_ms=record.timestamp()[1],
        headers=_copied(record.headers()),
        original=None if original == (key, value) else original,
        first_place=first_place(record, topic_ids),
    )


def _copied(headers: Headers | None) -> Headers | None:
    return None if headers is None else [(name, value) for name, value in headers]
