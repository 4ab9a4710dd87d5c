"""Stand-ins for the threads, locks and clocks that ``batch/`` and ``spark/`` use, on a world's scheduler.

They replace the modules' names while a world runs, so that the real lease keeper, job launcher and fencing
run unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow_kstreams.spark.driver.progress import RunProgress
from airflow_kstreams.streams.state.files.checkpoint import StateOwner
from airflow_kstreams.streams.state.files.local_state import LocalState
from airflow_kstreams.streams.state.stores.state_store import PersistentStore
from tests.simulation.machines import ProcessFiles
from tests.simulation.world import Process, ProcessDied, Thread, World

_CURRENT: list[World] = []


def _world() -> World:
    return _CURRENT[-1]


class Lock:
    """``threading.RLock``."""

    def __init__(self) -> None:
        self._owner: Thread | None = None
        self._depth = 0
        self._waiting: list[Thread] = []

    def __enter__(self) -> None:
        world = _world()
        this = world.current
        while self._owner is not None and self._owner is not this:
            world.block(self._waiting)
        self._owner, self._depth = this, self._depth + 1

    def __exit__(self, *_: object) -> None:
        if self._owner is not _world().current:
            return  # a dying thread never got it
        self._depth -= 1
        if not self._depth:
            self._owner = None
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                _world().wake(thread)


class Event:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            _world().wake(thread)

    def wait(self, seconds: float) -> bool:
        world = _world()
        until = world.seconds + seconds / world.process().machine.rate
        while not self._set and world.seconds < until:
            if world.current is not None:
                self._waiting.append(world.current)
            world.doze(until)
        return self._set


class BackgroundThread:
    """``threading.Thread``."""

    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target = target
        self._process: Process = _world().process()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = _world().spawn(self._process, self._target)

    def join(self) -> None:
        thread = self._thread
        while thread is not None and not thread.done:
            _world().block(thread.joining)


class Future:
    """``concurrent.futures.Future``."""

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._error: Exception | None = None
        self.waiting: list[Thread] = []

    def run(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._value = call(*arguments)
        except Exception as error:
            self._error = error
        self.done = True
        for thread in self.waiting:
            _world().wake(thread)

    def result(self) -> Any:
        wait([self])
        if self._error is not None:
            raise self._error
        return self._value


class Executor:
    """``concurrent.futures.ThreadPoolExecutor``; every task has a thread at once."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._futures: list[Future] = []

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._futures:
            wait([future])

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future:
        future = Future()
        self._futures.append(future)
        world = _world()
        world.spawn(world.process(), lambda: future.run(call, arguments))
        return future

    def map(self, call: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(call, item) for item in items]
        return (future.result() for future in futures)


def wait(futures: Iterable[Future], return_when: str = "") -> tuple[list[Future], list[Future]]:
    """``concurrent.futures.wait`` until the first one is done."""
    asked = list(futures)
    world = _world()
    while not any(future.done for future in asked):
        this = world.current
        if this is None or not this.process.alive:
            raise ProcessDied
        for future in asked:
            future.waiting.append(this)
        world.block([])
    return [f for f in asked if f.done], [f for f in asked if not f.done]


def _local_state(root: Path, owner: StateOwner, stores: Mapping[str, PersistentStore]) -> LocalState:
    """``LocalState`` on files that a dead process changes no more."""

    def step(name: str) -> None:
        process = _world().process()
        _world().file_step(process, name)

    return LocalState(root, owner, stores, ProcessFiles(step))


def _untold(progress: RunProgress) -> AbstractContextManager[None]:
    """Tell of no progress: that goes by the machine's own time, in a thread that is none of the world's."""
    return nullcontext()


_THREADING = SimpleNamespace(RLock=Lock, Event=Event, Thread=BackgroundThread)
#: The memory of the machine's own process is no part of the world.
_RESOURCE = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=0))
_TIME = SimpleNamespace(monotonic=lambda: _world().process().clock.monotonic_seconds())
_REPLACED: dict[str, Any] = {
    "airflow_kstreams.streams.runtime.pipeline.async_pipeline.time": _TIME,
    "airflow_kstreams.batch.task.commit.resource": _RESOURCE,
    "airflow_kstreams.batch.task.task_state.LocalState": _local_state,
    "airflow_kstreams.batch.run.lease.lease_renewal.threading": _THREADING,
    "airflow_kstreams.batch.run.coordinator_session.threading": _THREADING,
    "airflow_kstreams.batch.protocol.logs.fence.ThreadPoolExecutor": Executor,
    "airflow_kstreams.batch.growing.state_copy.threading": _THREADING,
    "airflow_kstreams.batch.growing.state_copy.ThreadPoolExecutor": Executor,
    "airflow_kstreams.batch.growing.takeover.ThreadPoolExecutor": Executor,
    "airflow_kstreams.spark.driver.driver.threading": _THREADING,
    "airflow_kstreams.spark.driver.driver.ThreadPoolExecutor": Executor,
    "airflow_kstreams.spark.driver.driver.wait": wait,
    "airflow_kstreams.spark.driver.progress.RunProgress.telling": _untold,
}
_PATCHES: list[Any] = []


@contextmanager
def running_in(world: World, seed: int) -> Iterator[None]:
    """Put the stand-ins in place; nested worlds share them. The jitter of retries comes from the seed."""
    if not _CURRENT:
        _PATCHES.extend(mock.patch(name, stand_in) for name, stand_in in _REPLACED.items())
        for patch in _PATCHES:
            patch.start()
    _CURRENT.append(world)
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        _CURRENT.pop()
        if not _CURRENT:
            while _PATCHES:
                _PATCHES.pop().stop()
