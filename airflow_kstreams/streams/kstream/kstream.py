"""A stream of records, and what can be done with it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.kstream.arguments import check_functions, check_partner, no_window_error
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.merging import merged_serdes
from airflow_kstreams.streams.kstream.stateless import (
    Action,
    Branch,
    Filter,
    FilterNot,
    FlatMap,
    FlatMapper,
    FlatMapValues,
    FlatValueMapper,
    KeySelector,
    KeyValueMapper,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Predicate,
    ValueMapper,
)
from airflow_kstreams.streams.kstream.table_join import JoinedStream, TableJoin, ValueJoiner, add_table_join
from airflow_kstreams.streams.processor.operator import ProcessorOperator
from airflow_kstreams.streams.processor.processor import ProcessorDef
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.builder import check_processor_def
from airflow_kstreams.streams.topology.call_site import call_site
from airflow_kstreams.streams.topology.nodes import Operator, StoreSpec

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.grouped import KGroupedStream
    from airflow_kstreams.streams.kstream.table import KTable
    from airflow_kstreams.streams.kstream.windowed_stream import WindowedKStream
    from airflow_kstreams.streams.kstream.windows import SlidingWindow


class KStream:
    """A stream of (key, value); every method adds to the topology and leaves this stream as it is.

    Functions are called positionally and run once per record, so they must depend on their arguments alone.
    Values are shared by all that follows: a function returns a new value rather than change the one it was
    given. Keys and values may be None where a topic holds records without.

    :param graph: what is being built.
    :param node: the node whose results this stream is.
    :param serdes: what is known of its bytes.
    :param key_changed: whether records may sit in another partition than their key belongs to.
    :param table_values: whether values may be, or hold, objects that a table goes on changing.
    """

    def __init__(
        self,
        graph: StreamGraph,
        node: str,
        serdes: Serdes,
        *,
        key_changed: bool = False,
        table_values: bool = False,
    ) -> None:
        self._graph = graph
        self._node = node
        self._serdes = serdes
        self._key_changed = key_changed
        self._table_values = table_values

    def filter(self, predicate: Predicate) -> Self:
        """Keep the records for which ``predicate(key, value)`` holds.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter(lambda key, value: value > 1).send_to("large")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("large")]
        [2, 3]
        """
        check_functions(predicate, call="filter")
        return self._same("KSTREAM-FILTER", Filter(predicate=predicate))

    def filter_not(self, predicate: Predicate) -> Self:
        """Drop the records for which ``predicate(key, value)`` holds, keep the others.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter_not(lambda key, value: value > 1).send_to("small")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("small")]
        [1]
        """
        check_functions(predicate, call="filter_not")
        return self._same("KSTREAM-FILTER", FilterNot(predicate=predicate))

    def peek(self, action: Action) -> Self:
        """Call ``action(key, value)`` for each record, e.g. to log or count it, and pass the record on as it
        is.

        :param action: what it returns is ignored; an attempt that resumes after a crash calls it again.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> seen = []
        >>> numbers = builder.stream("numbers").peek(lambda key, value: seen.append(value))
        >>> numbers.send_to("same")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     seen, [record.value for record in driver.read_output("same")]
        ([1, 2], [1, 2])
        """
        check_functions(action, call="peek")
        return self._same("KSTREAM-PEEK", Peek(action=action))

    def select_key(self, selector: KeySelector) -> Self:
        """Replace each key by ``selector(key, value)``; a group or join of the result repartitions it.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").select_key(lambda key, value: value[0]).send_to("by-letter")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "bee"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("by-letter")]
        [('a', 'ant'), ('b', 'bee')]
        """
        check_functions(selector, call="select_key")
        node = self._graph.selected(self._node, selector, None)
        return self._new(node, self._serdes.with_new_key("select_key"), key_changed=True)

    def map(self, mapper: KeyValueMapper) -> Self:
        """Replace each record by ``mapper(key, value)``, a pair of key and value.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").map(lambda key, value: (value, key)).send_to("swapped")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("swapped")]
        [('ant', 'a')]
        """
        check_functions(mapper, call="map")
        return self._rekeyed("KSTREAM-MAP", Map(mapper=mapper), "map")

    def map_values(self, mapper: ValueMapper) -> Self:
        """Replace each value by ``mapper(value)``.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").map_values(lambda value: 2 * value).send_to("doubled")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("doubled")]
        [2, 4]
        """
        check_functions(mapper, call="map_values")
        return self._revalued("KSTREAM-MAPVALUES", MapValues(mapper=mapper), "map_values")

    def flat_map(self, mapper: FlatMapper) -> Self:
        """Replace each record by the (key, value) pairs that ``mapper(key, value)`` yields.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> lines = builder.stream("lines")
        >>> words = lines.flat_map(lambda key, value: [(word[0], word) for word in value.split()])
        >>> words.send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key=None, value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('o', 'ox')]
        """
        check_functions(mapper, call="flat_map")
        return self._rekeyed("KSTREAM-FLATMAP", FlatMap(mapper=mapper), "flat_map")

    def flat_map_values(self, mapper: FlatValueMapper) -> Self:
        """Replace each value by the values that ``mapper(value)`` yields, each under the same key.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("lines").flat_map_values(str.split).send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key="a", value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('a', 'ox')]
        """
        check_functions(mapper, call="flat_map_values")
        return self._revalued("KSTREAM-FLATMAPVALUES", FlatMapValues(mapper=mapper), "flat_map_values")

    def branch(self, *predicates: Predicate) -> list[Self]:
        """Split the stream, one branch per predicate.

        A record goes to the branch of the first ``predicate(key, value)`` that holds; it is dropped if none
        does.

        :param predicates: one per branch, tried in order.
        :return: the branches, in the order of the predicates.
        :raises TopologyError: there is no predicate.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> even, rest = builder.stream("numbers").branch(
        ...     lambda key, value: value % 2 == 0, lambda key, value: True
        ... )
        >>> even.send_to("even")
        >>> rest.send_to("odd")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [[record.value for record in driver.read_output(topic)] for topic in ("even", "odd")]
        [[2], [1, 3]]
        """
        if not predicates:
            raise TopologyError(
                f"branch at {call_site()} has no predicate", fix="pass one predicate per branch"
            )
        for predicate in predicates:
            check_functions(predicate, call="branch")
        node = self._graph.name("KSTREAM-BRANCH")
        children = tuple(self._graph.name("KSTREAM-BRANCHCHILD") for _ in predicates)
        add_operator = self._graph.topology.add_operator
        add_operator(node, Branch(predicates=predicates, children=children), self._node)
        for child in children:
            add_operator(child, PassThrough(type="branch_child"), node)
        return [self._at(child) for child in children]

    def merge(self, *others: KStream) -> KStream:
        """Return the stream of this stream's and the others' records, in the order the task reads them.

        A serde that all streams share stays known; one that an operator of any of them lost is unknown.

        :param others: of the same builder; keys and values of all streams in the same serdes.
        :raises TopologyError: there is no other, one is no stream of this builder or named twice, or two
            serdes differ.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("web").merge(builder.stream("shop")).send_to("sales")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("web", key="a", value=1, timestamp_ms=0)
        ...     driver.pipe_input("shop", key="b", value=2, timestamp_ms=1)
        ...     [(record.key, record.value) for record in driver.read_output("sales")]
        [('a', 1), ('b', 2)]
        """
        streams = (self, *others)
        for stream in others:
            check_partner(stream, KStream, self._graph, "merge")
        nodes = [stream._node for stream in streams]
        serdes = merged_serdes(nodes, [stream._serdes for stream in streams])
        node = self._graph.name("KSTREAM-MERGE")
        self._graph.topology.add_operator(node, PassThrough(type="merge"), *nodes)
        key_changed = any(stream._key_changed for stream in streams)
        table_values = any(stream._table_values for stream in streams)
        return KStream(self._graph, node, serdes, key_changed=key_changed, table_values=table_values)

    def join(
        self, other: KTable, joiner: ValueJoiner, *, value_serde: Serde | None = None, name: str | None = None
    ) -> KStream:
        """Join each record with the table's value of its key: ``joiner(value, table_value)``.

        A record whose key the table does not hold gives nothing, nor does a change of the table. Results have
        the record's key and timestamp. Both sides need equal partition counts; a stream whose key may have
        changed goes through a repartition topic.

        :param joiner: returns a new value and changes neither argument: the second belongs to the table.
        :param value_serde: of this stream, needed to repartition it after an operator that changed the value.
        :param name: of the repartition topic, ``<application id>-<name>-repartition``.
        :raises TopologyError: the table is of another builder or key serde, or a serde is missing.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> airlines = builder.table("airlines")
        >>> flights = builder.stream("flights")
        >>> flights.join(airlines, lambda flight, airline: f"{flight} of {airline}").send_to("named")
        >>> flights.left_join(airlines, lambda flight, airline: f"{flight} of {airline}").send_to("all")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("airlines", key="UA", value="United", timestamp_ms=0)
        ...     driver.pipe_input("flights", key="UA", value="UA15", timestamp_ms=1)
        ...     driver.pipe_input("flights", key="XX", value="XX1", timestamp_ms=2)
        ...     for topic in ("named", "all"):
        ...         [record.value for record in driver.read_output(topic)]
        ['UA15 of United']
        ['UA15 of United', 'XX1 of None']
        """
        return self._join("join", other, joiner, self._serdes.given(None, value_serde), name)

    def left_join(
        self, other: KTable, joiner: ValueJoiner, *, value_serde: Serde | None = None, name: str | None = None
    ) -> KStream:
        """Join as :meth:`join` does, and a record whose key the table does not hold with None."""
        return self._join("left_join", other, joiner, self._serdes.given(None, value_serde), name)

    def with_window(self, window: SlidingWindow) -> WindowedKStream:
        """Return the stream with a window, for joins with other windowed streams; it is a stream as before,
        and so is what operators make of it.

        :param window: for how long its elements are kept for those of another stream.
        :raises TopologyError: it is no ``SlidingWindow``.
        """
        from airflow_kstreams.streams.kstream.windowed_stream import WindowedKStream

        return WindowedKStream(
            self._graph,
            self._node,
            self._serdes,
            window=window,
            key_changed=self._key_changed,
            table_values=self._table_values,
        )

    def join_prior(self, other: WindowedKStream, joiner: ValueJoiner) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: makes the result's value.
        :raises TopologyError: always.
        """
        raise no_window_error("it is called on", "join_prior")

    def outer_join(self, other: WindowedKStream, joiner: ValueJoiner) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: makes the result's value.
        :raises TopologyError: always.
        """
        raise no_window_error("it is called on", "outer_join")

    def send_to(
        self, topic: str, *, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> None:
        """Write the stream to a topic, which must exist when a run begins.

        :param key_serde: needed after an operator that changed the key, unless the builder has a default.
        :param value_serde: needed after an operator that changed the value, unless the builder has a default.
        :raises TopologyError: a serde is missing.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> lengths = builder.stream("words").map_values(len)
        >>> lengths.send_to("lengths", value_serde=serdes.int64())
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=5)
        ...     driver.read_output("lengths")
        [OutputRecord(key='a', value=3, timestamp_ms=5, headers=[], partition=0)]
        """
        self._send_to(topic, key_serde, value_serde, f"send_to({topic!r})")

    def through(
        self, topic: str, *, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> KStream:
        """Write the stream to a topic of yours and go on with what is read from it, partitioned anew.

        :param topic: must exist when a run begins.
        :param key_serde: as in :meth:`send_to`.
        :param value_serde: as in :meth:`send_to`.
        :raises TopologyError: a serde is missing, or the topic is read with other serdes already.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> words = builder.stream("words").select_key(lambda key, value: value[0])
        >>> table = words.through("by-letter").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "ape", "bee"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     dict(driver.store("counts").all()), len(driver.read_output("by-letter"))
        ({'a': 2, 'b': 1}, 3)
        """
        key, value = self._send_to(topic, key_serde, value_serde, f"through({topic!r})")
        return KStream(self._graph, self._graph.source((topic,), key, value), Serdes(key=key, value=value))

    def process(self, processor_def: ProcessorDef, *stores: str | StoreSpec) -> Self:
        """Run a processor on each record; what it forwards is the resulting stream.

        :param processor_def: makes a new ``Processor`` for each task; a class will do.
        :param stores: the stores it may use, by name, or by spec to add them here.
        :raises TopologyError: the definition cannot be called, or a store's name is taken.

        >>> class Latest(Processor):
        ...     def init(self, context):
        ...         self.context, self.store = context, context.state_store("latest")
        ...
        ...     def process(self, record):
        ...         self.context.forward(record.key, (self.store.get(record.key), record.value))
        ...         self.store.put(record.key, record.value)
        >>> latest = StoreSpec(name="latest", key_serde=serdes.string(), value_serde=serdes.json())
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("numbers").process(Latest, latest).send_to("changes")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 5):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("changes")]
        [[None, 1], [1, 5]]
        """
        check_processor_def(processor_def, "process", call_site())
        names = [store if isinstance(store, str) else store.name for store in stores]
        for store in stores:
            if not isinstance(store, str):
                self._graph.topology.add_state_store(store)
        operator = ProcessorOperator(definition=processor_def)
        node = self._graph.operator("KSTREAM-PROCESSOR", operator, self._node, names)
        return self._new(
            node, self._serdes.with_new_key("process").with_new_value("process"), key_changed=True
        )

    def group_by_key(
        self, *, key_serde: Serde | None = None, value_serde: Serde | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Group the records by their key, through a repartition topic if an operator may have changed it.

        :param key_serde: needed after an operator that changed the key, unless the builder has a default.
        :param value_serde: needed to repartition after an operator that changed the value, likewise.
        :param name: of the repartition topic, ``<application id>-<name>-repartition``, which all that is done
            with the group then shares; unless given, each store has a topic of its own.
        :return: the group, to be folded into a table.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> totals = builder.stream("sales").group_by_key().reduce(lambda total, value: total + value)
        >>> totals.to_stream().send_to("totals")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (5, 7):
        ...         driver.pipe_input("sales", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("totals")]
        [('a', 5), ('a', 12)]
        """
        return self._group(self._serdes.given(key_serde, value_serde), name, "group_by_key")

    def group_by(
        self,
        selector: KeySelector,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedStream:
        """Group the records by ``selector(key, value)``, through a repartition topic.

        :param key_serde: of the new key; may be left out if the builder has a default.
        :param value_serde: as in :meth:`group_by_key`.
        :param name: as in :meth:`group_by_key`.
        :return: the group, to be folded into a table.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> by_letter = builder.stream("words").group_by(lambda key, value: value[0])
        >>> counts = by_letter.count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "ape", "bee"):
        ...         driver.pipe_input("words", key=None, value=value, timestamp_ms=0)
        ...     dict(driver.store("counts").all())
        {'a': 2, 'b': 1}
        """
        check_functions(selector, call="group_by")
        node = self._graph.selected(self._node, selector, name)
        rekeyed = self._new(node, self._serdes.with_new_key("group_by"), key_changed=True)
        return rekeyed._group(rekeyed._serdes.given(key_serde, value_serde), name, "group_by")

    def _send_to(self, topic: str, key: Serde | None, value: Serde | None, call: str) -> tuple[Serde, Serde]:
        key_serde = self._graph.serde("key", key, self._serdes, call)
        value_serde = self._graph.serde("value", value, self._serdes, call)
        self._graph.sink(topic, self._node, key_serde, value_serde)
        return key_serde, value_serde

    def _group(self, serdes: Serdes, name: str | None, call: str) -> KGroupedStream:
        # A table gives a stream again, so the two modules need each other; this one waits until it is used.
        from airflow_kstreams.streams.kstream.grouped import Grouping, KGroupedStream

        grouping = Grouping(
            serdes=serdes,
            repartition=self._key_changed,
            copy_values=self._table_values,
            name=name,
            call=call,
        )
        return KGroupedStream(self._graph, self._node, grouping)

    def _join(
        self, call: str, table: KTable, joiner: ValueJoiner, serdes: Serdes, name: str | None
    ) -> KStream:
        from airflow_kstreams.streams.kstream.table import KTable

        if isinstance(table, KStream):
            raise no_window_error("it is called on", call)
        check_partner(table, KTable, self._graph, call)
        check_functions(joiner, call=call)
        operator = TableJoin(joiner=joiner, store=table.spec, left=call == "left_join")
        stream = JoinedStream(node=self._node, serdes=serdes, key_changed=self._key_changed, name=name)
        node = add_table_join(self._graph, stream, operator, call)
        known = Serdes(key=table.spec.key_serde, value=None).with_new_value(call)
        # What the joiner returns may hold the table's own object.
        return KStream(self._graph, node, known, table_values=True)

    def _new(self, node: str, serdes: Serdes, *, key_changed: bool) -> Self:
        """Return a stream of the same kind further down: a windowed one stays windowed."""
        stream = copy.copy(self)
        stream._node, stream._serdes, stream._key_changed = node, serdes, key_changed
        return stream

    def _at(self, node: str) -> Self:
        return self._new(node, self._serdes, key_changed=self._key_changed)

    def _same(self, kind: str, operator: Operator) -> Self:
        return self._at(self._graph.operator(kind, operator, self._node))

    def _revalued(self, kind: str, operator: Operator, call: str) -> Self:
        node = self._graph.operator(kind, operator, self._node)
        return self._new(node, self._serdes.with_new_value(call), key_changed=self._key_changed)

    def _rekeyed(self, kind: str, operator: Operator, call: str) -> Self:
        node = self._graph.operator(kind, operator, self._node)
        return self._new(node, self._serdes.with_new_key(call).with_new_value(call), key_changed=True)
