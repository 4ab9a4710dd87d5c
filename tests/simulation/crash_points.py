"""Runs played by one process after the other, in which a process dies at one chosen port call.

Unlike the seeded simulation nothing happens at the same time, so every port call has a number, and each can
be the last one that its process makes: before it took effect, or after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar
from unittest import mock

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.simulation.history import History
from tests.simulation.stages import APPLICATION_ID, Application, Copy, Fold
from tests.simulation.steps import Steps

T = TypeVar("T")
REPARTITION = f"{APPLICATION_ID}-s-repartition"
#: Of the topics that are the user's own; unequal on purpose.
PARTITIONS = {"a": 2, "b": 1, "out": 1}
#: The first is finished by an operator of its own, the second by its driver; the last one, in which nobody
#: dies, takes what is left.
RUNS = ("run-1", "run-2", "run-3")
_LAUNCHES = 3
#: In one of how many port calls a process dies: ``dev/test`` leaves some out, ``dev/prove`` none.
STEPS = (32, pytest.param(1, marks=pytest.mark.prove))


def _group(value: str) -> str:
    return f"g{int(value.strip('mo')) % 2}"


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _build(steps: Steps) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    middle = builder.stream("a").map_values(lambda value: value + "m").through("b")
    folded = middle.group_by(lambda key, value: _group(value)).aggregate(lambda: "", _joined, store="s")
    folded.to_stream().send_to("out")
    return builder.build()


#: Input (2 partitions) -> topic of the user's own (1) -> repartition topic (1) -> output, with a store.
THREE_STAGES = Application(
    name="three_stages",
    build=_build,
    inputs=("a",),
    through=("b",),
    stages=(
        Copy(sources=("a",), sink="b", results=lambda key, value: [(key, value + "m")]),
        Copy(sources=("b",), sink=REPARTITION, results=lambda key, value: [(_group(value), value)]),
        Fold(source=REPARTITION, sink="out", changelog=f"{APPLICATION_ID}-s-changelog"),
    ),
    subtopologies=((("a",), ("b",)), (("b",), (REPARTITION,)), ((REPARTITION,), ())),
)


@cache
def _topology() -> Topology:
    return THREE_STAGES.build(Steps())


class Died(BaseException):
    """The process made its last call."""


class Mortal:
    """A process that dies at a port call.

    :param last: number of the call, from 1 on.
    :param takes_effect: whether the broker still carries it out.
    """

    def __init__(self, last: int, *, takes_effect: bool) -> None:
        self._left = last
        self._takes_effect = takes_effect

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        self._left -= 1
        if self._left > 0:
            return effect()
        if self._left == 0 and self._takes_effect:
            effect()
        raise Died


@dataclass(slots=True, kw_only=True)
class Calls:
    """Counts the port calls of all processes.

    :param last: number of the call that is its process's last; None for no crash.
    :param takes_effect: whether the broker still carries that call out.
    :ivar made: who made each call, and which.
    """

    last: int | None = None
    takes_effect: bool = False
    made: list[str] = field(default_factory=list)
    on_death: Callable[[], None] = lambda: None

    def process(self, kafka: InMemoryKafka, name: str) -> FaultyCluster:
        """Return a new process's view of the cluster."""
        return FaultyCluster(kafka, _Process(self, name))


@dataclass(slots=True)
class _Process:
    calls: Calls
    name: str
    dead: bool = False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if self.dead:
            raise Died
        calls = self.calls
        number = len(calls.made)
        calls.made.append(f"{name} of {self.name}")
        if number != calls.last:
            return effect()
        if calls.takes_effect:
            effect()
        self.dead = True
        calls.on_death()
        raise Died


def deaths(made: Sequence[str], *, step: int, takes_effect: bool) -> Iterator[tuple[int, str]]:
    """Yield number and name of the port calls at which a process is to die, one in ``step``.

    To die after a call is nearly to die before the next one. So those that take effect are other ones, half
    a step away.
    """
    return itertools.islice(enumerate(made), int(takes_effect) * (step // 2), None, step)


class Play:
    """One play of the runs.

    :param guarantee: ``processing.guarantee``.
    :ivar arrived: the values, as they are before the fold, of all that arrived.
    """

    def __init__(self, calls: Calls, guarantee: str = "exactly_once") -> None:
        self._calls = calls
        self._settings = ApplicationSettings.parse(
            APPLICATION_ID,
            {
                "processing.guarantee": guarantee,
                "commit.every.records": 2,
                "commit.interval.ms": 1,
                "transaction.timeout.ms": 10_000,
                "lease.ms": 10_000,
                "settle.ms": 200,
            },
        )
        self.kafka = InMemoryKafka()
        self.history = History()
        self.kafka.observe(self.history.commits.append)
        for topic, count in PARTITIONS.items():
            self.kafka.create_topic(topic, partitions=count)
        self._numbers = itertools.count(1)
        self.outsiders: set[tuple[str, str]] = set()
        self.arrived: list[str] = []
        calls.on_death = partial(self.arrive, 0, 1)

    def run(self) -> None:
        """Play the runs, each process again if it died."""
        with one_after_the_other():
            for run_id in RUNS:
                # In the second run nothing is new on one partition: its task only notifies.
                self.arrive(0, 1, 1) if run_id != RUNS[1] else self.arrive(1)
                for process in (self._capture, self._drive, self._finish):
                    self._until_done(partial(process, run_id))
        self.history.digest()

    def arrive(self, *partitions: int) -> None:
        """Records arrive: on these partitions of the input, and an outsider's on the topic between."""
        for partition in partitions:
            value = str(next(self._numbers))
            self.arrived.append(f"{value}m")
            self.kafka.append("a", value.encode(), b"k", partition=partition)
        value = f"{next(self._numbers)}o"
        self.arrived.append(value)
        self.outsiders.add(("b", value))
        self.kafka.append("b", value.encode(), b"o")

    def _until_done(self, body: Callable[[int], None]) -> None:
        for try_number in (1, 2):
            try:
                body(try_number)
            except Died:
                continue
            return
        raise AssertionError("only one process dies")

    def _coordinator(self, name: str) -> Coordinator:
        return Coordinator(self._calls.process(self.kafka, name), self._settings, clock=self.kafka.clock)

    def _capture(self, run_id: str, try_number: int) -> None:
        coordinator = self._coordinator(f"capture {run_id}")
        coordinator.begin(run_id, _topology().plan(APPLICATION_ID), hold_lease=False)
        coordinator.close()

    def _drive(self, run_id: str, try_number: int) -> None:
        coordinator = self._coordinator(f"driver {run_id}")
        begun = coordinator.begin(
            run_id, _topology().plan(APPLICATION_ID), order=(0, try_number), hold_lease=True
        )
        if begun.finished is not None:
            coordinator.close()
            return
        assert begun.slice is not None
        assert begun.slice.run_id == run_id
        for subtopology in begun.slice.plan.topology.subtopologies if not begun.slice.plan.empty else ():
            for _ in range(_LAUNCHES):
                if shares := coordinator.unfinished(begun.slice, subtopology.id):
                    coordinator.lease.renew()
                    self._launch(begun.slice, shares)
        if run_id == RUNS[1]:
            coordinator.finish(run_id)
        coordinator.close()

    def _launch(self, slice_: Slice, shares: Sequence[TaskShare]) -> None:
        for share in shares:
            task_id = TaskId(subtopology=share.subtopology, group=share.group)
            runner = TaskRunner(
                TaskSetup(
                    topology=_topology(),
                    assignment=TaskAssignment(
                        task_id=task_id, run_id=slice_.run_id, generation=slice_.generation
                    ),
                    cluster=self._calls.process(self.kafka, f"task {task_id}, {slice_.run_id}"),
                    settings=self._settings,
                    clock=self.kafka.clock,
                ),
                SliceWork(without_partitions(slice_), share),
            )
            # The driver hears of a task's death and asks Kafka what is left.
            self._unless_dead(runner.run)

    def _unless_dead(self, body: Callable[[], object]) -> None:
        try:
            body()
        except Died:
            return

    def _finish(self, run_id: str, try_number: int) -> None:
        coordinator = self._coordinator(f"finish {run_id}")
        coordinator.finish(run_id)
        coordinator.close()


class _InOrder:
    """``ThreadPoolExecutor`` without threads, so that calls keep their order."""

    def __init__(self, max_workers: int) -> None:
        """Take what the real one takes."""

    def __enter__(self) -> _InOrder:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left."""

    def map(self, call: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        return map(call, items)


@contextmanager
def one_after_the_other() -> Iterator[None]:
    """Let transactional ids be fenced one after the other, in this thread."""
    with mock.patch("airflow_kstreams.batch.protocol.logs.fence.ThreadPoolExecutor", _InOrder):
        yield
