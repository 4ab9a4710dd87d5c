"""Runs a topology record by record, in the real tasks on topics in memory.

Rule: a piped record is processed at once by the task that reads its partition. Then the task emits what it
had cached, logs what changed in its stores and commits. What the commit wrote to a topic that the topology
reads is processed next, record by record in the order it was written, each with a commit of its own, until
nothing is left.

The tasks are those of a run, stream_task.py; only their host differs: in a run, a task meets the records of
its whole slice in the order of their timestamps, and commits many of them together, so cached tables emit
less often there.

Where a run reads back the first values that a store writes, the driver reads back every one. Its stores stay
as they are until :meth:`TopologyTestDriver.restart`, which restores them from their changelogs, as every run
does.

Crash argument: when a record fails, its commit never comes, so nothing it wrote becomes visible. Since the
task's stores may hold a part of it, the driver refuses to go on, where a run would restore the task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from airflow_kstreams.streams.errors import ConfigError, TaskCorruptedError, TopologyError
from airflow_kstreams.streams.partitioning.partition_groups import partitions_in
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.records.timestamp_reading import LatestAllowed, no_bound
from airflow_kstreams.streams.records.wall_clock import system_clock_ms
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId, TaskProgress
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.stores.store_serdes import ReadsBack
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.in_memory_topics import InMemoryRecord, InMemoryTopics
from airflow_kstreams.testing.input_topics import InputTopics
from airflow_kstreams.testing.kept_changelogs import KeptChangelogs
from airflow_kstreams.testing.output_topics import OutputRecord, OutputTopics, topic_writers
from airflow_kstreams.testing.store_view import StoreView
from airflow_kstreams.testing.topic_counts import hint, topic_counts


class TopologyTestDriver:
    """Tests a topology without broker and Spark; a context manager that closes itself.

    Internal topics may be named as in the topology or with the application id before.

    :param topology: what to test.
    :param application_id: as in a run; prefixes internal topics and changelogs.
    :param partitions: partition count per topic, 1 for the others; a repartition topic has what a run would
        give it unless named here.
    :param settings: application settings by their dotted names, as in a run; those about clients, commits and
        runs have nothing to act on here.
    :param wall_clock_ms: where the wall clock stands, epoch milliseconds; it moves by
        :meth:`advance_wall_clock` alone. ``max.timestamp.ahead.ms`` counts from it, or from the machine's
        time where that is later.
    :raises ConfigError: the application id, a setting or a partition count is wrong.
    :raises TopologyError: the topology cannot run under this application id, or with these partitions.
    :raises RecordError: a processor's ``init`` failed.

    >>> from airflow_kstreams.streams import KStreamBuilder, serdes
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("numbers").map_values(lambda value: 2 * value).send_to("doubled")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("numbers", key="a", value=21, timestamp_ms=100)
    ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("doubled")]
    [('a', 42, 100)]
    """

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str,
        partitions: Mapping[str, int] | None = None,
        settings: Mapping[str, object] | None = None,
        wall_clock_ms: int = 0,
    ) -> None:
        self._settings = checked = ApplicationSettings.parse(application_id, settings)
        self._now_ms = wall_clock_ms
        self._topology = topology
        self._application_id = application_id
        plan = topology.plan(application_id)
        counts, groups = topic_counts(
            topology, plan, {self._real(topic): count for topic, count in (partitions or {}).items()}
        )
        self._topics = InMemoryTopics(counts)
        self._outputs = OutputTopics(
            topic_writers(topology, application_id),
            [checked.dead_letter_topic] if checked.dead_letters else [],
        )
        self._inputs = InputTopics(topology, application_id, self._topics)
        self._changelogs = KeptChangelogs(plan.changelogs)
        self._store_owners = {name: sub.id for sub in plan.subtopologies for name in sub.stores}
        self._readers: dict[TopicPartition, StreamTask] = {}
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
        }
        self._failed: StreamTask | None = None
        self._closed = False
        self._open()

    def pipe_input(
        self,
        topic: str,
        *,
        key: Any,
        value: Any,
        timestamp_ms: int,
        partition: int | None = 0,
        headers: Headers | None = None,
    ) -> None:
        """Write a record to a topic that the topology reads, and process it with all that follows from it.

        :param key: as the source's key serde takes it, or None.
        :param value: as the source's value serde takes it, or None.
        :param timestamp_ms: epoch milliseconds; -1 stands for a record that has none, as in Kafka.
        :param partition: of the topic; None lets the key decide, as Java's producer does.
        :param headers: (name, bytes or None) in order.
        :raises TopologyError: the topology does not read the topic.
        :raises ConfigError: partition, timestamp or headers cannot be, or the driver is closed.
        :raises RecordError: the key or value does not fit its serde, or the record or one that follows from
            it could not be processed; in the second case the driver cannot be used further.
        :raises StateStoreError: a store holds what its serde does not take, or does not give back as it was;
            likewise.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").send_to("out")
        >>> topology = builder.build()
        >>> with TopologyTestDriver(topology, application_id="demo", partitions={"words": 4}) as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=7, partition=None)
        ...     driver.pipe_input("words", key="b", value="bee", timestamp_ms=8, headers=[("n", b"1")])
        ...     [(record.value, record.headers) for record in driver.read_output("out")]
        [('ant', []), ('bee', [('n', b'1')])]
        """
        self._check_usable()
        record = self._inputs.append(
            self._real(topic),
            key,
            value,
            timestamp_ms=timestamp_ms,
            partition=partition,
            headers=headers,
        )
        self._follow([record])

    def pipe_bytes(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        partition: int | None = 0,
        headers: Headers | None = None,
    ) -> None:
        """Do the same with a record as it lies in Kafka, whose bytes the source may be unable to decode.

        :param key: serialized, or None.
        :param value: serialized, or None.
        :raises TopologyError: as :meth:`pipe_input`.
        :raises ConfigError: as :meth:`pipe_input`.
        :raises RecordError: the record or one that follows from it could not be processed; the driver cannot
            be used further.
        :raises StateStoreError: as :meth:`pipe_input`.
        :raises TaskCorruptedError: an earlier record had failed.
        """
        self._check_usable()
        record = self._inputs.append_bytes(
            self._real(topic), key, value, timestamp_ms=timestamp_ms, partition=partition, headers=headers
        )
        self._follow([record])

    def decode_input(self, topic: str, *, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        """Return the key and value that the topology's source makes of a record's bytes; nothing is piped.

        :param key: serialized, or None.
        :param value: serialized, or None.
        :raises TopologyError: the topology does not read the topic.
        :raises Exception: whatever the source's serde raises about bytes that are not of its format.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("in").send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.decode_input("in", key=b"a", value=b"[1, 2]")
        ('a', [1, 2])
        """
        return self._inputs.decoded(self._real(topic), key, value)

    def advance_wall_clock(self, by_ms: int) -> None:
        """Move the wall clock, and let what was scheduled by it run where it is due.

        As in a run, each comes once, however many of its intervals have passed.

        :param by_ms: milliseconds, 0 or more.
        :raises ConfigError: it would go back, or the driver is closed.
        :raises RecordError: a punctuation failed, or what it forwarded.
        """
        self._check_usable()
        if not isinstance(by_ms, int) or by_ms < 0:
            raise ConfigError(
                f"the wall clock cannot move by {by_ms!r} ms", fix="give milliseconds from 0 on"
            )
        self._now_ms += by_ms
        for tasks in self._tasks.values():
            for task in tasks:
                self._follow(self._committed(task, task.punctuate))

    def read_output(
        self, topic: str, *, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> list[OutputRecord]:
        """Return what the topology wrote to a topic since the last read, in the order it was written.

        Every topic that is written can be read: outputs, intermediate topics, the changelogs of logged
        stores, named ``<application id>-<store>-changelog``, and, as bytes unless serdes are given, what
        processors sent by name and the dead-letter topic, named ``<application id>-dead-letter``. Still
        possible when the driver is closed.

        :param key_serde: of keys; that of the topic's sink or store unless given.
        :param value_serde: of values; that of the topic's sink or store unless given.
        :raises TopologyError: the topology does not write the topic, or writes it with several serdes and
            none is given here.
        :raises RecordError: a record cannot be decoded.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> counts = builder.stream("words").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("demo-counts-changelog")]
        [('a', 1)]
        """
        check_serdes("read_output", key_serde=key_serde, value_serde=value_serde)
        real = self._real(topic)
        if real not in self._outputs:
            names = self._outputs.names
            raise TopologyError(
                f"the topology does not write the topic {topic!r}{hint(topic, names)}",
                fix=f"read a topic it writes: {', '.join(names)}",
            )
        return self._outputs.read(real, key_serde, value_serde)

    def store(self, name: str, partition: int = 0) -> StoreView:
        """Return a view of a store, as it is after the last piped record.

        :param name: of the store.
        :param partition: the task's group, which is the number of its source partitions unless the topology
            has a partition grouper of its own.
        :raises TopologyError: the topology has no store of this name.
        :raises ConfigError: there is no such partition, or the driver is closed.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> words = builder.table("words", store="newest")
        >>> driver = TopologyTestDriver(builder.build(), application_id="demo", partitions={"words": 2})
        >>> driver.pipe_input("words", key="a", value="ant", timestamp_ms=0, partition=1)
        >>> driver.store("newest").get("a"), driver.store("newest", partition=1).get("a")
        (None, 'ant')
        """
        self._check_usable()
        if name not in self._store_owners:
            known = sorted(self._store_owners)
            raise TopologyError(
                f"the topology has no store {name!r}{hint(name, known)}",
                fix=f"stores of this topology: {', '.join(known) or 'none'}",
            )
        tasks = self._tasks[self._store_owners[name]]
        if partition not in range(len(tasks)):
            raise ConfigError(
                f"store {name!r} has no partition {partition!r}: its subtopology has {len(tasks)} tasks",
                fix="ask for one of them, or give its source topics more partitions with partitions=",
            )
        return StoreView(
            name, lambda: self._tasks[self._store_owners[name]][partition].stores[name], self._check_usable
        )

    def restart(self) -> None:
        """End the run and begin the next one, as a schedule does: the processors close, what they forward is
        processed, and new tasks restore their stores from their changelogs. Stream time goes on; stores that
        are not logged begin empty.

        :raises ConfigError: the driver is closed.
        :raises RecordError: a processor's ``close`` or ``init`` failed, or what it forwarded.
        :raises StateStoreError: a changelog holds what the store's serde does not take.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> counts = builder.stream("words").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     driver.restart()
        ...     driver.pipe_input("words", key="a", value="ape", timestamp_ms=1)
        ...     driver.store("counts").get("a")
        2
        """
        self._check_usable()
        self._close_tasks()
        self._closed = True  # for good, if a store cannot be restored
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
        self._closed = False
        self._open()

    def close(self) -> None:
        """Let the processors close and process what they forward; nothing happens the second time, or when a
        record had failed.

        :raises RecordError: a processor's ``close`` failed, or what it forwarded.

        >>> class Last(Processor):
        ...     def init(self, context):
        ...         self.context, self.last = context, None
        ...
        ...     def process(self, record):
        ...         self.last = record
        ...
        ...     def close(self):
        ...         self.context.forward(self.last.key, self.last.value)
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").process(Last).send_to("last-of-run")
        >>> driver = TopologyTestDriver(builder.build(), application_id="demo")
        >>> driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        >>> driver.close()
        >>> [record.value for record in driver.read_output("last-of-run")]
        ['ant']
        """
        if self._closed:
            return
        try:
            if self._failed is None:
                self._close_tasks()
        finally:
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _real(self, topic: str) -> str:
        return self._topology.real_topic(topic, self._application_id)

    def _task(
        self, task_id: TaskId, positions: Mapping[TopicPartition, int], progress: TaskProgress
    ) -> StreamTask:
        """Make a task whose stores hold what their changelogs do."""
        ahead_ms = self._settings.max_timestamp_ahead_ms
        task = StreamTask(
            self._topology,
            task_id=task_id,
            bounds={partition: (at, at) for partition, at in positions.items()},
            produce=self._topics.produce,
            settings=self._settings,
            progress=progress,
            environment=TaskEnvironment(
                now_ms=lambda: self._now_ms,
                partition_count=lambda topic: self._topics.partitions.get(topic, 1),
                latest_allowed=lambda topic: no_bound if ahead_ms < 0 else self._latest_allowed(ahead_ms),
            ),
        )
        for store in task.stores.values():
            if isinstance(store, ReadsBack):
                store.stored_values.check_all()
        for name, changelog in task.changelogs.items():
            kept = self._changelogs.of(TopicPartition(changelog, task_id.group))
            if kept:
                task.stores[name].restore_batch(kept)
        self._readers.update(dict.fromkeys(positions, task))
        return task

    def _latest_allowed(self, ahead_ms: int) -> LatestAllowed:
        """Go by the machine's time, or by the driver's where that is later: it starts at 0 unless set."""
        return lambda: max(self._now_ms, system_clock_ms()) + ahead_ms

    def _open(self) -> None:
        """Open every task before any record arrives."""
        written: list[InMemoryRecord] = []
        for tasks in self._tasks.values():
            for task in tasks:
                written += self._committed(task, task.open)
        self._follow(written)

    def _close_tasks(self) -> None:
        """Close the tasks in running order, so that what one forwards finds the next still open."""
        for tasks in self._tasks.values():
            for task in tasks:
                self._follow(self._committed(task, task.close))

    def _follow(self, records: Sequence[InMemoryRecord]) -> None:
        """Process records and all that follows from them."""
        waiting = deque(records)
        while waiting:
            record = waiting.popleft()
            task = self._readers[record.at]
            waiting.extend(self._committed(task, partial(_process, task, record)))

    def _committed(self, task: StreamTask, step: Callable[[], object]) -> list[InMemoryRecord]:
        """Run a step of a task and commit it.

        :return: the records written to topics that the topology reads.
        """
        produce = self._topics.produce
        try:
            step()
            task.flush()
            for changelog, changes in task.changes():
                for key, value, timestamp_ms in changes:
                    produce(changelog, value, key, task.task_id.group, timestamp_ms, None)
        except BaseException:
            self._failed = task
            raise
        written = self._topics.commit()
        self._outputs.add(written)
        self._changelogs.add(written)
        return [record for record in written if record.at in self._readers]

    def _check_usable(self) -> None:
        if self._closed:
            raise ConfigError("the driver is closed", fix="make a new TopologyTestDriver")
        if self._failed is not None:
            raise TaskCorruptedError(
                f"task {self._failed.task_id} failed at an earlier record, which its stores may hold in part",
                fix="make a new TopologyTestDriver; a run would restore the task from its changelogs",
                task_id=str(self._failed.task_id),
            )


def _process(task: StreamTask, record: InMemoryRecord) -> None:
    """Let a task read one record, which stands at the end of its log."""
    end = record.position + 1
    task.group.extend(record.at, end)
    task.add(record.at, [record])
    task.group.reached(record.at, end)
    while task.process(1):
        pass
