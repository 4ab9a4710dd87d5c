"""The protections of retry topics (``docs/internals/async.md``), each with a way to switch it off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

from msgspec import structs

from airflow_kstreams.batch.task.work import BoundedEnd
from airflow_kstreams.streams.runtime.pipeline.parking import Parking, to_park
from airflow_kstreams.streams.runtime.pipeline.retries import Retries
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges
from tests.simulation.protection import Protection, SwitchedOff


def _entries_are_not_logged() -> SwitchedOff:
    """What is parked stands in memory only."""
    changes = StreamTask.changes

    def without_retry_topics(self: StreamTask) -> Iterator[LoggedChanges]:
        for logged in changes(self):
            kept = list(logged.changes)
            yield logged._replace(changes=iter(() if logged.changelog.endswith("-retry") else kept))

    return mock.patch.object(StreamTask, "changes", without_retry_topics)


def _ended_entries_stay() -> SwitchedOff:
    """The entry of a record that came to its end stays in the store."""
    take_again = Parking._take_again

    def taking(self: Parking, call: Any, entry: Any) -> None:
        store = self._store
        self._store = mock.Mock(wraps=store, delete=lambda key: None)
        try:
            take_again(self, call, entry)
        finally:
            self._store = store

    return mock.patch.object(Parking, "_take_again", taking)


def _failures_are_forgotten() -> SwitchedOff:
    """Every failed call of a parked record counts as the first one."""
    take_again = Parking._take_again

    def taking(self: Parking, call: Any, entry: Any) -> None:
        take_again(self, call, entry)
        if entry in self._entries.get(call.turn, ()):
            entry.record = structs.replace(entry.record, failures=1)
            self.keep((entry,))

    return mock.patch.object(Parking, "_take_again", taking)


def _delivering() -> Callable[[Parking, Any], None]:
    """Return how results are taken that leave, whatever became of their key."""
    take = Parking._take

    def taking(self: Parking, call: Any) -> None:
        again = call.again
        if again.entry is None and not again.held and not again.failed:
            self._repeating.deliver(call)
        else:
            take(self, call)

    return taking


def _parked_keys_hold_nothing_back() -> SwitchedOff:
    """A record of a key that is parked is called, and goes on."""
    admit, ended = Parking._admit, Parking.ended

    def admitting(self: Parking, call: Any) -> None:
        if call.turn not in self._entries and call.turn not in self._coming:
            admit(self, call)
            return
        call.owner.pending += 1
        self._handoff.start(call)

    def ending(self: Parking, call: Any) -> Any:
        if self._by_key and call.again.entry is None:
            self._behind.setdefault(call.turn, deque())
        return ended(self, call)

    return mock.patch.multiple(Parking, _admit=admitting, ended=ending, _take=_delivering())


def _late_results_go_on() -> SwitchedOff:
    """A result leaves though its key was parked while its call ran."""
    return mock.patch.object(Parking, "_take", _delivering())


def _calls_behind_a_failed_one_go_on() -> SwitchedOff:
    """With order ``key``, the call behind one that is to be made again begins all the same."""
    ended = Parking.ended

    def ending(self: Parking, call: Any) -> Any:
        again, turn = call.again, call.turn
        if again.entry is not None or not self._by_key or not self._repeating.fails_for_now(call):
            return ended(self, call)
        again.failed = True
        self._coming[turn] = self._coming.get(turn, 0) + 1
        behind = self._behind[turn]
        if behind:
            self._handoff.start(behind.popleft())
        else:
            del self._behind[turn]
        return (call,)

    return mock.patch.object(Parking, "ended", ending)


def _keys_of_parked_calls() -> SwitchedOff:
    """The calls of a parked record have idempotency keys of their own."""

    def parked(context: Any, key: Any, value: Any, *, ordinal: str, topic_ids: Any) -> Any:
        return to_park(context, key, value, ordinal=f"{ordinal}0", topic_ids=topic_ids)

    return mock.patch("airflow_kstreams.streams.runtime.pipeline.parking.to_park", parked)


def _clocks_are_believed() -> SwitchedOff:
    """A parked record is due when its entry says so, by whatever clock that was."""
    load = Parking.load

    def loading(self: Parking) -> Any:
        with mock.patch.object(Parking, "_delay_ms", lambda *_: 10**12):
            return load(self)

    return mock.patch.object(Parking, "load", loading)


def _any_number_is_parked() -> SwitchedOff:
    """A task chooses records however many are parked."""
    return mock.patch.object(Retries, "full", property(lambda self: False))


def _commits_when_it_leaves() -> SwitchedOff:
    """A task that stays at its stops for parked records commits when it leaves."""
    due = BoundedEnd.commit_due

    def committing(self: BoundedEnd, **facts: Any) -> bool:
        return not self._task.group.complete and due(self, **facts)

    return mock.patch.object(BoundedEnd, "commit_due", committing)


def _at_its_stops_is_done() -> SwitchedOff:
    """A task at its stops is done, whatever it has parked."""
    off = ExitStack()
    for module in ("task.work", "protocol.slice.stops", "run.finish"):
        name = f"airflow_kstreams.batch.{module}.owes_last_commit"
        off.enter_context(mock.patch(name, lambda *_, **__: False))
    return off


def _parked_is_nothing_new() -> SwitchedOff:
    """Begin does not look for what earlier runs left parked."""
    return mock.patch("airflow_kstreams.batch.run.begin.groundwork.parked_left", lambda *_, **__: {})


RETRIES: tuple[Protection, ...] = tuple(
    Protection(
        name=name,
        section="5 retry topics",
        off=off,
        first=first,
        concerns=lambda scenario: scenario.calls is not None and scenario.calls.parks,
    )
    for name, off, first in (
        ("parked records are state", _entries_are_not_logged, 9),
        ("entries end with their records", _ended_entries_stay, 9),
        ("failures count in their entries", _failures_are_forgotten, 9),
        ("parked keys hold records back", _parked_keys_hold_nothing_back, 9),
        ("results of parked keys are thrown away", _late_results_go_on, 21),
        ("calls behind a failed one wait", _calls_behind_a_failed_one_go_on, 20),
        ("parked records keep idempotency keys", _keys_of_parked_calls, 9),
        ("no clock parks for long", _clocks_are_believed, 9),
        ("parked records are bounded", _any_number_is_parked, 69),
        ("tasks commit while they stay", _commits_when_it_leaves, 295),
        ("tasks owe their last commit", _at_its_stops_is_done, 9),
        ("parked records make a run", _parked_is_nothing_new, 9),
    )
)
