"""Runs the tasks of a topology on topics in memory, record by record or slice by slice.

Rule, slice by slice: the subtopologies come in topological order, each task once. A task gets all records of
its partitions at once, with the ends of the logs as stop offsets, so its partition group chooses among them
as in a run; it commits where a run would whose ``commit.interval.ms`` never passes. Records that it wrote to
topics that the topology reads are in the slices of the tasks after it. A slice that is a whole run opens each
task before and closes it behind; a task that has nothing to read and writes nothing that others read is not
opened, since a run has nothing for it to do.

Rule, record by record: each record is a slice of its own, and so is each record that follows from it, in the
order of writing. So no record is chosen before another one, whatever their timestamps are.

Crash argument: when a task fails, the commit under way never comes, so nothing of it becomes visible. Since
the task's stores may hold a part of it, the tasks are not used any more, where a run would restore them.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_kstreams.streams.figures.record_counts import LeftOut, RecordCounts
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec
from airflow_kstreams.streams.partitioning.partition_groups import Groups, partitions_in
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.stream_clock import system_clock_ms
from airflow_kstreams.streams.records.timestamp_reading import LatestAllowed, no_bound
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.time_limits import stream_time_plans
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.collected_rows import CollectedRows
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord
from airflow_kstreams.testing.in_memory_topics import InMemoryTopics
from airflow_kstreams.testing.output_topics import OutputTopics
from airflow_kstreams.testing.seeded_caller import SeededCaller

#: Records that a task processes between two looks whether a commit is due; it makes no difference.
_CHUNK = 2_000


class TasksInMemory:
    """Every task of a topology, with its stores.

    :param groups: the partition groups, by subtopology id.
    :param topics: give the tasks' records their offsets.
    :param outputs: get the tasks' committed records.
    :param async_seed: seed of the order in which the calls of asynchronous nodes end.
    :ivar now_ms: the wall clock, epoch milliseconds.
    :ivar failed: the task that failed, None if none did.
    """

    def __init__(
        self,
        topology: Topology,
        plan: TopologyPlan,
        groups: Mapping[int, Groups],
        *,
        settings: ApplicationSettings,
        topics: InMemoryTopics,
        outputs: OutputTopics,
        async_seed: int,
    ) -> None:
        self._topology = topology
        self._settings = settings
        self._topics = topics
        self._outputs = outputs
        self.now_ms = 0
        self._async_seed = async_seed
        self.failed: StreamTask | None = None
        #: Nodes, and their children that changed a value for the children behind them.
        self._shared: set[tuple[str, str]] = set()
        self._changelogs = KeptChangelogs(plan.changelogs)
        #: Records without key in the topics of global tables, which every run reads whole.
        self._keyless: dict[str, int] = {}
        #: The records of global tables, by topic.
        self._globals: dict[str, dict[bytes, bytes]] = {topic: {} for topic in plan.globals}
        self._store_owners = {name: sub.id for sub in plan.subtopologies for name in sub.stores}
        #: The rows for each table, in order.
        self.rows = {table.name: CollectedRows() for table in plan.tables}
        read = {*plan.intermediates}
        #: Subtopologies that write what others read.
        self._upstream = {sub.id for sub in plan.subtopologies if read & {*sub.sinks}}
        self._readers: dict[TopicPartition, StreamTask] = {}
        self._opened: set[TaskId] = set()
        self._fed = False
        #: The record counts of the last run that ended.
        self._counts = RecordCounts()
        #: Tasks per subtopology id, by group; subtopologies in running order.
        self._tasks = {
            sub.id: [
                self._task(
                    TaskId(subtopology=sub.id, group=number),
                    dict.fromkeys(partitions_in(group), 0),
                    TaskProgress(),
                )
                for number, group in enumerate(groups[sub.id])
            ]
            for sub in plan.subtopologies
            if not sub.lands
        }

    @property
    def store_owners(self) -> Mapping[str, int]:
        """Id of the subtopology that has each store."""
        return self._store_owners

    @property
    def counts(self) -> RecordCounts:
        """The record counts of the run under way or, until it has records, of the last one."""
        return self._counted() if self._fed else self._counts

    def stores_of(self, name: str) -> list[Any]:
        """Return the store of this name of each task, by group."""
        return [task.stores[name] for task in self._tasks[self._store_owners[name]]]

    def open(self) -> None:
        """Open the tasks that are not open, all before any record."""
        written: list[LogRecord] = []
        for task in self._all():
            if task.task_id not in self._opened:
                with self._stepping(task):
                    self._open(task)
                    written += self._commit(task)
        self._follow(written)

    def process(self, record: LogRecord) -> None:
        """Process a record and all its results, record by record."""
        if not self._of_streams([record]):
            return
        self.open()
        self._fed = True
        self._follow([record])

    def process_slice(self, records: Sequence[LogRecord]) -> None:
        """Process records as one slice, within a run."""
        records = self._of_streams(records)
        if not records:
            return
        self.open()
        self._fed = True
        self._slice(records, ends=False)

    def run(self, records: Sequence[LogRecord]) -> None:
        """Process records as the slice of a run, to its end; a run under way that has records ends first.
        Without records, also parked ones, there is no run.
        """
        records = self._of_streams(records)
        if not records and not any(map(_has_parked, self._all())):
            return
        if self._fed:
            self.end_run()
        self._slice(records, ends=True)
        self._counts = self._counted()
        self._renew()

    def end_run(self, moment_ms: int | None = None) -> None:
        """Close the tasks in running order, so that the results of closing find the next task open, and make
        those of the next run, which are not open yet.

        :param moment_ms: stream time that the end of the run brings; None for no change.
        """
        self._end_tasks(moment_ms)
        if self._fed:
            self._counts = self._counted()
        self._renew()

    def close(self) -> None:
        """Close the processors of the tasks that are open, in running order."""
        self._end_tasks(None)

    def _end_tasks(self, moment_ms: int | None) -> None:
        """End the run of each task, in running order: bring stream time to a moment, close the processors.

        As in a run, the moment is earlier by the time held back upstream, and stream time does not move where
        records may be dated before it.

        :param moment_ms: None if stream time does not move.
        """
        plans = stream_time_plans(self._topology.ordered_subtopologies())
        also = self._settings.advanced_also
        for task in self._all():
            plan = plans[task.task_id.subtopology]
            moves = moment_ms is not None and also.issuperset(plan.by_name)
            if not moves and task.task_id not in self._opened:
                continue
            with self._stepping(task):
                if task.task_id not in self._opened:
                    self._open(task)
                task.stop()
                if moment_ms is not None and moves:
                    for _ in task.end_of_run(moment_ms - plan.behind_ms, also):
                        """One moment after the other, without a commit in between."""
                    self._fed = True
                task.close_processors()
                written = self._commit(task)
            self._follow(written)

    def stop_calls(self) -> None:
        """Give up the calls of asynchronous nodes; the tasks are not used any more."""
        for task in self._all():
            task.close()

    def punctuate(self) -> None:
        """Run due wall-clock timers, and calls of parked records; a task that is not open has neither."""
        for task in self._all():
            if task.task_id not in self._opened:
                continue
            with self._stepping(task):
                task.punctuate()
                while task.process(_CHUNK) or task.execution.in_flight:
                    """Due timers lead to further due ones."""
                written = self._commit(task)
            self._follow(written)

    def _all(self) -> list[StreamTask]:
        return [task for tasks in self._tasks.values() for task in tasks]

    def _task(
        self, task_id: TaskId, positions: Mapping[TopicPartition, int], progress: TaskProgress
    ) -> StreamTask:
        """Make a task with stores restored from their changelogs."""
        ahead_ms = self._settings.max_timestamp_ahead_ms
        task = StreamTask(
            self._topology,
            task_id=task_id,
            bounds={partition: (at, at) for partition, at in positions.items()},
            produce=self._topics.produce,
            settings=self._settings,
            progress=progress,
            environment=TaskEnvironment(
                now_ms=lambda: self.now_ms,
                partition_count=lambda topic: self._topics.partitions.get(topic, 1),
                pause=self._pause,
                say_shared=self._say_shared,
                topic_ids=dict.fromkeys((partition.topic for partition in positions), "test"),
                global_entries=self._globals,
                table_rows=self.rows,
                make_caller=lambda async_nodes: SeededCaller(async_nodes, seed=self._async_seed),
                latest_allowed=lambda topic: no_bound if ahead_ms < 0 else self._latest_allowed(ahead_ms),
            ),
        )
        for name, changelog in task.changelogs.items():
            kept = self._changelogs.of(TopicPartition(changelog, task_id.group))
            if kept:
                task.stores[name].restore_batch(kept)
        task.restored()
        self._readers.update(dict.fromkeys(positions, task))
        return task

    def _say_shared(self, node: str, child: str) -> None:
        """Warn, once of each, that a branch changes what the branches behind it are given."""
        if (node, child) not in self._shared:
            self._shared.add((node, child))
            warnings.warn(
                f"the branch that begins with node {child!r} changes a value of node {node!r} in place, and "
                "the branches behind it are given the changed one, as in Kafka Streams. What to do: change a "
                "copy, {**value, ...} or copy.deepcopy(value), and return that",
                stacklevel=2,
            )

    def _pause(self, seconds: float) -> None:
        """Move the wall clock by the time that a task waits for a record."""
        self.now_ms += math.ceil(seconds * 1000)

    def _latest_allowed(self, ahead_ms: int) -> LatestAllowed:
        """Return the latest allowed timestamp by the machine's time, or by the driver's if that is later: it
        starts at 0 unless set.
        """
        return lambda: max(self.now_ms, system_clock_ms()) + ahead_ms

    def _counted(self) -> RecordCounts:
        keyless = [LeftOut(f"global table {topic}", "null", n) for topic, n in self._keyless.items()]
        counts = (task.progress.counts or RecordCounts() for task in self._all())
        return sum(counts, RecordCounts(left_out=tuple(keyless)))

    def _renew(self) -> None:
        """Make the tasks of the next run from the commits of the last one."""
        self.stop_calls()
        self._tasks = {
            sub: [
                self._task(
                    task.task_id,
                    task.group.positions(),
                    TaskProgress(partition_times=task.progress.partition_times),
                )
                for task in tasks
            ]
            for sub, tasks in self._tasks.items()
        }
        self._opened = set()
        self._fed = False

    def _slice(self, records: Sequence[LogRecord], *, ends: bool) -> None:
        waiting: dict[TopicPartition, list[LogRecord]] = defaultdict(list)
        for record in records:
            waiting[record.at].append(record)
        for task in self._all():
            given = {at: waiting.pop(at) for at in task.group.positions() if at in waiting}
            opened = task.task_id in self._opened
            wanted = opened or task.task_id.subtopology in self._upstream or _has_parked(task)
            if given or (ends and wanted):
                for record in self._give(task, given, ends=ends):
                    waiting[record.at].append(record)

    def _give(
        self, task: StreamTask, given: Mapping[TopicPartition, Sequence[LogRecord]], *, ends: bool
    ) -> list[LogRecord]:
        """Run a task on its slice, at the ends of its logs, up to its last commit.

        :return: the records written to topics that the topology reads.
        """
        written: list[LogRecord] = []
        with self._stepping(task):
            if task.task_id not in self._opened:
                self._open(task)
            for at, records in given.items():
                task.group.extend(at, records[-1].position + 1)
            for at, records in given.items():
                task.add(at, records)
                task.group.reached(at, records[-1].position + 1)
            while task.process(_CHUNK) or task.execution.in_flight or self._waits(task):
                if not task.group.complete and task.commit_due(interval_elapsed=False):
                    written += self._commit(task)
            if ends:
                task.stop()
                task.close_processors()
            return written + self._commit(task)

    def _of_streams(self, records: Sequence[LogRecord]) -> list[LogRecord]:
        """Give the records of global tables to all tasks, and return the others."""
        streams = []
        for record in records:
            entries = self._globals.get(record.at.topic)
            if entries is None:
                streams.append(record)
            elif (key := record.key()) is None:
                self._keyless[record.at.topic] = self._keyless.get(record.at.topic, 0) + 1
            elif (value := record.value()) is None:
                entries.pop(key, None)
            else:
                entries[key] = value
        return streams

    def _waits(self, task: StreamTask) -> bool:
        """Move the wall clock until a parked record is due, if a task chooses no more records before."""
        due_ms = task.progress.parked_due_ms
        if not task.execution.at_capacity or due_ms is None:
            return False
        self.now_ms = max(self.now_ms, due_ms)
        return True

    def _follow(self, records: Sequence[LogRecord]) -> None:
        """Process records and all their results, each as a slice of its own."""
        waiting = deque(records)
        while waiting:
            record = waiting.popleft()
            waiting.extend(self._give(self._readers[record.at], {record.at: [record]}, ends=False))

    def _open(self, task: StreamTask) -> None:
        task.open()
        self._opened.add(task.task_id)

    def _commit(self, task: StreamTask) -> list[LogRecord]:
        """Commit a task's results, as the last part of a step.

        :return: the records written to topics that the topology reads.
        """
        produce = self._topics.produce
        task.flush()
        for changelog, _, _, changes in task.changes():
            for key, value, timestamp_ms in changes:
                produce(changelog, value, key, task.task_id.group, timestamp_ms, None)
        written = self._topics.commit()
        self._outputs.add(written)
        self._changelogs.add(written)
        return [record for record in written if record.at in self._readers]

    @contextmanager
    def _stepping(self, task: StreamTask) -> Iterator[None]:
        """Remember a task that fails in a step."""
        try:
            yield
        except BaseException:
            self.failed = task
            raise


def _has_parked(task: StreamTask) -> bool:
    """Return whether records wait in a task's retry topics; it need not be open."""
    return any(
        store.approximate_count() for store in task.stores.values() if isinstance(store.spec, RetryStoreSpec)
    )


class KeptChangelogs:
    """Keeps the records of changelogs, from which stores are restored.

    :param topics: the changelogs, real names; records of other topics are not kept.
    """

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = frozenset(topics)
        self._kept: dict[TopicPartition, dict[bytes | None, LogRecord]] = {}

    def add(self, records: Sequence[LogRecord]) -> None:
        """Keep committed records; a tombstone ends its key."""
        for record in records:
            if record.at.topic in self._topics:
                kept = self._kept.setdefault(record.at, {})
                kept.pop(record.key(), None)
                if record.value() is not None:
                    kept[record.key()] = record

    def of(self, partition: TopicPartition) -> list[LogRecord]:
        """Return the records of a partition in the order of their offsets."""
        return list(self._kept.get(partition, {}).values())
