"""Three runs of a topology with asynchronous nodes, played by one process after the other, in which a process
dies at one chosen port call.

Calls end in an order drawn from a seed, the same in every play, so every port call has a number, and an
attempt that follows a death draws another order than the one that died.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.simulation.crash_points import Calls, Died, one_after_the_other

RUNS = ("run-1", "run-2", "run-3")
_APPLICATION = "calling"
_LAUNCHES = 4
#: Topic -> partition, key, value, timestamp of what arrives before each run.
Arrivals = Mapping[str, Sequence[Sequence[tuple[int, bytes, bytes | None, int]]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What three runs leave in Kafka.

    :param outputs: topic, and input partition of the keys -> key, value, time and headers of what readers
        see, in order: that of several tasks is nobody's promise. Other keys' partition is -1.
    :param state: changelog -> what it folds to.
    :param committed: partition -> committed offset.
    """

    outputs: Mapping[tuple[str, int], Sequence[tuple[Any, ...]]]
    state: Mapping[str, Mapping[tuple[int, bytes | None], bytes]]
    committed: Mapping[TopicPartition, int]


class CallingRuns:
    """One play.

    :param topology: made anew for every process.
    :param arrivals: at most two partitions a topic.
    :param before: is told the number of each run before it begins, from 0 on.
    :param outputs: topics of the user's that it writes.
    :param run_ids: of the runs.
    """

    def __init__(
        self,
        topology: Callable[[], Topology],
        arrivals: Arrivals,
        calls: Calls,
        *,
        outputs: Sequence[str] = ("out",),
        settings: Mapping[str, object] | None = None,
        before: Callable[[int], None] = lambda number: None,
        run_ids: Sequence[str] = RUNS,
    ) -> None:
        self._before = before
        self._run_ids = run_ids
        self._topology = topology
        self._arrivals = arrivals
        self.calls = calls
        self._outputs = outputs
        self.settings = ApplicationSettings.parse(
            _APPLICATION,
            {
                "processing.guarantee": "exactly_once",
                "commit.every.records": 2,
                "commit.interval.ms": 1,
                "transaction.timeout.ms": 10_000,
                "lease.ms": 10_000,
                "settle.ms": 200,
                **(settings or {}),
            },
        )
        self.kafka = InMemoryKafka()
        self._seeds = itertools.count()
        for topic in arrivals:
            self.kafka.create_topic(topic, partitions=2)
        for topic in outputs:
            self.kafka.create_topic(topic)

    def run(self) -> Left:
        """Play the runs, each process again if it died, and return what they leave."""
        with one_after_the_other():
            for number, run_id in enumerate(self._run_ids):
                self._before(number)
                for topic, arriving in self._arrivals.items():
                    for partition, key, value, timestamp_ms in arriving[number]:
                        self.kafka.append(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)
                for process in (self._drive, self._finish):
                    self.until_done(partial(process, run_id))
        return self._left()

    def _left(self) -> Left:
        plan = self._topology().plan(_APPLICATION)
        outputs: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        homes = {key: number for runs in self._arrivals.values() for run in runs for number, key, _, _ in run}
        for topic in self._outputs:
            for record in self.kafka.records(topic):
                what = (record.key(), record.value(), record.timestamp()[1], record.headers())
                outputs.setdefault((topic, homes.get(record.key() or b"", -1)), []).append(what)
        state: dict[str, dict[tuple[int, bytes | None], bytes]] = {}
        for changelog in plan.changelogs:
            held = state.setdefault(changelog, {})
            for record in self.kafka.records(changelog):
                value = record.value()
                if value is None:
                    held.pop((record.partition(), record.key()), None)
                else:
                    held[record.partition(), record.key()] = value
        partitions = [at for topic in self._arrivals for at in self.kafka.partitions(topic)]
        reader = self.kafka.reader(group_id=_APPLICATION)
        committed = {at: offset.offset for at, offset in reader.committed(partitions).items()}
        reader.close()
        return Left(outputs=outputs, state=state, committed=committed)

    def until_done(self, body: Callable[[int], None]) -> None:
        """Let a process do something, and another one do it again if it dies."""
        for try_number in (1, 2):
            try:
                body(try_number)
            except Died:
                continue
            return
        raise AssertionError("only one process dies")

    def _coordinator(self, name: str) -> Coordinator:
        return Coordinator(self.calls.process(self.kafka, name), self.settings, clock=self.kafka.clock)

    def _drive(self, run_id: str, try_number: int) -> None:
        coordinator = self._coordinator(f"driver {run_id}")
        plan = self._topology().plan(_APPLICATION)
        begun = coordinator.begin(run_id, plan, order=(0, try_number), hold_lease=True)
        if begun.finished is None and begun.slice is not None:
            for subtopology in begun.slice.plan.topology.subtopologies:
                for _ in range(_LAUNCHES):
                    if shares := coordinator.unfinished(begun.slice, subtopology.id):
                        coordinator.lease.renew()
                        self._launch(begun.slice, shares)
        coordinator.close()

    def _launch(self, slice_: Slice, shares: Sequence[TaskShare]) -> None:
        for share in shares:
            task_id = TaskId(subtopology=share.subtopology, group=share.group)
            runner = TaskRunner(
                TaskSetup(
                    topology=self._topology(),
                    assignment=TaskAssignment(
                        task_id=task_id, run_id=slice_.run_id, generation=slice_.generation
                    ),
                    cluster=self.calls.process(self.kafka, f"task {task_id}, {slice_.run_id}"),
                    settings=self.settings,
                    clock=self.kafka.clock,
                    make_caller=lambda async_nodes: SeededCaller(async_nodes, seed=next(self._seeds)),
                ),
                SliceWork(without_partitions(slice_), share),
            )
            # The driver hears of a task's death and asks Kafka what is left.
            try:
                runner.run()
            except Died:
                continue

    def _finish(self, run_id: str, try_number: int) -> None:
        coordinator = self._coordinator(f"finish {run_id}")
        coordinator.finish(run_id)
        coordinator.close()
