"""Builds streams and tables of topics, and the topology of the operators that were called on them."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypedDict, Unpack, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef, Storage, StoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import (
    StoreArgument,
    check_store,
    check_table_keys,
    check_table_store,
    check_topic,
)
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph, check_name, kept_ahead
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable, kept_table
from airflow_kstreams.streams.kstream.kstream import KStream
from airflow_kstreams.streams.kstream.ktable import KTable
from airflow_kstreams.streams.kstream.lasting_names import reads_together
from airflow_kstreams.streams.kstream.operators.tables.table_source import keeping
from airflow_kstreams.streams.kstream.tables.global_table import GlobalKTable
from airflow_kstreams.streams.kstream.windows.window_tables import kept_together
from airflow_kstreams.streams.partitioning.partition_groups import PartitionGrouper
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.timestamps import TimestampExtractor, check_timestamps
from airflow_kstreams.streams.topic_patterns import pattern_topic
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.streams.type_variables import KR, VR, K, V

#: A topic's name, or a list of names.
Topics = str | list[str] | tuple[str, ...]


class TableOptions(TypedDict, total=False):
    """Options of ``table``, for type checkers."""

    timestamps: TimestampExtractor | None
    name: str | None


class SourceOptions(TableOptions, total=False):
    """Options of ``stream``, for type checkers."""

    pattern: str


class GlobalTableOptions(TypedDict, total=False):
    """Options of ``global_table``, for type checkers."""

    storage: Storage
    name: str | None


@answers_java_names
class KStreamBuilder(Generic[K, V]):
    """Makes streams of topics, and the topology of the operators that were called on them.

    :param default_key_serde: serde of keys wherever none is given or known from upstream.
    :param default_value_serde: serde of values wherever none is given or known from upstream.
    :param partition_grouper: decides which partitions one task reads together; by default equal partition
        numbers.
    :raises TopologyError: ``partition_grouper`` is no partition grouper.

    >>> from airflow_kstreams.streams import serdes
    >>> builder = KStreamBuilder()
    >>> words = builder.stream("words", key_serde=serdes.string(), value_serde=serdes.string())
    >>> words.filter(lambda key, value: len(value) > 3).send_to("long-words")
    >>> print(builder.build().describe().rstrip())
    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [words])
          --> KSTREAM-FILTER-0000000001
        Processor: KSTREAM-FILTER-0000000001 (stores: [])
          --> KSTREAM-SINK-0000000002
          <-- KSTREAM-SOURCE-0000000000
        Sink: KSTREAM-SINK-0000000002 (topic: long-words)
          <-- KSTREAM-FILTER-0000000001
    """

    def __init__(
        self,
        *,
        default_key_serde: Serde[K] | None = None,
        default_value_serde: Serde[V] | None = None,
        partition_grouper: PartitionGrouper | None = None,
    ) -> None:
        self._graph = StreamGraph(
            KStream,
            default_key_serde=default_key_serde,
            default_value_serde=default_value_serde,
            partition_grouper=partition_grouper,
        )
        #: Topic -> the table of it that the user gave no name.
        self._tables: dict[str, KnownTable] = {}

    @overload
    def stream(self, *topics: Topics, **options: Unpack[SourceOptions]) -> KStream[K, V]: ...
    @overload
    def stream(
        self, *topics: Topics, key_serde: Serde[KR], **options: Unpack[SourceOptions]
    ) -> KStream[KR, V]: ...
    @overload
    def stream(
        self, *topics: Topics, value_serde: Serde[VR], **options: Unpack[SourceOptions]
    ) -> KStream[K, VR]: ...
    @overload
    def stream(
        self,
        *topics: Topics,
        key_serde: Serde[KR],
        value_serde: Serde[VR],
        **options: Unpack[SourceOptions],
    ) -> KStream[KR, VR]: ...
    def stream(
        self,
        *topics: Topics,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamps: TimestampExtractor | None = None,
        pattern: str = "",
        name: str | None = None,
    ) -> KStream:
        r"""Return the stream of the records of one topic or several; asking twice gives two streams of one
        source node.

        Records of several topics come in the order of their timestamps, as everywhere in a task. Partition n
        of each topic goes to task n, unless the builder was given another partition grouper; the topics may
        have unequal partition counts unless a store is kept below.

        :param topics: names of topics, ``stream("a", "b")``, or lists of names, ``stream(["a", "b"])``; each
            topic must exist when a run begins.
        :param key_serde: serde of keys; may be left out if the builder has a default.
        :param value_serde: serde of values; may be left out if the builder has a default.
        :param timestamps: extractor of the records' timestamps, see ``airflow_kstreams.streams.timestamps``;
            by default each record has its own.
        :param pattern: a regular expression in place of names: the stream reads every topic whose whole
            name matches when a run begins; a new topic enters with the next run. A pattern that matches a
            topic of another source, one that the topology writes, or one of the engine's is refused.
        :param name: the source node's name; numbered by default.
        :raises TopologyError: a serde is missing, one of the topics is read with other serdes or
            timestamps, together with other topics, or under another name, already, or the pattern is no
            regular expression, or stands beside names.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> both = builder.stream("flights-2013", "flights-2014")
        >>> both.send_to("flights")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("flights-2014", key="a", value="UA15", timestamp_ms=0)
        ...     [record.value for record in driver.read_output("flights")]
        ['UA15']

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream(pattern=r"flights-\d{4}").send_to("flights")
        >>> with TopologyTestDriver(
        ...     builder.build(), application_id="demo", partitions={"flights-2013": 1, "flights-2014": 1}
        ... ) as driver:
        ...     driver.pipe_input("flights-2014", key="a", value="UA15", timestamp_ms=0)
        ...     [record.value for record in driver.read_output("flights")]
        ['UA15']
        """
        names = _named_or_pattern(topics, pattern)
        check_timestamps("stream", timestamps)
        call = f"stream(pattern={pattern!r})" if pattern else f"stream({', '.join(map(repr, names))})"
        key = self._graph.serde("key", key_serde, None, call)
        value = self._graph.serde("value", value_serde, None, call)
        source = self._graph.source(names, key, value, timestamps, name)
        serdes = Serdes(key=key, value=value)
        reads = reads_together([names])
        return KStream(KnownStream(graph=self._graph, node=source, serdes=serdes, reads=reads))

    @overload
    def table(
        self, topic: str, *, store: str | None = None, **options: Unpack[TableOptions]
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self, topic: str, *, key_serde: Serde[KR], store: str | None = None, **options: Unpack[TableOptions]
    ) -> KTable[KR, V]: ...
    @overload
    def table(
        self, topic: str, *, value_serde: Serde[VR], store: str | None = None, **options: Unpack[TableOptions]
    ) -> KTable[K, VR]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[KR],
        value_serde: Serde[VR],
        store: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[KR, VR]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[VR] | None = None,
        store: StoreSpec[KR, VR],
        **options: Unpack[TableOptions],
    ) -> KTable[KR, VR]: ...
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        store: StoreArgument = None,
        timestamps: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> KTable:
        """Return a topic as a table: the value of each key's newest record; a null value deletes the key.

        Records without key are dropped and counted. The table is kept in a store with a changelog of its own;
        asking twice without names gives one table.

        :param topic: name of a topic that is partitioned by key; it must exist when a run begins.
        :param key_serde: serde of keys; may be left out if the store's spec or the builder has one.
        :param value_serde: serde of values; may be left out if the builder has a default.
        :param store: the store's name, or its whole spec (to switch caching or logging off, or a
            ``VersionedStoreSpec`` to keep versions); by default ``<topic>-table``.
        :param timestamps: as in :meth:`stream`.
        :param name: name of the node that keeps the table; numbered by default.
        :raises TopologyError: a serde is missing, the topic is read with other serdes, timestamps or topics
            already, the store's name is taken or its keys have another serde.

        >>> from airflow_kstreams.streams import serdes
        >>> builder = KStreamBuilder(
        ...     default_key_serde=serdes.string(), default_value_serde=serdes.string()
        ... )
        >>> airlines = builder.table("airlines", store="airlines")
        >>> flights = builder.stream("flights-2013", "flights-2014")
        >>> named = flights.join(airlines, lambda flight, airline: f"{flight} of {airline}")
        >>> named.send_to("named-flights", value_serde=serdes.string())
        >>> builder.build().plan("app").subtopologies[0].copartitioned
        (('airlines', 'flights-2013', 'flights-2014'),)
        """
        graph = self._graph
        check_topic(topic, "table")
        call = f"table({topic!r})"
        check_store(store, "table")
        check_timestamps("table", timestamps)
        if isinstance(store, StoreSpec):
            key_serde = key_serde or store.key_serde
            value_serde = value_serde or store.value_serde
        key = graph.serde("key", key_serde, None, call)
        value = graph.serde("value", value_serde, None, call)
        source = graph.source((topic,), key, value, timestamps)
        if topic in self._tables and store is None and name is None:
            return KTable(self._tables[topic])
        name_of_store = graph.store_name(store, (topic,), "table", "table")
        if isinstance(store, StoreSpec):
            spec = store
            check_table_store(spec, call)
            check_table_keys(spec, key, call)
        else:
            spec = StoreSpec(name=name_of_store, key_serde=key, value_serde=value)
        node = graph.operator("KTABLE-SOURCE", keeping(spec), source, (spec.name,), name=name)
        table = kept_table(graph, node, spec, (topic,))
        if store is None and name is None:
            self._tables[topic] = table
        return KTable(table)

    @overload
    def global_table(self, topic: str, **options: Unpack[GlobalTableOptions]) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key_serde: Serde[KR], **options: Unpack[GlobalTableOptions]
    ) -> GlobalKTable[KR, V]: ...
    @overload
    def global_table(
        self, topic: str, *, value_serde: Serde[VR], **options: Unpack[GlobalTableOptions]
    ) -> GlobalKTable[K, VR]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[KR],
        value_serde: Serde[VR],
        **options: Unpack[GlobalTableOptions],
    ) -> GlobalKTable[KR, VR]: ...
    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        storage: Storage = "memory",
        name: str | None = None,
    ) -> GlobalKTable:
        """Return a topic as a table that every task sees whole, for joins of streams that name its entries.

        A run sees the topic as it was when the run began, in every task and attempt; what comes later belongs
        to the next run, and starts no run by itself. Each Python process of the executors reads the whole
        topic once in a run, for all of its tasks.

        :param topic: name of a topic of any partition count; the topology neither reads nor writes it
            otherwise.
        :param key_serde: serde of keys; may be left out if the builder has a default.
        :param value_serde: serde of values; may be left out if the builder has a default.
        :param storage: place of the table's entries in a process: ``memory``, as bytes, or ``rocksdb`` for
            more than memory holds (needs the extra ``rocksdb``).
        :param name: the table's name in ``describe`` and pictures; by default the topic's.
        :raises TopologyError: a serde is missing, there is no such storage, or the topic is a global table
            under another name already; ``build`` refuses a topic that is read or written besides, and a name
            that a node has.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> airports = builder.global_table("airports")
        >>> flights = builder.stream("flights")  # UA15, with the airport it goes to
        >>> named = flights.join(airports, lambda to, name: name, key=lambda flight, to: to)
        >>> named.send_to("destinations")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("airports", key="LAX", value="Los Angeles", timestamp_ms=0)
        ...     driver.pipe_input("flights", key="UA15", value="LAX", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("destinations")]
        [('UA15', 'Los Angeles')]
        """
        check_topic(topic, "global_table", legal=True)
        check_name(name)
        call = f"global_table({topic!r})"
        definition = GlobalTableDef(
            topic=topic,
            key_serde=self._graph.serde("key", key_serde, None, call),
            value_serde=self._graph.serde("value", value_serde, None, call),
            storage=storage,
            name=name or "",
            site=call_site(),
        )
        return GlobalKTable(self._graph, self._graph.global_table(definition))

    def add_state_store(self, spec: StoreSpec) -> None:
        """Add a store for processors, which name it in ``KStream.process``.

        :raises TopologyError: another store has the name.

        :param spec: the store's spec; each task makes a store of its own.

        >>> class Remember(Processor):
        ...     def init(self, context):
        ...         self.seen = context.state_store("seen")
        ...
        ...     def process(self, record):
        ...         self.seen.put_if_absent(record.value, record.key)
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.add_state_store(
        ...     StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.string())
        ... )
        >>> end = builder.stream("words").process(Remember, "seen")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="1", value="ant", timestamp_ms=0)
        ...     driver.pipe_input("words", key="2", value="ant", timestamp_ms=1)
        ...     list(driver.store("seen").all())
        [('ant', '1')]
        """
        self._graph.topology.add_state_store(spec)

    def build(self) -> Topology:
        """Return the topology.

        :raises TopologyError: the topology cannot run; the error names the user's file and line.
        """
        topology = kept_together(self._graph.topology.build())
        topology = dataclasses.replace(topology, made_of=self._graph.made_of)
        return kept_ahead(topology, self._graph.without_key)


def _named_or_pattern(topics: tuple[Topics, ...], pattern: object) -> tuple[str, ...]:
    """Return the names of topics, or the placeholder of a pattern."""
    if not pattern or (isinstance(pattern, str) and not topics):
        return (pattern_topic(str(pattern)),) if pattern else _names(topics)
    raise TopologyError(
        f"stream at {call_site()} is given {pattern!r} as pattern{' beside topics' if topics else ''}",
        fix="name topics, or give a regular expression as text that matches all of them",
    )


def _names(topics: tuple[Topics, ...]) -> tuple[str, ...]:
    """Return the names among names and lists of names."""
    names: list[str] = []
    for topic in topics:
        if isinstance(topic, list | tuple):
            names += topic
        else:
            names.append(topic)
    for name in names:
        check_topic(
            name, "stream", fix="pass names, stream('a', 'b'), or a list of names, stream(['a', 'b'])"
        )
    if not names or len({*names}) < len(names):
        listed = ", ".join(names) or "none"
        raise TopologyError(
            f"stream at {call_site()} needs topics, each named once, and is given: {listed}",
            fix="name one topic or more, each once",
        )
    return tuple(names)
