"""A stream of records, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.arguments import check_functions, check_partner, no_window_error
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.merging import merged_serdes
from airflow_kstreams.streams.kstream.record_stream import RecordStream
from airflow_kstreams.streams.kstream.stateless import (
    KeySelector,
    PassThrough,
)
from airflow_kstreams.streams.kstream.table_join import JoinedStream, TableJoin, ValueJoiner, add_table_join
from airflow_kstreams.streams.processor.operator import ProcessorOperator
from airflow_kstreams.streams.processor.processor import ProcessorDef
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.builder import check_processor_def

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.grouped import KGroupedStream
    from airflow_kstreams.streams.kstream.table import KTable
    from airflow_kstreams.streams.kstream.windowed_stream import WindowedKStream
    from airflow_kstreams.streams.windows import SlidingWindow


class KStream(RecordStream):
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
