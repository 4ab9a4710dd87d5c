"""Tests a topology in the real tasks, on topics in memory.

``input_topics.py`` checks and writes piped records, ``tasks_in_memory.py`` processes them, and
``output_topics.py`` keeps the results. Rule: outside :meth:`TopologyTestDriver.run`, a call of ``pipe_...``
processes its records before it returns; inside, the records wait for the block's end, when they are one run's
slice.

Stores are kept until a run ends; then they are restored from their changelogs, as in every run.

``docs/explanation/testing.md`` lists the differences to a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from airflow_kstreams.streams.errors import ConfigError, TaskCorruptedError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.builder import KStreamBuilder
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology, has_dead_letters, refuse_dead_letter_topic
from airflow_kstreams.streams.topology.topology_builder import TopologyBuilder
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord
from airflow_kstreams.testing.in_memory_topics import InMemoryTopics, hint, topic_counts
from airflow_kstreams.testing.input_topics import InputTopics
from airflow_kstreams.testing.output_topics import OutputRecord, OutputTopics, StoreView, topic_writers
from airflow_kstreams.testing.tasks_in_memory import TasksInMemory


@answers_java_names
class TopologyTestDriver:
    """Tests a topology without broker and Spark; a context manager that closes itself.

    Records are processed one by one as they are piped, several as one slice (:meth:`pipe_records`), or as a
    run would process them: all that is piped in a block of :meth:`run`. Such a block gives the results of a
    run, with few exceptions (``docs/explanation/testing.md``).

    Internal topics may be named as in the topology or with the application id before.

    :param topology: the topology to test.
    :param application_id: prefix of internal topics and changelogs, as in a run.
    :param partitions: partition count per topic, 1 for the others; a repartition topic has as many as a run
        would give it unless named here. A source with a pattern reads the topics named here that match.
    :param settings: application settings by their dotted names, as in a run; those about clients, time
        between commits and runs have no effect here.
    :param wall_clock_ms: first time of the wall clock, epoch milliseconds; only :meth:`advance_wall_clock`
        moves it. ``max.timestamp.ahead.ms`` counts from it, or from the machine's time if that is later.
    :param async_seed: seed of the order in which the calls of asynchronous nodes end; the same seed gives the
        same order. Sleeps inside coroutines take no time.
    :raises ConfigError: the application id, a setting or a partition count is wrong.
    :raises TopologyError: the object is no topology, or the topology cannot run under this application id or
        with these partitions.
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
        async_seed: int = 0,
    ) -> None:
        _check_topology(topology)
        checked = ApplicationSettings.parse(application_id, settings)
        if partitions is not None and not isinstance(partitions, Mapping):
            raise ConfigError(
                f"partitions= is {partitions!r:.80}, expected the count by topic",
                fix='give e.g. partitions={"orders": 2}',
            )
        self._topology = topology = topology.matched(partitions or {})
        self._application_id = application_id
        plan = topology.plan(application_id)
        refuse_dead_letter_topic(plan, checked)
        counts, groups = topic_counts(
            topology, plan, {self._real(topic): count for topic, count in (partitions or {}).items()}
        )
        topics = InMemoryTopics(counts)
        self._outputs = OutputTopics(
            topic_writers(topology, application_id),
            [checked.dead_letter_topic] if has_dead_letters(plan, checked) else [],
        )
        self._inputs = InputTopics(topology, application_id, topics)
        self._tasks = TasksInMemory(
            topology,
            plan,
            groups,
            settings=checked,
            topics=topics,
            outputs=self._outputs,
            async_seed=async_seed,
        )
        self._tasks.now_ms = wall_clock_ms
        self._tables = plan.tables
        #: The records piped in a block of ``run``; None outside.
        self._slice: list[LogRecord] | None = None
        self._closed = False
        try:
            self._tasks.open()
        except BaseException:
            self._tasks.stop_calls()
            raise

    def pipe_input(
        self,
        topic: str,
        *,
        key: Any,
        value: Any,
        timestamp_ms: int,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Write a record to a topic that the topology reads, and process it with all its results.

        :param key: an object of the source's key serde, or None.
        :param value: an object of the source's value serde, or None.
        :param timestamp_ms: epoch milliseconds; -1 for a record without timestamp, as in Kafka.
        :param partition: partition of the topic; unless given, it follows from the key, as with Java's
            producer, and records without key are spread in turn.
        :param headers: (name, bytes or None) in order.
        :raises TopologyError: the topology does not read the topic.
        :raises ConfigError: partition, timestamp or headers are not valid, or the driver is closed.
        :raises RecordError: the key or value does not fit its serde, or the record or a result of it could
            not be processed; in the second case the driver cannot be used further.
        :raises StateStoreError: a store's serde does not take an object, or does not give it back unchanged;
            the driver cannot be used further.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").send_to("out")
        >>> topology = builder.build()
        >>> with TopologyTestDriver(topology, application_id="demo", partitions={"words": 4}) as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=7)
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
        self._pipe(record)

    def pipe_bytes(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Pipe a record in bytes, which the source may be unable to decode.

        :param key: serialized, or None.
        :param value: serialized, or None.
        :param partition: partition, which follows from the bytes of the key unless given.
        :raises TopologyError: the same errors as :meth:`pipe_input`.
        :raises ConfigError: the same errors as :meth:`pipe_input`.
        :raises RecordError: the record or a result of it could not be processed; the driver cannot be used
            further.
        :raises StateStoreError: the same errors as :meth:`pipe_input`.
        :raises TaskCorruptedError: an earlier record had failed.
        """
        self._check_usable()
        record = self._inputs.append_bytes(
            self._real(topic), key, value, timestamp_ms=timestamp_ms, partition=partition, headers=headers
        )
        self._pipe(record)

    def pipe_records(
        self, topic: str, records: Iterable[tuple[Any, Any, int]], *, partition: int | None = None
    ) -> None:
        """Write records to a topic that the topology reads, and process them as one slice, with all its
        results.

        Unlike records piped one by one, they look ahead: stream time and the order over several partitions
        are those of a run whose slice they are, up to its end; cached tables emit once. The run goes on.

        :param records: a triple (key, value, timestamp_ms) for each record, as for :meth:`pipe_input`.
        :param partition: the partition of all records; it follows from each record's key unless given.
        :raises TopologyError: the same errors as :meth:`pipe_input`.
        :raises ConfigError: one of ``records`` is no such triple, or as :meth:`pipe_input`; none is written.
        :raises RecordError: the same errors as :meth:`pipe_input`; if a key or value does not fit its serde,
            no record is written.
        :raises StateStoreError: the same errors as :meth:`pipe_input`.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("words").group_by_key().count(store="counts").to_stream().send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_records("words", [("a", "ant", 1), ("b", "bee", 2), ("a", "ape", 3)])
        ...     [(record.key, record.value) for record in driver.read_output("out")]
        [('a', 2), ('b', 1)]
        """
        self._check_usable()
        written = self._inputs.append_all(self._real(topic), records, partition=partition)
        if self._slice is None:
            self._tasks.process_slice(written)
        else:
            self._slice += written

    @contextmanager
    def run(self) -> Iterator[None]:
        """Process the records piped in a block as a run does: as one slice, of any number of topics.

        At the end of the block, each task takes its records in the order of their timestamps, over all its
        partitions (``docs/explanation/time-and-errors.md``); its processors close before the tasks behind it
        begin. The next run, which the next record begins, restores the stores. A run that single records had
        begun ends before. Without records nothing happens, and if the block raises, its records are dropped.

        :raises ConfigError: the driver is closed, or already in such a block.
        :raises RecordError: a record, a processor's ``init`` or ``close``, or a result of it could not be
            processed; the driver cannot be used further.
        :raises StateStoreError: the same errors as :meth:`pipe_input` and :meth:`restart`.
        :raises TaskCorruptedError: an earlier record had failed.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> prices = builder.table("prices", store="prices")
        >>> builder.stream("orders").join(prices, lambda order, price: f"{order} at {price}").send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     with driver.run():
        ...         driver.pipe_records("orders", [("a", "order 1", 15), ("a", "order 2", 25)])
        ...         driver.pipe_records("prices", [("a", "5 EUR", 10), ("a", "6 EUR", 20)])
        ...     [record.value for record in driver.read_output("out")]
        ['order 1 at 5 EUR', 'order 2 at 6 EUR']
        """
        self._check_between("run() begins")
        self._slice = []
        try:
            yield
            records = self._slice
        finally:
            self._slice = None
        with self._ending_run():
            self._tasks.run(records)

    def decode_input(self, topic: str, *, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        """Return the key and value that the topology's source decodes from a record's bytes, without piping
        them.

        :param key: serialized, or None.
        :param value: serialized, or None.
        :raises TopologyError: the topology does not read the topic.
        :raises Exception: any error of the source's serde for bytes that are not of its format.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("in").send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.decode_input("in", key=b"a", value=b"[1, 2]")
        ('a', [1, 2])
        """
        return self._inputs.decoded(self._real(topic), key, value)

    def advance_wall_clock(self, by_ms: int) -> None:
        """Move the wall clock, and run the punctuations and parked calls that are due.

        As in a run, a punctuation runs once, however many of its intervals have passed.

        :param by_ms: milliseconds, 0 or more.
        :raises ConfigError: the clock would go back, or the driver is closed or in a block of :meth:`run`.
        :raises RecordError: a punctuation failed, or a record that it forwarded.
        """
        self._check_between("the wall clock moves")
        if not isinstance(by_ms, int) or by_ms < 0:
            raise ConfigError(
                f"the wall clock cannot move by {by_ms!r} ms", fix="give milliseconds from 0 on"
            )
        self._tasks.now_ms += by_ms
        self._tasks.punctuate()

    def read_output(
        self, topic: str, *, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> list[OutputRecord]:
        """Return the records that the topology wrote to a topic since the last read, in order.

        Every topic that is written can be read, also after the driver is closed: outputs, intermediate
        topics, the changelogs of logged stores, named ``<application id>-<store>-changelog``, and, as bytes
        unless serdes are given, topics that processors send to by name and the dead-letter topic, named
        ``<application id>-dead-letter``.

        :param key_serde: serde of keys; that of the topic's sink or store unless given.
        :param value_serde: serde of values; that of the topic's sink or store unless given.
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

    def read_table(self, name: str) -> list[dict[str, Any]]:
        """Return the rows that were written to a table, in order: column -> value.

        With ``mode="upsert"``, it has the last row of each key, and none of a key whose last value was None.

        :param name: name of the table.
        :raises TopologyError: the topology does not write to the table.
        """
        table = next((each for each in self._tables if each.name == name), None)
        if table is None:
            known = ", ".join(repr(each.name) for each in self._tables) or "no table"
            raise TopologyError(
                f"the topology writes to {known}, and not to table {name!r}",
                fix="read one that it writes to: the name is the first argument of IcebergTable, or name=",
            )
        names = [column.name for column in table.columns]
        written = self._tasks.rows[name]
        rows = written.last_of_keys() if table.mode == "upsert" else written.rows
        return [dict(zip(names, row, strict=True)) for row in rows]

    def store(self, name: str, partition: int = 0) -> StoreView:
        """Return a view of a store.

        :param name: the store's name.
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
        if name not in self._tasks.store_owners:
            known = sorted(self._tasks.store_owners)
            raise TopologyError(
                f"the topology has no store {name!r}{hint(name, known)}",
                fix=f"stores of this topology: {', '.join(known) or 'none'}",
            )
        count = len(self._tasks.stores_of(name))
        if partition not in range(count):
            raise ConfigError(
                f"store {name!r} has no partition {partition!r}: its subtopology has "
                f"{counted(count, 'task')}",
                fix="ask for one of them, or give its source topics more partitions with partitions=",
            )
        return StoreView(name, lambda: self._tasks.stores_of(name)[partition], self._check_usable)

    @property
    def counts(self) -> RecordCounts:
        """The record counts of the run under way, or of the last run while no other has had records: ``read``
        and ``written`` per topic (real names), ``by_rule`` in all, and ``left_out`` per ``node`` and ``rule``
        (``filtered``, ``late``, ...).

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter(lambda key, value: value > 1).send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=value)
        ...     [(entry.node, entry.rule, entry.records) for entry in driver.counts.left_out]
        [('KSTREAM-FILTER-0000000001', 'filtered', 1)]
        """
        return self._tasks.counts

    def restart(self, *, stream_time_ms: int | None = None) -> None:
        """End the run and begin the next one, as a schedule does: the processors close, their last results
        are processed, and new tasks restore their stores from their changelogs. Stream time goes on; stores
        that are not logged begin empty.

        :param stream_time_ms: stream time that the end of the run brings (``stream.time.advance``), epoch
            milliseconds; unless given, records alone decide it.
        :raises ConfigError: the driver is closed, or in a block of :meth:`run`.
        :raises RecordError: a processor's ``close`` or ``init`` failed, or a result of it.
        :raises StateStoreError: a changelog holds bytes that the store's serde does not read.
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
        self._check_between("restart() ends a run")
        with self._ending_run():
            self._tasks.end_run(stream_time_ms)
        self._tasks.open()

    def close(self) -> None:
        """Close the processors and process their last results; a second call, or a call after a failed
        record, does nothing.

        :raises ConfigError: the driver is in a block of :meth:`run`.
        :raises RecordError: a processor's ``close`` failed, or a result of it.

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
        self._refuse_in_block("close() ends the driver")
        try:
            if self._tasks.failed is None:
                self._tasks.close()
        finally:
            self._tasks.stop_calls()
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

    def _pipe(self, record: LogRecord) -> None:
        if self._slice is None:
            self._tasks.process(record)
        else:
            self._slice.append(record)

    @contextmanager
    def _ending_run(self) -> Iterator[None]:
        """Close the driver for good, if a store cannot be restored."""
        try:
            yield
        except BaseException:
            self._closed = self._tasks.failed is None
            raise

    def _check_between(self, step: str) -> None:
        self._check_usable()
        self._refuse_in_block(step)

    def _refuse_in_block(self, step: str) -> None:
        if self._slice is not None:
            raise ConfigError(
                f"{step}, and the driver is in a block of run(), which is one run",
                fix="do it before the block or behind it",
            )

    def _check_usable(self) -> None:
        if self._closed:
            raise ConfigError("the driver is closed", fix="make a new TopologyTestDriver")
        if (failed := self._tasks.failed) is not None:
            raise TaskCorruptedError(
                f"task {failed.task_id} failed at an earlier record, which its stores may hold in part",
                fix="make a new TopologyTestDriver; a run would restore the task from its changelogs",
                task_id=str(failed.task_id),
            )


def _check_topology(given: object) -> None:
    if isinstance(given, Topology):
        return
    name = getattr(given, "__name__", type(given).__name__)
    found, fix = f"a {name}", "pass what builder.build() returns"
    if isinstance(given, KStreamBuilder | TopologyBuilder):
        fix = "call builder.build(), and pass what it returns"
    elif callable(given) and not isinstance(given, type):
        found, fix = f"the function {name}", f"call it, if it makes one: {name}()"
    raise TopologyError(f"TopologyTestDriver at {call_site()} is given {found}, expected a Topology", fix=fix)
