"""One task on logs in memory: fetches cut anyhow, commits by the clock anywhere, crashes anywhere.

What a commit keeps is what Kafka keeps in a transaction: outputs, changelog, offsets with their metadata. A
crash loses everything since. The attempt that follows restores its stores from the changelog.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import ManualClock
from tests.support.topology.records import FakeRecord

Logs = Mapping[TopicPartition, Sequence[FakeRecord]]


class Written(NamedTuple):
    """A record that a task wrote."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def log_of(partition: TopicPartition, entries: Sequence[tuple[bytes | None, bytes | None, int]]) -> list[Any]:
    """Make a partition's log of (key, value, timestamp)."""
    return [
        FakeRecord(
            at=at,
            key_bytes=key,
            value_bytes=value,
            timestamp_ms=timestamp_ms,
            in_topic=partition.topic,
            in_partition=partition.partition,
            header_list=[("at", f"{partition}@{at}".encode())],
        )
        for at, (key, value, timestamp_ms) in enumerate(entries)
    ]


@dataclass(kw_only=True)
class TaskOnLogs:
    """Task 0_0 of a topology, over all its attempts and runs.

    :param topology: of one subtopology.
    :param rng: cuts fetches, places commits and crashes.
    :param crashes: how often an attempt dies, over all runs.
    :param make_caller: makes what runs the calls of asynchronous nodes.
    :param clock: the task's wall clock, if it matters; it goes on between two fetches.
    """

    topology: Topology
    logs: Logs
    rng: random.Random
    crashes: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    outputs: list[Written] = field(default_factory=list)
    changelogs: dict[str, list[tuple[bytes, bytes | None, int]]] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    progress: TaskProgress = field(default_factory=TaskProgress)
    #: The stores of the attempt that came to its end.
    live: Mapping[str, Any] = field(default_factory=dict)
    make_caller: MakeCaller | None = None
    clock: ManualClock | None = None

    def run(self, stops: Mapping[TopicPartition, int] | None = None) -> None:
        """Run a slice up to some stop offsets, the ends of the logs unless given."""
        stop = {partition: len(log) for partition, log in self.logs.items()} if stops is None else stops
        self.progress = TaskProgress(partition_times=self.progress.partition_times)
        while not self._attempt(stop):
            pass

    def stores(self) -> Mapping[str, Any]:
        """Return the stores as a new attempt would restore them."""
        return self._restored(self.positions, []).stores

    def _attempt(self, stops: Mapping[TopicPartition, int]) -> bool:
        """Run an attempt, and say whether it came to its end."""
        crash_after = self.rng.randint(0, 12) if self.crashes else -1
        self.crashes -= crash_after >= 0
        open_outputs: list[Written] = []
        task = self._restored(stops, open_outputs)
        try:
            return self._steps(task, stops, open_outputs, crash_after)
        finally:
            task.close()

    def _steps(
        self,
        task: StreamTask,
        stops: Mapping[TopicPartition, int],
        open_outputs: list[Written],
        crash_after: int,
    ) -> bool:
        task.open()
        fetched = {partition: self.positions.get(partition, 0) for partition in self.logs}
        steps = 0
        while not task.execution.complete:
            self._fetch(task, fetched, stops)
            while count := task.process(self.rng.randint(1, 9)):
                steps += 1
                if steps == crash_after:
                    return False
                if task.commit_due(interval_elapsed=self.rng.random() < 0.2, processed=count > 0):
                    self._commit(task, open_outputs)
            if self.clock is not None:
                self.clock.sleep(self.rng.choice((0, 0.1, 1)))
                steps += 1
                if steps == crash_after:
                    return False
        task.stop()
        task.close_processors()
        if steps < crash_after:
            return False  # in the last moment
        self._commit(task, open_outputs)
        self.live = task.stores
        return True

    def _restored(self, stops: Mapping[TopicPartition, int], outputs: list[Written]) -> StreamTask:
        def produce(topic: str, value: Any, key: Any, partition: int, time_ms: int, headers: Any) -> None:
            outputs.append(Written(topic, key, value, time_ms, tuple(headers or ())))

        topic_ids = {partition.topic: f"id of {partition.topic}" for partition in self.logs}
        task = StreamTask(
            self.topology,
            task_id=TaskId(subtopology=0, group=0),
            bounds={p: (self.positions.get(p, 0), stop) for p, stop in stops.items()},
            produce=produce,
            settings=ApplicationSettings.parse("app", self.settings),
            progress=self.progress,
            environment=TaskEnvironment(make_caller=self.make_caller, topic_ids=topic_ids)
            if self.clock is None
            else TaskEnvironment(
                make_caller=self.make_caller,
                topic_ids=topic_ids,
                now_ms=self.clock.now_ms,
                pause=self.clock.sleep,
            ),
        )
        for name, changelog in task.changelogs.items():
            for key, value, timestamp_ms in self.changelogs.get(changelog, []):
                task.stores[name].restore(key, value, timestamp_ms)
        task.restored()
        return task

    def _fetch(
        self, task: StreamTask, fetched: dict[TopicPartition, int], stops: Mapping[TopicPartition, int]
    ) -> None:
        partition = self.rng.choice(sorted(fetched))
        start = fetched[partition]
        # A fetch may overshoot the stop: the log goes on behind it.
        end = min(start + self.rng.randint(0, 8), len(self.logs[partition]))
        task.add(partition, self.logs[partition][start:end])
        fetched[partition] = end
        if end >= stops[partition]:
            task.group.reached(partition, end)

    def _commit(self, task: StreamTask, outputs: list[Written]) -> None:
        task.flush()
        for changelog, _, _, changes in task.changes():
            self.changelogs.setdefault(changelog, []).extend(changes)
        self.outputs += outputs
        outputs.clear()
        self.positions.update(task.group.positions())
        self.progress = task.progress
