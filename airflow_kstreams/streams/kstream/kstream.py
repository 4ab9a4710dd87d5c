"""What users build topologies of: streams, groups of their records, and tables.

The methods of each of these classes return others of them, so all stand in one module, with little but
their texts. Each holds what is known of it (``known.py``). What its methods do is written in modules below:
those of a stream alone in ``record_stream.py``, joins in ``table_join.py``, ``stream_join.py`` and
``tables_join.py``, tables of tables in ``derived_tables.py``, folds in ``grouping.py``,
``table_grouping.py`` and ``window_tables.py``.
"""

from __future__ import annotations

from typing import Any, Generic, Never, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Partitioner
from airflow_kstreams.streams.graph.store_specs import Storage, StoreSpec
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.hints.function_checks import check_functions, options_by_name
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import (
    check_partitions,
    check_partner,
    check_topic,
    no_store_error,
    no_window_error,
)
from airflow_kstreams.streams.kstream.graph import Serdes, check_name
from airflow_kstreams.streams.kstream.grouping import FUNCTIONS, GroupedRecords, StoreArgument
from airflow_kstreams.streams.kstream.keeps_window import KeepsWindow
from airflow_kstreams.streams.kstream.known import (
    KnownStream,
    KnownTable,
    KnownWindowedTable,
    WindowedStream,
)
from airflow_kstreams.streams.kstream.merging import merged
from airflow_kstreams.streams.kstream.operators.aggregation import (
    Aggregator,
    Fold,
    Initializer,
    KeyFold,
    Merger,
    Reducer,
    aggregating,
    counting,
    reducing,
)
from airflow_kstreams.streams.kstream.operators.stateless import (
    GroupSelector,
    KeySelector,
    Predicate,
    ValueMapper,
)
from airflow_kstreams.streams.kstream.operators.tables.foreign_key_subscribe import ForeignKey
from airflow_kstreams.streams.kstream.operators.tables.table_join import GlobalKeySelector, ValueJoiner
from airflow_kstreams.streams.kstream.operators.tables.table_select import EntrySelector
from airflow_kstreams.streams.kstream.operators.tables.tables_join import TablesJoiner, TablesJoinKind
from airflow_kstreams.streams.kstream.operators.windows.windowed_join import JoinKind, StreamJoiner
from airflow_kstreams.streams.kstream.record_stream import RecordStream
from airflow_kstreams.streams.kstream.stream_join import (
    JoinOptions,
    check_join_window,
    check_table_options,
    join_streams,
)
from airflow_kstreams.streams.kstream.tables.derived_tables import (
    filtered,
    table_of,
    with_values_mapped,
    with_values_transformed,
)
from airflow_kstreams.streams.kstream.tables.foreign_key_join import (
    JoinByForeignKey,
    join_by_foreign_key,
    kept_by_itself,
)
from airflow_kstreams.streams.kstream.tables.global_table import (
    GlobalKTable,
    join_global_table,
    key_in_vain_error,
)
from airflow_kstreams.streams.kstream.tables.table_grouping import (
    TABLE_FUNCTIONS,
    GroupedEntries,
    grouped_entries,
)
from airflow_kstreams.streams.kstream.tables.table_join import join_table
from airflow_kstreams.streams.kstream.tables.tables_join import join_tables
from airflow_kstreams.streams.kstream.windows.cogrouping import Cogroup
from airflow_kstreams.streams.kstream.windows.window_tables import (
    WINDOW_FUNCTIONS,
    FoldWindow,
    aggregating_windows,
    check_fold_window,
    entries_of_windows,
    folded_by_window,
    suppressed,
)
from airflow_kstreams.streams.processor.value_transformer import ValueTransformerDef
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.type_variables import KR, VO, VR, K, V
from airflow_kstreams.streams.windows import SlidingWindow, Windowed

#: How methods are called.
_STREAM_JOINS = (
    "write join(table, joiner), join(global_table, joiner, key=selector), or of streams with windows "
    "join(stream, joiner); options by name"
)
_TABLE_JOINS = "write join(table, joiner), or join(table, joiner, foreign_key=selector); options by name"


class KStream(RecordStream[K, V]):
    """A stream of (key, value); every method adds to the topology and leaves this stream as it is.

    Functions are called positionally and run once per record, so they must depend on their arguments alone.
    Values are shared by all that follows: a function returns a new value rather than change the one it was
    given. Keys and values may be None where a topic holds records without.

    :param known: what is known of it.
    """

    def merge(self, *others: KStream[K, V], name: str | None = None) -> KStream[K, V]:
        """Return the stream of this stream's and the others' records, in the order the task reads them.

        A serde that all streams share stays known; one that an operator of any of them lost is unknown.

        :param others: of the same builder; keys and values of all streams in the same serdes.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
        for stream in others:
            check_partner(stream, KStream, self._known.graph, "merge")
        return KStream(merged([stream._known for stream in (self, *others)], name))

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO, VR],
        *,
        key: None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def join(
        self,
        other: KTable | GlobalKTable,
        joiner: ValueJoiner,
        *,
        key: GlobalKeySelector | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join each record with the table's value of its key: ``joiner(value, table_value)``.

        A record whose key the table does not hold gives nothing, nor does a change of the table. Results have
        the record's key and timestamp. Both sides need equal partition counts; a stream whose key may have
        changed goes through a repartition topic. With a global table, each record is joined with the entry
        that it names; see :meth:`KStreamBuilder.global_table`.

        :param joiner: returns a new value and changes neither argument: the second belongs to the table.
        :param key: ``key(key, value)`` gives a global table's key of each record, None for no entry.
        :param value_serde: of this stream, needed to repartition it after an operator that changed the value.
        :param name: of the node, and of the repartition topic, ``<application id>-<name>-repartition``.
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
        return self._join("join", other, joiner, value_serde, name, key)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        *,
        key: None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def left_join(
        self,
        other: KTable | GlobalKTable,
        joiner: ValueJoiner,
        *,
        key: GlobalKeySelector | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`join` does, and a record whose key the table does not hold with None."""
        return self._join("left_join", other, joiner, value_serde, name, key)

    def with_window(self, window: SlidingWindow, *, storage: Storage = "memory") -> WindowedKStream[K, V]:
        """Return the stream with a window, for joins with other windowed streams; it is a stream as before,
        and so is what operators make of it.

        :param window: for how long its elements are kept for those of another stream.
        :param storage: where they are kept: ``memory``, or ``rocksdb`` for more than memory holds (needs the
            extra ``rocksdb``).
        :raises TopologyError: it is no ``SlidingWindow``, or there is no such storage.
        """
        check_join_window(window, storage)
        return WindowedKStream(WindowedStream(stream=self._known, window=window, storage=storage))

    def join_prior(self, other: Never, joiner: Never) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: makes the result's value.
        :raises TopologyError: always.
        """
        raise _join_with_windows_error("join_prior", other)

    def outer_join(self, other: Never, joiner: Never) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: makes the result's value.
        :raises TopologyError: always.
        """
        raise _join_with_windows_error("outer_join", other)

    def through(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner[K, V] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Write the stream to a topic of yours and go on with what is read from it, partitioned anew.

        :param topic: must exist when a run begins.
        :param key_serde: as in :meth:`send_to`.
        :param value_serde: as in :meth:`send_to`.
        :param partitioner: as in :meth:`send_to`.
        :param name: of the node that writes; numbered unless given.
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
        check_topic(topic, "through")
        known = self._known
        key, value = known.sent_to(
            topic, key_serde, value_serde, f"through({topic!r})", partitioner=partitioner, name=name
        )
        node = known.graph.source((topic,), key, value)
        return KStream(KnownStream(graph=known.graph, node=node, serdes=Serdes(key=key, value=value)))

    @options_by_name(
        fix="give the number of partitions, repartition(8), and options by name; groups and joins "
        "repartition by themselves"
    )
    def repartition(
        self,
        partitions: int,
        *,
        name: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> KStream[K, V]:
        """Write the stream to a topic of the engine's with a number of partitions of its own, and go on with
        what is read from it.

        What follows, with its state, then has that many tasks, however many partitions the input has or
        gains. Keys lie where their new bytes put them, so a group or join of the result repartitions nothing
        more. Records without key are dropped and counted, as in Kafka Streams, unless a left or outer join
        lies behind, which takes them; :meth:`through` keeps them.

        :param partitions: of the topic. A run that finds the topic with another number is refused: to change
            it takes a reset.
        :param name: of the topic, ``<application id>-<name>-repartition``; numbered unless given, and then
            another one when nodes before it are added or removed.
        :param key_serde: as in :meth:`send_to`.
        :param value_serde: as in :meth:`send_to`.
        :raises TopologyError: it is no number of partitions, a serde is missing, or another stream was
            repartitioned under the name.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> words = builder.stream("words").repartition(4, name="spread")
        >>> table = words.group_by_key().count(store="counts")
        >>> builder.build().plan("app").repartition_topics
        {'app-spread-repartition': 4}
        """
        check_partitions(partitions, "repartition")
        return KStream(self._known.repartitioned(partitions, name, key_serde, value_serde))

    def to_table(
        self,
        *,
        store: StoreArgument[K, V] = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Return the stream as a table: the value of each key's newest record; a null value deletes the key.

        Records without key are dropped and counted. If an operator may have changed the key, the stream goes
        through a repartition topic. The newest record is the one that was read last, whatever its timestamp.

        :param store: the store's name, or its whole spec; unless given, a numbered name.
        :param key_serde: needed after an operator that changed the key, unless the builder has a default.
        :param value_serde: needed after an operator that changed the value, likewise.
        :param name: of the node, and of the repartition topic, ``<application id>-<name>-repartition``;
            unless given, a numbered one and the store's.
        :raises TopologyError: a serde is missing, the store's name is taken or its keys have another serde.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> moves = builder.stream("moves").select_key(lambda key, value: value.split()[0])
        >>> places = moves.map_values(lambda value: value.split()[1]).to_table(store="places")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ann JFK", "bob SFO", "ann LAX"):
        ...         driver.pipe_input("moves", key=None, value=value, timestamp_ms=0)
        ...     dict(driver.store("places").all())
        {'ann': 'LAX', 'bob': 'SFO'}
        """
        return KTable(table_of(self._known, store, key_serde, value_serde, name))

    def group_by_key(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
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
        check_name(name)
        stream = self._known.given("group_by_key", key_serde, value_serde)
        return KGroupedStream(GroupedRecords(stream=stream, name=name, call="group_by_key"))

    def group_by(
        self,
        selector: GroupSelector[K, V, KR],
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group the records by ``selector(key, value)``, through a repartition topic.

        :param selector: a record for which it gives None is in no group: it is dropped and counted.
        :param key_serde: of the new key; may be left out if the builder has a default.
        :param value_serde: as in :meth:`group_by_key`.
        :param name: as in :meth:`group_by_key`, and of the node that selects the key.
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
        check_functions("group_by", selector=selector)
        node = self._known.graph.selected(self._known.node, selector, name)
        stream = self._known.at(node).with_new_key("group_by").given("group_by", key_serde, value_serde)
        return KGroupedStream(GroupedRecords(stream=stream, name=name, call="group_by"))

    def _join(
        self,
        call: str,
        table: KTable | GlobalKTable | KStream,
        joiner: ValueJoiner,
        value_serde: Serde | None,
        name: str | None,
        key: GlobalKeySelector | None = None,
    ) -> KStream:
        if isinstance(table, KStream):
            raise no_window_error("it is called on", call)
        if isinstance(table, GlobalKTable):
            return KStream(join_global_table(call, self._known, table, joiner, key, name))
        if key is not None:
            raise key_in_vain_error(call)
        check_partner(table, KTable, self._known.graph, call)
        stream = self._known.given(call, None, value_serde)
        return KStream(join_table(call, stream, table._kept(call), joiner, name))


def _join_with_windows_error(call: str, other: object) -> TopologyError:
    if isinstance(other, KTable | GlobalKTable):
        return TopologyError(
            f"{call} at {call_site()} joins a stream with a table, which only join and left_join do",
            fix="use one of these; or make the stream a table, too: to_table()",
        )
    return no_window_error("it is called on", call)


class WindowedKStream(KeepsWindow[K, V], KStream[K, V]):
    """A stream that can be joined with another one; made by ``KStream.with_window``.

    Every operator of a stream works; what ``filter``, ``map``, ``branch`` and their like make of it has the
    window too.

    :param windowed: what is known of it.

    >>> from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
    >>> from airflow_kstreams.testing import TopologyTestDriver
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> orders = builder.stream("orders").with_window(SlidingWindow(size_ms=60_000))
    >>> payments = builder.stream("payments").with_window(SlidingWindow(size_ms=5_000))
    >>> orders.join(payments, lambda order, payment: [order, payment]).send_to("paid")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("orders", key="a", value="book", timestamp_ms=1_000)
    ...     driver.pipe_input("payments", key="a", value=20, timestamp_ms=61_000)
    ...     driver.pipe_input("payments", key="a", value=30, timestamp_ms=61_001)
    ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("paid")]
    [('a', ['book', 20], 61000)]
    """

    def __init__(self, windowed: WindowedStream) -> None:
        super().__init__(windowed.stream)
        self._window = windowed.window
        self._storage = windowed.storage

    @overload
    def join(
        self,
        other: KTable[K, VO] | WindowedKStream[K, VO],
        joiner: StreamJoiner[V, VO, VR],
        *,
        key: None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def join(
        self,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: StreamJoiner,
        *,
        key: GlobalKeySelector | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join each element of either stream with those of the other that lie in its window and arrived
        before it: ``joiner(value, other_value)``, whichever arrived last.

        An element arriving at t meets those of its key from t minus the other stream's ``size_ms`` to t plus
        its own, oldest first. Results have the key and the larger one of both times. Elements without key or
        value, and those that arrive later than their window plus grace, are dropped and counted. With a
        table, this is ``KStream.join``.

        :param joiner: returns a new value and changes neither argument.
        :param key: with a global table, as for ``KStream.join``.
        :param key_serde: of both streams' keys, needed where an operator changed both.
        :param value_serde: of this stream, needed after an operator that changed the value.
        :param other_value_serde: of the other stream, likewise.
        :param name: the nodes are then named ``<name>-this-join``, ``<name>-other-join`` and
            ``<name>-merge``, the stores ``<name>-left`` and ``<name>-right``, with the changelogs
            ``<application id>-<store>-changelog``, and where a key changed, the repartition topics
            ``<application id>-<store>-repartition``. State is found by these names: name joins whose state is
            to outlive changes of the topology.
        :raises TopologyError: the other is no windowed stream or table of the same builder, the key serdes
            differ, a serde is missing, or the name is taken.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_any("join", other, joiner, options, key)

    @overload
    def left_join(
        self,
        other: KTable[K, VO] | WindowedKStream[K, VO],
        joiner: StreamJoiner[V, VO | None, VR],
        *,
        key: None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def left_join(
        self,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: StreamJoiner,
        *,
        key: GlobalKeySelector | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`join` does, and each element of this stream that found no partner with None:
        ``joiner(value, None)``, with its own time, once its window is closed, so that none can come any more.

        An element of this stream that has no key is joined with None at once, as in Kafka Streams. What
        becomes of elements that still wait at the end of a run, this stream's window says: see
        ``SlidingWindow.at_run_end``.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_any("left_join", other, joiner, options, key)

    def outer_join(
        self,
        other: WindowedKStream[K, VO],
        joiner: StreamJoiner[V | None, VO | None, VR],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Join as :meth:`left_join` does, and the other stream's elements likewise: ``joiner(None, value)``;
        those without key at once.

        Each stream's window says what becomes of its elements that still wait at the end of a run.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_windowed("outer_join", other, joiner, options)

    def join_prior(
        self,
        other: WindowedKStream[K, VO],
        joiner: StreamJoiner[V, VO, VR],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Join as :meth:`join` does, but only with elements whose time lies before that of the arriving one.

        Elements that arrive out of order therefore miss partners that :meth:`join` finds: the older one of
        two is never joined when it comes last.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> clicks = builder.stream("clicks").with_window(SlidingWindow(size_ms=10))
        >>> views = builder.stream("views").with_window(SlidingWindow(size_ms=10))
        >>> clicks.join_prior(views, lambda click, view: [click, view]).send_to("pairs")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("views", key="a", value="view", timestamp_ms=100)
        ...     driver.pipe_input("clicks", key="a", value="click", timestamp_ms=104)
        ...     driver.pipe_input("clicks", key="a", value="late click", timestamp_ms=98)
        ...     [record.value for record in driver.read_output("pairs")]
        [['click', 'view']]
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_windowed("join_prior", other, joiner, options)

    def _join_any(
        self,
        call: JoinKind,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: StreamJoiner,
        options: JoinOptions,
        key: GlobalKeySelector | None,
    ) -> KStream:
        if isinstance(other, KTable | GlobalKTable):
            name = other._known.kept_in[0].name if isinstance(other, KTable) else other.topic
            check_table_options(call, name, options)
            return self._join(call, other, joiner, options.value_serde, options.name, key)
        if key is not None:
            raise key_in_vain_error(call)
        return self._join_windowed(call, other, joiner, options)

    def _join_windowed(
        self, call: JoinKind, other: WindowedKStream, joiner: StreamJoiner, options: JoinOptions
    ) -> KStream:
        if type(other) is KStream:
            raise no_window_error("it is given", call)
        check_partner(other, WindowedKStream, self._known.graph, call)
        return KStream(join_streams(call, self._windowed(), other._windowed(), joiner, options))

    def _windowed(self) -> WindowedStream:
        return WindowedStream(stream=self._known, window=self._window, storage=self._storage)


@answers_java_names
class KGroupedStream(Generic[K, V]):
    """Records grouped by key; records without key or value are dropped and counted.

    :param records: what is known of them.
    """

    def __init__(self, records: GroupedRecords) -> None:
        self._records = records

    def windowed_by(self, window: FoldWindow) -> WindowedKGroupedStream[K, V]:
        """Group the records of each key further, by windows of time.

        :param window: a ``TumblingWindow``, ``HoppingWindow``, ``SlidingWindow`` or ``SessionWindow``.
        :raises TopologyError: it is none of these.
        """
        check_fold_window(window)
        return WindowedKGroupedStream(self._records, window)

    def cogroup(self, aggregator: Aggregator[K, V, VR]) -> CogroupedKStream[K, VR]:
        """Begin a fold of several grouped streams into one table: ``cogroup(...)`` of what is returned adds
        the others, and ``aggregate(initializer)`` makes the table.

        :param aggregator: of this stream's values: ``aggregator(key, value, aggregate)`` returns the new
            aggregate, which may be the old one changed; None deletes the key.
        :raises TopologyError: it is no function.
        """
        return CogroupedKStream(Cogroup().joined_by(self._records, aggregator))

    def count(self, *, store: StoreArgument[K, int] = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``).
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: a serde is missing, or the store's name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> counts = builder.stream("words").group_by_key().count(store="counts")
        >>> counts.to_stream().send_to("counts", value_serde=serdes.int64())
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "ape"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("counts")]
        [('a', 1), ('a', 2)]
        """
        spec = self._records.table_spec(store, builtin_serdes.int64(), "count")
        return KTable(self._records.folded("count", KeyFold(fold=counting(), store=spec), spec, name))

    def reduce(
        self,
        reducer: Reducer[V],
        *,
        store: StoreArgument[K, V] = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Fold the values of each key by ``reducer(aggregate, value)``, starting from the first value.

        :param reducer: returns the new aggregate; None deletes the key. One that never returns the second
            argument may change the first, which begins as a copy of a value.
        :param store: name of the store.
        :param value_serde: of the aggregate; that of the stream's values unless given.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: a serde is missing, or the store's name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> largest = builder.stream("numbers").group_by_key().reduce(max, store="largest")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 5, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     driver.store("largest").get("a")
        5
        """
        check_functions("reduce", fix=FUNCTIONS, reducer=reducer)
        spec = self._records.table_spec(store, value_serde, "reduce")
        return KTable(self._records.folded("reduce", KeyFold(fold=reducing(reducer), store=spec), spec, name))

    def aggregate(
        self,
        initializer: Initializer[VR],
        aggregator: Aggregator[K, V, VR],
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Fold the values of each key by ``aggregator(key, value, aggregate)``, starting from
        ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param aggregator: returns the new aggregate, which may be the old one changed; None deletes the key.
            Under an error handler that goes on, one that may fail must not change the old one before.
        :param store: name of the store.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: a serde is missing, or the store's name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> numbers = builder.stream("numbers").group_by_key()
        >>> sums = numbers.aggregate(
        ...     lambda: {"sum": 0, "count": 0},
        ...     lambda key, value, sums: {"sum": sums["sum"] + value, "count": sums["count"] + 1},
        ...     store="sums",
        ... )
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 5, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     driver.store("sums").get("a")
        {'sum': 9, 'count': 3}
        """
        check_functions("aggregate", fix=FUNCTIONS, initializer=initializer, aggregator=aggregator)
        spec = self._records.table_spec(store, value_serde, "aggregate")
        fold = KeyFold(fold=aggregating(initializer, aggregator), store=spec)
        return KTable(self._records.folded("aggregate", fold, spec, name))


@answers_java_names
class KGroupedTable(Generic[K, V]):
    """Entries of a table grouped by a key of their own; made by :meth:`KTable.group_by`.

    A fold adds the values of a group, and subtracts one when its entry changes, is deleted, or moves to
    another group. Values come in any order, save that each is subtracted after it was added.

    :param entries: what is known of them.
    """

    def __init__(self, entries: GroupedEntries) -> None:
        self._entries = entries

    def count(self, *, store: StoreArgument[K, int] = None, name: str | None = None) -> KTable[K, int]:
        """Count the entries of each group. A group that has lost its last entry stays, with a count of 0, as
        in Kafka Streams.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: a serde is missing, a name is taken, or the store has no changelog.
        """
        spec = self._entries.spec(store, builtin_serdes.int64(), "count")
        return KTable(self._entries.folded(counting(), lambda key, value, count: count - 1, spec, name))

    def reduce(
        self,
        adder: Reducer[V],
        subtractor: Reducer[V],
        *,
        store: StoreArgument[K, V] = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Fold the values of each group by ``adder(aggregate, value)``, starting from the first value, and
        take values out by ``subtractor(aggregate, value)``.

        :param adder: returns the new aggregate and changes neither argument.
        :param subtractor: likewise; None deletes the group.
        :param store: name of the store, or its spec.
        :param value_serde: of the aggregate; that of the group's values unless given.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: one is no function, a serde is missing, the store does not fit, or the name is
            taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> accounts = builder.table("accounts")
        >>> by_owner = accounts.group_by(lambda number, account: (account["owner"], account["cents"]))
        >>> totals = by_owner.reduce(
        ...     lambda total, cents: total + cents, lambda total, cents: total - cents, store="totals"
        ... )
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for number, cents in (("1", 500), ("2", 300), ("1", 100)):
        ...         account = {"owner": "ann", "cents": cents}
        ...         driver.pipe_input("accounts", key=number, value=account, timestamp_ms=0)
        ...     driver.store("totals").get("ann")
        400
        """
        check_functions("reduce", fix=TABLE_FUNCTIONS, adder=adder, subtractor=subtractor)
        spec = self._entries.spec(store, value_serde, "reduce")
        return KTable(
            self._entries.folded(
                reducing(adder), lambda key, value, reduced: subtractor(reduced, value), spec, name
            )
        )

    def aggregate(
        self,
        initializer: Initializer[VR],
        adder: Aggregator[K, V, VR],
        subtractor: Aggregator[K, V, VR],
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Fold the values of each group by ``adder(key, value, aggregate)``, starting from ``initializer()``,
        and take values out by ``subtractor(key, value, aggregate)``.

        :param initializer: makes a new, empty aggregate.
        :param adder: returns the new aggregate, which may be the old one changed; None deletes the group.
        :param subtractor: likewise.
        :param store: name of the store, or its spec.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: one is no function, a serde is missing, the store does not fit, or the name is
            taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> crews = builder.table("crews").group_by(lambda person, flight: (flight, person))
        >>> members = crews.aggregate(
        ...     list,
        ...     lambda flight, person, crew: sorted([*crew, person]),
        ...     lambda flight, person, crew: [member for member in crew if member != person] or None,
        ...     store="members",
        ... )
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for person, flight in (("ann", "UA1"), ("bob", "UA1"), ("ann", "UA2"), ("bob", "UA2")):
        ...         driver.pipe_input("crews", key=person, value=flight, timestamp_ms=0)
        ...     dict(driver.store("members").all())
        {'UA2': ['ann', 'bob']}
        """
        check_functions(
            "aggregate",
            fix=TABLE_FUNCTIONS,
            initializer=initializer,
            adder=adder,
            subtractor=subtractor,
        )
        spec = self._entries.spec(store, value_serde, "aggregate")
        fold = aggregating(initializer, adder)
        return KTable(self._entries.folded(fold, subtractor, spec, name))


@answers_java_names
class WindowedKGroupedStream(Generic[K, V]):
    """Records grouped by key and window; made by :meth:`KGroupedStream.windowed_by`.

    Records without key or value, with a negative timestamp, or too late for every window they lie in, are
    dropped and counted. A store may be given as in :class:`KGroupedStream`; a plain ``StoreSpec`` becomes a
    window or session store that keeps each window until it closes.

    :param records: what is known of them.
    :param window: by which windows.
    """

    def __init__(self, records: GroupedRecords, window: FoldWindow) -> None:
        self._records = records
        self._window = window

    def count(
        self, *, store: StoreArgument[K, int] = None, name: str | None = None
    ) -> WindowedKTable[K, int]:
        """Count the records of each key per window.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: a serde is missing, or the store's name is taken, or its spec does not fit.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> clicks = builder.stream("clicks").group_by_key()
        >>> counts = clicks.windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="counts")
        >>> counts.suppress().to_stream().send_to("counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for time_ms in (1, 8, 12):
        ...         driver.pipe_input("clicks", key="a", value={}, timestamp_ms=time_ms)
        ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("counts")]
        [(Windowed(key='a', start_ms=0, end_ms=10), 2, 8)]
        """
        return self._table(counting(), store, builtin_serdes.int64(), name)

    def reduce(
        self,
        reducer: Reducer[V],
        *,
        store: StoreArgument[K, V] = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> WindowedKTable[K, V]:
        """Fold the values of each key and window by ``reducer(aggregate, value)``, starting from the first
        value. Two sessions become one by ``reducer(earlier, later)``.

        :param reducer: returns the new aggregate; None deletes the window. One that never returns the second
            argument may change the first, which begins as a copy of a value.
        :param store: as in :meth:`count`.
        :param value_serde: of the aggregate; that of the stream's values unless given.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: as in :meth:`count`.
        """
        check_functions("reduce", fix=WINDOW_FUNCTIONS, reducer=reducer)
        return self._table(reducing(reducer), store, value_serde, name)

    def aggregate(
        self,
        initializer: Initializer[VR],
        aggregator: Aggregator[K, V, VR],
        merger: Merger[K, VR] | None = None,
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> WindowedKTable[K, VR]:
        """Fold the values of each key and window by ``aggregator(key, value, aggregate)``, starting from
        ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param aggregator: returns the new aggregate, which may be the old one changed; None deletes the
            window.
        :param merger: for sessions, and only for them: ``merger(key, earlier, later)`` makes one aggregate of
            those of two sessions that a record brings together; it comes before the aggregator. As in
            Kafka Streams, the first session of a record is merged with a new, empty aggregate.
        :param store: as in :meth:`count`.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: as in :meth:`count`, or the merger is missing or in vain.
        """
        fold = aggregating_windows(self._window, initializer, aggregator, merger)
        return self._table(fold, store, value_serde, name)

    def _table(
        self, fold: Fold, store: StoreArgument, value_serde: Serde | None, name: str | None
    ) -> WindowedKTable:
        return WindowedKTable(folded_by_window(self._records, self._window, fold, store, value_serde, name))


@answers_java_names
class CogroupedKStream(Generic[K, VR]):
    """Records of several streams, grouped by one kind of key; each stream has an aggregator of its own.

    :param cogroup: what is known of them.

    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> orders = builder.stream("orders").group_by_key()
    >>> payments = builder.stream("payments").group_by_key()
    >>> accounts = (
    ...     orders.cogroup(lambda key, order, owed: owed + order)
    ...     .cogroup(payments, lambda key, payment, owed: owed - payment)
    ...     .aggregate(lambda: 0, store="accounts")
    ... )
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("orders", key="a", value=30, timestamp_ms=0)
    ...     driver.pipe_input("payments", key="a", value=20, timestamp_ms=1)
    ...     driver.store("accounts").get("a")
    10
    """

    def __init__(self, cogroup: Cogroup) -> None:
        self._cogroup = cogroup

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Aggregator[K, V, VR]
    ) -> CogroupedKStream[K, VR]:
        """Add the records of one more stream.

        :param grouped: of the same builder, grouped by keys of the same serde.
        :param aggregator: of its values: ``aggregator(key, value, aggregate)`` returns the new aggregate,
            which may be the old one changed; None deletes the key.
        :raises TopologyError: it is no such group, or there already, or the aggregator is no function.
        """
        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(
                f"cogroup at {call_site()} is given a {type(grouped).__name__}, expected a grouped stream",
                fix="pass group_by_key() or group_by(selector) of the other stream",
            )
        return CogroupedKStream(self._cogroup.joined_by(grouped._records, aggregator))

    def windowed_by(self, window: FoldWindow) -> WindowedCogroupedKStream[K, VR]:
        """Group the records of each key further, by windows of time.

        :param window: as for :meth:`KGroupedStream.windowed_by`.
        :raises TopologyError: it is no such window.
        """
        check_fold_window(window)
        return WindowedCogroupedKStream(self._cogroup, window)

    def aggregate(
        self,
        initializer: Initializer[VR],
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Fold all records of each key, starting from ``initializer()``.

        Records come in the order in which the task processes them, as :meth:`KStream.merge` gives them. Those
        without key or value are dropped and counted. A stream whose key may have changed goes through a
        repartition topic: that of its group's name, else the store's, with ``-2`` for the second stream and
        so on.

        :param initializer: makes a new, empty aggregate.
        :param store: name of the store, or its spec.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: the initializer is no function, a serde is missing, or a name is taken.
        """
        return KTable(self._cogroup.aggregated(initializer, store, value_serde, name))


@answers_java_names
class WindowedCogroupedKStream(Generic[K, VR]):
    """Records of several streams, grouped by key and window; made by :meth:`CogroupedKStream.windowed_by`.

    :param cogroup: what is known of them.
    :param window: by which windows.
    """

    def __init__(self, cogroup: Cogroup, window: FoldWindow) -> None:
        self._cogroup = cogroup
        self._window = window

    def aggregate(
        self,
        initializer: Initializer[VR],
        merger: Merger[K, VR] | None = None,
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> WindowedKTable[K, VR]:
        """Fold all records of each key and window, starting from ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param merger: for sessions, and only for them: ``merger(key, earlier, later)`` makes one aggregate of
            those of two sessions that a record brings together; it comes before the aggregator. As in
            Kafka Streams, the first session of a record is merged with a new, empty aggregate.
        :param store: as for :meth:`WindowedKGroupedStream.count`.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: as for :meth:`CogroupedKStream.aggregate`, or the merger is missing or in vain.
        """
        return WindowedKTable(
            self._cogroup.aggregated_by_window(self._window, initializer, merger, store, value_serde, name)
        )


@answers_java_names
class KTable(Generic[K, V]):
    """The newest value of each key: of a topic or a stream, of a fold, or made of other tables.

    A table of a topic, a stream or a fold is kept in a store. One that is made of other tables is kept in
    none unless you name one (``store=``): its entries are made of theirs when they are needed. Functions run
    then, and again on a value that is taken back, so they must depend on their arguments alone.

    :param known: what is known of it.
    """

    def __init__(self, known: KnownTable) -> None:
        self._known = known

    @property
    def store(self) -> str:
        """Name of the table's store; processors that name it in ``KStream.process`` may read it.

        :raises TopologyError: the table is made of others and kept in no store.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> prices = builder.table("prices", store="newest-prices")
        >>> prices.store
        'newest-prices'
        """
        if self._known.spec is None:
            raise no_store_error("store")
        return self._known.spec.name

    @property
    def spec(self) -> StoreSpec[Any, V]:
        """The table's store: its name, and the serdes of keys and values.

        :raises TopologyError: the table is made of others and kept in no store.
        """
        if self._known.spec is None:
            raise no_store_error("spec")
        return self._known.spec

    def filter(
        self, predicate: Predicate[K, V], *, store: StoreArgument[K, V] = None, name: str | None = None
    ) -> KTable[K, V]:
        """Keep the entries for which ``predicate(key, value)`` holds.

        An entry whose new value fails the predicate is deleted, if its old value passed. What is deleted does
        not ask the predicate.

        :param store: name or spec of a store to keep the result in; none unless given.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: it is no function, the store does not fit, the table's has no changelog, or the
            name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> stock = builder.table("stock")
        >>> stock.filter(lambda key, value: value < 10).to_stream().send_to("scarce")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (20, 5, 30, 40):
        ...         driver.pipe_input("stock", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("scarce")]
        [('a', 5), ('a', None)]
        """
        check_functions("filter", predicate=predicate)
        return KTable(filtered(self._entries("filter"), predicate, store, name, passing=True))

    def filter_not(
        self, predicate: Predicate[K, V], *, store: StoreArgument[K, V] = None, name: str | None = None
    ) -> KTable[K, V]:
        """Keep the entries for which ``predicate(key, value)`` does not hold; otherwise as :meth:`filter`."""
        check_functions("filter_not", predicate=predicate)
        return KTable(filtered(self._entries("filter_not"), predicate, store, name, passing=False))

    def map_values(
        self,
        mapper: ValueMapper[V, VR | None],
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Replace each value by ``mapper(value)``; a deleted key stays deleted.

        :param mapper: returns a new value and leaves its argument, which belongs to the table, as it is; None
            deletes the key.
        :param store: name or spec of a store to keep the result in; none unless given.
        :param value_serde: of the new values; needed where they are written or kept, unless the builder has a
            default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: it is no function, the store does not fit or a serde is missing, the table's
            store has no changelog, or the name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> airlines = builder.table("airlines")
        >>> airlines.map_values(str.upper).to_stream().send_to("loud")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("United", None):
        ...         driver.pipe_input("airlines", key="UA", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("loud")]
        [('UA', 'UNITED'), ('UA', None)]
        """
        check_functions("map_values", mapper=mapper)
        return KTable(with_values_mapped(self._entries("map_values"), mapper, store, value_serde, name))

    def transform_values(
        self,
        definition: ValueTransformerDef[K, V, VR],
        *stores: str | StoreSpec,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Replace each value by what a :class:`ValueTransformer` makes of key and value; it may use stores
        and the time, and sees deletions.

        A transformer without stores must depend on its arguments alone, as it runs again where an old value
        is needed. One with stores makes another value then: keep the result to make other tables of it. Keep
        it, too, where a key that is not in the table gets a value: tables below take that back when the key
        is new, as in Kafka Streams, although they may never have been given it.

        :param definition: makes a new transformer for each task; a class will do.
        :param stores: the stores it may use, by name, or by spec to add them here.
        :param store: name or spec of a store to keep the result in; none unless given.
        :param value_serde: as in :meth:`map_values`.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: the definition cannot be called, a store does not fit or a name is taken, a
            serde is missing, or the table's store has no changelog.

        >>> class Named(ValueTransformer):
        ...     def transform(self, key, value):
        ...         return value and f"{key}: {value}"
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.table("airlines").transform_values(Named).to_stream().send_to("named")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("airlines", key="UA", value="United", timestamp_ms=0)
        ...     [record.value for record in driver.read_output("named")]
        ['UA: United']
        """
        table = self._entries("transform_values")
        return KTable(with_values_transformed(table, definition, stores, store, value_serde, name))

    @overload
    def to_stream(self, selector: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, selector: KeySelector[K, V, KR], *, name: str | None = None) -> KStream[KR, V]: ...
    def to_stream(self, selector: KeySelector | None = None, *, name: str | None = None) -> KStream:
        """Return the stream of the table's changes: (key, newest value), or (key, None) for a deleted key.

        A table with a cached store changes once per key and commit point, any other with every record. The
        values belong to the table's store: a processor that keeps one keeps a copy.

        :param selector: ``selector(key, value)`` gives each change another key, as ``KStream.select_key``
            does; the value is None for a deleted key.
        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.table("prices").to_stream().send_to("price-changes")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("prices", key="a", value=3, timestamp_ms=0)
        ...     driver.pipe_input("prices", key="a", value=None, timestamp_ms=1)
        ...     [(record.key, record.value) for record in driver.read_output("price-changes")]
        [('a', 3), ('a', None)]
        """
        if selector is not None:
            check_functions("to_stream", selector=selector)
        stream = KStream(self._entries("to_stream").changes(name if selector is None else None))
        return stream if selector is None else stream.select_key(selector, name=name)

    def group_by(
        self,
        selector: EntrySelector[K, V, KR, VR],
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[KR, VR]:
        """Group the entries by ``selector(key, value)``, a pair of group and value, through a repartition
        topic that carries old and new values.

        When an entry changes, what its old value stood for is taken out of its group, and what the new one
        stands for is put into its own. A pair with None in it belongs to no group.

        :param key_serde: of the groups; may be left out if the builder has a default.
        :param value_serde: of the values that go into them, likewise.
        :param name: of the node, and of the repartition topic, ``<application id>-<name>-repartition``, which
            all that is done with the group then shares; unless given, each store has a topic of its own.
        :return: the group, to be folded into a table.
        :raises TopologyError: it is no function, or the table's store has no changelog.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> planes = builder.table("planes")  # the airport at which each plane is
        >>> standing = planes.group_by(lambda plane, airport: (airport, plane)).count(store="standing")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for plane, airport in (("N1", "JFK"), ("N2", "JFK"), ("N1", "LAX")):
        ...         driver.pipe_input("planes", key=plane, value=airport, timestamp_ms=0)
        ...     dict(driver.store("standing").all())
        {'JFK': 1, 'LAX': 1}
        """
        check_functions("group_by", selector=selector)
        return KGroupedTable(
            grouped_entries(self._entries("group_by"), selector, key_serde, value_serde, name)
        )

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: TablesJoiner[V, VO, VR],
        *,
        foreign_key: None = None,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[KR, VO],
        joiner: TablesJoiner[V, VO, VR],
        *,
        foreign_key: ForeignKey[K, V, KR],
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...
    @options_by_name(fix=_TABLE_JOINS)
    def join(
        self,
        other: KTable,
        joiner: TablesJoiner,
        *,
        foreign_key: ForeignKey | None = None,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Join each entry with the other table's of the same key, or of its foreign key:
        ``joiner(value, other_value)``.

        A change on either side changes the result, and a key that one side deletes leaves it. The result's
        timestamp is the later one of both entries'. Without a foreign key both tables need keys of one serde
        and equal partition counts. With one, any number of entries may name one entry of the other table; the
        join has internal topics and stores of its own, and the result keeps this table's keys.

        :param joiner: returns a new value and changes neither argument; None deletes the key.
        :param foreign_key: ``foreign_key(key, value)`` gives the other table's key of each entry, None for an
            entry that has no result. It must depend on its arguments alone.
        :param store: name or spec of a store to keep the result in; none unless given.
        :param value_serde: of the results; needed where they are written or kept, unless the builder has a
            default.
        :param name: of the node whose results the table is, for messages, counts and pictures; numbered
            unless given. The nodes that read the tables are called ``<name>-join-this`` and
            ``<name>-join-other``; of a join by foreign key, it begins the names of topics and stores.
        :raises TopologyError: it is no function, the other is no table of this builder or has other keys, the
            store does not fit or a serde is missing, a table's store has no changelog, or a name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> names, places = builder.table("names"), builder.table("places")
        >>> both = names.join(places, lambda name, place: f"{name} in {place}")
        >>> both.to_stream().send_to("both")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("names", key="1", value="Ann", timestamp_ms=0)
        ...     for place in ("Rome", "Oslo", None):
        ...         driver.pipe_input("places", key="1", value=place, timestamp_ms=1)
        ...     [record.value for record in driver.read_output("both")]
        ['Ann in Rome', 'Ann in Oslo', None]

        Flights, whose value is the code of an airline, with the names of airlines:

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> flights, airlines = builder.table("flights"), builder.table("airlines")
        >>> named = flights.join(airlines, lambda code, name: name, foreign_key=lambda key, code: code)
        >>> named.to_stream().send_to("named")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for flight in ("1", "2"):
        ...         driver.pipe_input("flights", key=flight, value="UA", timestamp_ms=0)
        ...     for name in ("United", "United Airlines"):
        ...         driver.pipe_input("airlines", key="UA", value=name, timestamp_ms=1)
        ...     driver.pipe_input("flights", key="1", value=None, timestamp_ms=2)
        ...     for record in driver.read_output("named"):
        ...         print(record.key, record.value)
        1 United
        2 United
        1 United Airlines
        2 United Airlines
        1 None
        """
        return self._join("join", other, joiner, foreign_key, store, value_serde, name)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: TablesJoiner[V, VO | None, VR],
        *,
        foreign_key: None = None,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[KR, VO],
        joiner: TablesJoiner[V, VO | None, VR],
        *,
        foreign_key: ForeignKey[K, V, KR],
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...
    @options_by_name(fix=_TABLE_JOINS)
    def left_join(
        self,
        other: KTable,
        joiner: TablesJoiner,
        *,
        foreign_key: ForeignKey | None = None,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Join as :meth:`join` does, and a key that the other table does not hold with None; with a foreign
        key also an entry that has none.
        """
        return self._join("left_join", other, joiner, foreign_key, store, value_serde, name)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: TablesJoiner[V | None, VO | None, VR],
        *,
        store: StoreArgument[K, VR] = None,
        value_serde: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join as :meth:`join` does, and a key that only one of the tables holds with None for the other.

        :param joiner: is given None for the value of the table that does not hold the key.
        """
        return self._join("outer_join", other, joiner, None, store, value_serde, name)

    def suppress(self, *, name: str | None = None) -> KTable[K, V]:
        """Hold back results until they are final; for tables of windows only.

        :param name: of the node.
        :raises TopologyError: always; a table without windows is never final, and one that is made of a table
            of windows keeps none.
        """
        if self._known.windowed:
            raise TopologyError(
                f"suppress at {call_site()} is called on a table that is made of a table of windows: only "
                "the fold that keeps the windows knows when they are closed",
                fix="call suppress() ahead of filter, map_values and their like: .suppress().filter(...)",
            )
        raise TopologyError(
            f"suppress at {call_site()} is called on the table {self._known.kept_in[0].name!r}, which has no "
            "windows and so is never final",
            fix="fold per window: group_by_key().windowed_by(TumblingWindow(size_ms=3_600_000))",
        )

    def _entries(self, call: str) -> KnownTable:
        """Return what is known of the table, with the keys that its entries have.

        :param call: the method that is about to use them.
        """
        return self._known if call == "to_stream" else self._kept(call)

    def _kept(self, call: str) -> KnownTable:
        """Return what is known of the table, whose entries may be asked for from now on.

        :param call: the method that is about to ask.
        """
        if self._known.passing:
            self._known = kept_by_itself(self._known, call)
        return self._known

    def _join(
        self,
        call: TablesJoinKind,
        other: KTable,
        joiner: TablesJoiner,
        foreign_key: ForeignKey | None,
        store: StoreArgument,
        value_serde: Serde | None,
        name: str | None,
    ) -> KTable:
        check_functions(call, joiner=joiner)
        check_partner(other, KTable, self._known.graph, call)
        sides = self._entries(call), other._entries(call)
        if foreign_key is not None and call != "outer_join":
            options = JoinByForeignKey(
                foreign_key=foreign_key, store=store, value_serde=value_serde, name=name
            )
            return KTable(join_by_foreign_key(call, *sides, joiner, options))
        return KTable(join_tables(call, *sides, joiner, store, value_serde, name))


class WindowedKTable(KTable[Windowed[K], V], Generic[K, V]):
    """The result of a fold per key and window; its keys are :class:`Windowed`.

    A window leaves the table's store when it is closed for good, at the end of the store's retention; that
    is no change of the table. ``spec`` describes the store: its key serde is that of the key alone.

    :param windows: what is known of it.
    """

    def __init__(self, windows: KnownWindowedTable) -> None:
        super().__init__(windows.table)
        self._windows = windows
        self._suppressed = self if windows.suppressed else None

    @property
    def window(self) -> FoldWindow:
        """What the table was folded by."""
        return self._windows.window

    @overload
    def to_stream(self, selector: None = None, *, name: str | None = None) -> KStream[Windowed[K], V]: ...
    @overload
    def to_stream(
        self, selector: KeySelector[Windowed[K], V, KR], *, name: str | None = None
    ) -> KStream[KR, V]: ...
    def to_stream(self, selector: KeySelector | None = None, *, name: str | None = None) -> KStream:
        """Return the stream of the table's changes: (``Windowed``, newest value); (``Windowed``, None) for
        a window that was deleted, and for a session that grew or was merged and now has other bounds.

        Of a suppressed table, these are the final values. The serde of the windowed keys is known, so the
        stream can be written as it is, every window of a key into the key's own partition, as Kafka Streams
        does; to group or join it repartitions it.

        :param selector: as in :meth:`KTable.to_stream`.
        :param name: likewise.
        """
        return super().to_stream(selector, name=name)

    def suppress(self, *, name: str | None = None) -> WindowedKTable[K, V]:
        """Hold each window back until it is closed, then emit its final value, once.

        A tumbling or hopping window is closed when stream time has reached its end plus the grace; a sliding
        one when stream time has passed that; a session when stream time has passed its last record by more
        than gap and grace. What the end of a run does
        with the windows still open is the window's ``at_run_end``: with ``hold`` nothing, with ``flush``
        their values are emitted too if they changed since they were last emitted. A session that was emitted
        so and then grows is emitted with None, under its old bounds.

        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: the table's store has no changelog, or keeps windows longer than they are open,
            or the node has another name already.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> visits = builder.stream("clicks").group_by_key().windowed_by(SessionWindow(gap_ms=1_800_000))
        >>> visits.count().suppress().to_stream().send_to("clicks-per-visit")
        """
        if self._suppressed is None:
            self._suppressed = WindowedKTable(suppressed(self._windows, name))
        elif name is not None and name != self._suppressed._known.node:
            raise TopologyError(
                f"suppress at {call_site()} has name={name!r}, but results are held back already, "
                f"at the node {self._suppressed._known.node!r}",
                fix="call suppress once, and use what it returns twice",
            )
        return self._suppressed

    def _entries(self, call: str) -> KnownTable:
        return entries_of_windows(self._windows, call)
