"""Looks at the product while it decides, to say which rare states it came to. They change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.lease.lease import CoordinatorLease
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.batch.run.tables import landing
from airflow_kstreams.batch.task.commit import TaskCommit
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams.runtime.pipeline.async_pipeline import AsyncPipeline
from airflow_kstreams.streams.runtime.pipeline.parking import Parking
from airflow_kstreams.streams.runtime.pipeline.repeated_calls import Repeating
from airflow_kstreams.streams.runtime.pipeline.retries import Retries
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.state.files.checkpoint import usable_offsets
from tests.simulation.sometimes import sometimes
from tests.simulation.world import Process, World

#: Appended to the names of a second scheduler's processes.
TWIN = " twin"
_USABLE = "airflow_kstreams.batch.task.task_state.usable_offsets"


@contextmanager
def watching(world: World) -> Iterator[None]:
    """Look at what happens in a world."""
    with ExitStack() as stack:
        for patch in (
            mock.patch.object(TaskState, "open", _opening(TaskState.open)),
            mock.patch(_USABLE, _judging_checkpoints()),
            mock.patch.object(TaskRunner, "_done_by_another", _fenced(TaskRunner._done_by_another)),
            mock.patch.object(Coordinator, "_begin_claimed", _begun(Coordinator._begin_claimed)),
            mock.patch.object(Coordinator, "_resume", _resumed(Coordinator._resume)),
            mock.patch.object(CoordinatorLease, "lost_race", _lost(CoordinatorLease.lost_race, world)),
            mock.patch.object(TaskCommit, "commit", _committed(TaskCommit.commit)),
            mock.patch.object(AsyncPipeline, "close", _stopped(AsyncPipeline.close, world)),
            mock.patch.object(Parking, "_park", _parked(Parking._park)),
            mock.patch.object(Parking, "load", _loaded(Parking.load)),
            mock.patch.object(Retries, "next_parked", _called_again(Retries.next_parked)),
            mock.patch.object(Repeating, "give_up", _given_up(Repeating.give_up)),
            mock.patch.object(LeaseObservation, "watch", _judged(LeaseObservation.watch, world)),
            mock.patch.object(landing, "snapshot_of", _found(landing.snapshot_of)),
        ):
            stack.enter_context(patch)
        yield


def _opening(inner: Callable[..., Any]) -> Callable[..., Any]:
    def opened(self: TaskState, starts: Any, ends: Any) -> Any:
        replayed_from = inner(self, starts, ends)
        kept = [partition for partition, start in replayed_from.items() if start > starts[partition]]
        if kept:
            sometimes("a restore started from a checkpoint")
        # What a checkpoint lacks of the commit that it was made after is one marker.
        if any(ends[partition] - replayed_from[partition] > 1 for partition in kept):
            sometimes("a restore replayed what a checkpoint did not have")
        return replayed_from

    return opened


def _judging_checkpoints() -> Callable[..., Any]:
    def judged(checkpoint: Any, **named: Any) -> Any:
        usable = usable_offsets(checkpoint, **named)
        if len(usable) < len(checkpoint.stores):
            sometimes("a checkpoint was not used")
        return usable

    return judged


def _fenced(inner: Callable[..., Any]) -> Callable[..., Any]:
    def done(self: TaskRunner, fenced: Any) -> Any:
        report = inner(self, fenced)
        sometimes("a fenced task found its stop reached")
        return report

    return done


def _begun(inner: Callable[..., Any]) -> Callable[..., Any]:
    def begun(self: Coordinator, caller: Any, request: Any, ledger: Any) -> Any:
        if ledger.is_finished(caller.run_id):
            sometimes("the ledger read again after the claim said otherwise")
        return inner(self, caller, request, ledger)

    return begun


def _resumed(inner: Callable[..., Any]) -> Callable[..., Any]:
    def resumed(self: Coordinator, caller: Any, plan: Any, slice_: Any) -> Any:
        taken = inner(self, caller, plan, slice_)
        if slice_.generation and taken.generation > slice_.generation:
            sometimes("a run was claimed")
        return taken

    return resumed


def _lost(inner: Callable[..., Any], world: World) -> Callable[..., Any]:
    def lost(self: CoordinatorLease, *arguments: Any) -> Any:
        mine = world.process()
        twins = {mine.name.removesuffix(TWIN), mine.name.removesuffix(TWIN) + TWIN}
        if sum(process.name in twins for process in world.processes) > 1:
            sometimes("a second scheduler of equal order lost the race after the claim")
        return inner(self, *arguments)

    return lost


def _found(inner: Callable[..., Any]) -> Callable[..., Any]:
    def found(*arguments: Any) -> Any:
        snapshot = inner(*arguments)
        sometimes("a run was found in its table by its mark")
        return snapshot

    return found


def _judged(inner: Callable[..., Any], world: World) -> Callable[..., Any]:
    def watched(self: LeaseObservation, ledger: Any, **named: Any) -> Any:
        lease = ledger.held_lease
        owner = _named(world, lease.owner) if lease is not None else None
        if owner is not None and not self.is_free(ledger):
            apart_ms = abs(owner.clock.now_ms() - world.process().clock.now_ms())
            if apart_ms > lease.lease_ms:
                sometimes("a lease was judged while clocks differed by more than lease.ms")
        found = inner(self, ledger, **named)
        if found.held_lease is not None and self.is_free(found):
            sometimes("a lease ran out and was taken")
        return found

    return watched


def _committed(inner: Callable[..., Any]) -> Callable[..., Any]:
    def committed(self: TaskCommit, task: StreamTask, **named: Any) -> Any:
        if task.execution.in_flight:
            sometimes("a commit came while calls were under way")
        done = inner(self, task, **named)
        if task.execution.waits_for_retries and not named["last"]:
            if task.group.complete:
                sometimes("a task committed at its stops, and stayed for parked records")
            else:
                sometimes("a task committed while so much was parked that it chose no more")
        return done

    return committed


def _stopped(inner: Callable[..., Any], world: World) -> Callable[..., Any]:
    def stopped(self: AsyncPipeline) -> None:
        if self.parked:
            _say_how_it_left(world)
        if any(flight.changes for queue in self._queues for flight in queue):
            sometimes("a task ended while a store was ahead of what it had released")
        inner(self)

    return stopped


def _parked(inner: Callable[..., Any]) -> Callable[..., Any]:
    def parked(self: Parking, call: Any) -> None:
        if call.again.failed and self._handoff.flight.retry:
            sometimes("a record was parked that had been parked above")
        elif call.again.held:
            sometimes("a record was parked behind another one of its key")
        elif not call.again.failed:
            sometimes("a result was thrown away because its key was parked")
        inner(self, call)

    return parked


def _loaded(inner: Callable[..., Any]) -> Callable[..., Any]:
    def loaded(self: Parking) -> Any:
        sooner = inner(self)
        if self.count:
            sometimes("a task took over parked records")
        if sooner:
            sometimes("a record was parked by a clock far ahead")
        return sooner

    return loaded


def _called_again(inner: Callable[..., Any]) -> Callable[..., Any]:
    def called_again(self: Retries) -> Any:
        call = inner(self)
        if call is not None and self._leaves_ms is not None and call.again.entry.record.failures:
            sometimes("a parked record was called again while its task stayed at its stops")
        return call

    return called_again


def _given_up(inner: Callable[..., Any]) -> Callable[..., Any]:
    def given_up(self: Repeating, error: Exception) -> None:
        if self.async_node.options.parks:
            sometimes("a parked record became a dead letter")
        inner(self, error)

    return given_up


def _say_how_it_left(world: World) -> None:
    """Say how a task with parked records ends that does not come to its end; nothing dies with its world."""
    process = world.current.process if world.current is not None else None
    if process is None or process.ending is None:
        return
    if process.ending.lost:
        sometimes("a zombie had records parked")
    elif any(name == process.name for _, name in world.deaths):
        sometimes("a task died with records parked")


def _named(world: World, name: str) -> Process | None:
    return next((process for process in reversed(world.processes) if process.name == name), None)
