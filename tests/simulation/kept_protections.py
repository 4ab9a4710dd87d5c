"""Protections of what a run leaves to the next one, and of what attempts leave to each other: stores, their
files, stream time, counts; and of how others are judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.run.coordinator_claim import CoordinatorClaim
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.batch.task.work import BoundedEnd
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.state.files.checkpoint import usable_offsets
from airflow_kstreams.streams.state.stores.expiring_store import ExpiringStore
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from tests.simulation.protection import Protection, SwitchedOff

_ATTEMPT = "airflow_kstreams.batch.task.runner"


def _progress_without(**missing: Any) -> Callable[[], SwitchedOff]:
    def progress(**known: Any) -> TaskProgress:
        return TaskProgress(**{**known, **missing})

    return lambda: mock.patch(f"{_ATTEMPT}.TaskProgress", progress)


def _stores_are_empty(store: type[ExpiringStore | JoinStore]) -> Callable[[], SwitchedOff]:
    """What the changelog holds is read and not taken."""
    return lambda: mock.patch.object(store, "restore_batch", lambda self, records: 0)


def _closed_windows_stay_logged() -> SwitchedOff:
    """An expired entry gets no tombstone."""
    drain = ExpiringStore.drain_changes

    def without_tombstones(self: ExpiringStore) -> Iterator[tuple[bytes, bytes | None, int]]:
        return (change for change in drain(self) if change[1] is not None)

    return mock.patch.object(ExpiringStore, "drain_changes", without_tombstones)


def _matches_are_not_logged() -> SwitchedOff:
    """That an element has found a partner stands in memory only."""

    def match(self: JoinStore, key: bytes, elements: Any) -> None:
        for element in elements:
            self._waiting.pop(element[1], None)

    return mock.patch.object(JoinStore, "match", match)


def _files_are_current() -> SwitchedOff:
    """Local files with a checkpoint are taken for all that the changelog holds."""
    open_ = TaskState.open

    def opened(self: TaskState, starts: Any, ends: Any) -> Any:
        found = open_(self, starts, ends)
        return {tp: ends[tp] if start > starts[tp] else start for tp, start in found.items()}

    return mock.patch.object(TaskState, "open", opened)


def _files_never_grow_old() -> SwitchedOff:
    """Local files are used although the tombstones of what was deleted since may be gone."""

    def usable(checkpoint: Any, **named: Any) -> dict[str, int]:
        return usable_offsets(checkpoint, **{**named, "now_ms": checkpoint.written_ms})

    return mock.patch("airflow_kstreams.batch.task.task_state.usable_offsets", usable)


def _files_of_any_changelog() -> SwitchedOff:
    """Local files are used although their changelog was made anew."""

    def usable(checkpoint: Any, *, changelogs: Any, **named: Any) -> dict[str, int]:
        as_known = {
            name: dataclasses.replace(found, topic_id=checkpoint.stores[name].topic_id)
            for name, found in changelogs.items()
        }
        return usable_offsets(checkpoint, changelogs=as_known, **named)

    return mock.patch("airflow_kstreams.batch.task.task_state.usable_offsets", usable)


def _counts_begin_anew() -> SwitchedOff:
    """An attempt counts from 0, whatever an earlier one has committed."""
    return mock.patch(f"{_ATTEMPT}.committed_progress", lambda slice_, share: OffsetMetadata())


def _ledger_is_as_it_was() -> SwitchedOff:
    """Begin goes by the ledger that it read before it claimed the coordinator's id."""

    @contextmanager
    def beginning(self: CoordinatorClaim, caller: Any, ledger: Any, *, ensure_topics: Any) -> Iterator[Any]:
        ledger = self._lease.await_turn(ledger, caller)
        ensure_topics(self._session.admin, self._session.settings)
        with self._lease.racing(caller, ledger):
            self._session.claim()
            yield ledger

    return mock.patch.object(CoordinatorClaim, "beginning", beginning)


def _clocks_decide() -> SwitchedOff:
    """A lease is free when its end is past by the clock of the machine that asks."""

    def is_free(self: LeaseObservation, ledger: Any) -> bool:
        lease = ledger.held_lease
        return lease is None or lease.expires_ms <= self._session.clock.now_ms()

    return mock.patch.object(LeaseObservation, "is_free", is_free)


def _ends_leave_stream_time() -> SwitchedOff:
    """A run ends with the stream time that its records have brought."""
    return mock.patch.object(BoundedEnd, "end_of_run", lambda self: iter(()))


#: Some seed among so few misses each of them.
_SEEDS = 200

KEPT: tuple[Protection, ...] = (
    Protection(
        name="stream time goes on",
        section="5.4",
        off=_progress_without(partition_times={}),
        first=30,
        seeds=_SEEDS,
    ),
    Protection(
        name="the end of a run advances stream time",
        section="5.4",
        off=_ends_leave_stream_time,
        seeds=_SEEDS,
        concerns=lambda scenario: scenario.application.timed and scenario.by_interval,
    ),
    Protection(name="windows are restored", section="6", off=_stores_are_empty(ExpiringStore), seeds=_SEEDS),
    Protection(
        name="closed windows get tombstones", section="6", off=_closed_windows_stay_logged, seeds=_SEEDS
    ),
    Protection(
        name="elements of joins are restored",
        section="6",
        off=_stores_are_empty(JoinStore),
        first=28,
        seeds=_SEEDS,
    ),
    Protection(name="matches are logged", section="6", off=_matches_are_not_logged, first=30, seeds=_SEEDS),
    Protection(
        name="replay from the checkpoint", section="6", off=_files_are_current, first=252, seeds=_SEEDS
    ),
    Protection(
        name="old checkpoints are not used",
        section="6",
        off=_files_never_grow_old,
        scene="test_left_files.py",
    ),
    Protection(
        name="checkpoints name their changelog",
        section="6",
        off=_files_of_any_changelog,
        scene="test_left_files.py",
    ),
    Protection(name="counts go on", section="5.4", off=_counts_begin_anew, seeds=_SEEDS),
    Protection(
        name="drops are counted once",
        section="5.4",
        off=_progress_without(records_dropped=0),
        first=121,
        seeds=_SEEDS,
    ),
    Protection(
        name="the ledger is read after the claim", section="4 begin 0", off=_ledger_is_as_it_was, seeds=_SEEDS
    ),
    Protection(
        name="renewals decide about leases", section="4 begin 1", off=_clocks_decide, first=18, seeds=_SEEDS
    ),
)
