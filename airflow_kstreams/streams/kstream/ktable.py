"""Defines tables, alone and with windows, and groups of their entries.

``tables/`` and ``windows/`` add the nodes of a method to the topology; each table holds its description
(``known.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site, check_functions, options_by_name
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import StoreArgument, check_partner, no_store_error
from airflow_kstreams.streams.kstream.known import KnownTable, KnownWindowedTable
from airflow_kstreams.streams.kstream.operators.aggregation import (
    Aggregator,
    Initializer,
    Reducer,
    aggregating,
    counting,
    reducing,
)
from airflow_kstreams.streams.kstream.operators.stateless import KeySelector, Predicate, ValueMapper
from airflow_kstreams.streams.kstream.operators.tables.foreign_key_steps import ForeignKey
from airflow_kstreams.streams.kstream.operators.tables.table_select import EntrySelector
from airflow_kstreams.streams.kstream.operators.tables.tables_join import TablesJoiner, TablesJoinKind
from airflow_kstreams.streams.kstream.tables.derived_tables import (
    filtered,
    with_values_mapped,
    with_values_transformed,
)
from airflow_kstreams.streams.kstream.tables.foreign_key_join import (
    JoinByForeignKey,
    join_by_foreign_key,
    kept_by_itself,
)
from airflow_kstreams.streams.kstream.tables.table_grouping import (
    TABLE_FUNCTIONS,
    GroupedEntries,
    grouped_entries,
)
from airflow_kstreams.streams.kstream.tables.table_table_join import join_tables
from airflow_kstreams.streams.kstream.windows.window_tables import entries_of_windows, suppressed
from airflow_kstreams.streams.processor.processor import ValueTransformerDef
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.type_variables import KR, VO, VR, K, V
from airflow_kstreams.streams.windows import FoldWindow, Windowed

if TYPE_CHECKING:
    from airflow_kstreams.streams import KStream  # above: it returns tables

#: The remedy of a join that is called with other arguments: the calls that there are.
_TABLE_JOINS = "write join(table, joiner), or join(table, joiner, foreign_key=selector); options by name"


class ResultOptions(TypedDict, Generic[K, V], total=False):
    """Options of a table that is made of others, for type checkers."""

    store: StoreArgument[K, V]
    value_serde: Serde[V] | None
    name: str | None


@answers_java_names
class KTable(Generic[K, V]):
    """The newest value of each key: of a topic or a stream, of a fold, or made of other tables.

    A table of a topic, a stream or a fold is kept in a store. One that is made of other tables is kept in
    none unless you name one (``store=``): its entries are made of theirs when they are needed. Functions run
    then, and again on a value that is taken back, so they must depend on their arguments alone.

    :param known: the table's description: node, serdes, and the stores of its entries.
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

        An entry whose new value fails the predicate is deleted, if its old value passed. A deletion does not
        ask the predicate.

        :param store: name or spec of a store to keep the result in; none by default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

    @overload
    def map_values(
        self,
        mapper: ValueMapper[V, VR | None],
        **options: Unpack[ResultOptions[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V, K], VR | None],
        **options: Unpack[ResultOptions[K, VR]],
    ) -> KTable[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Replace each value by ``mapper(value)``; a deleted key stays deleted.

        :param mapper: function that returns a new value and leaves its argument, which belongs to the table,
            as it is; None deletes the key. If it declares a parameter ``key``, it is given the key by that
            name.
        :param store: name or spec of a store to keep the result in; none by default.
        :param value_serde: serde of the new values; needed where they are written or kept, unless the builder
            has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param definition: class or function that makes a new transformer for each task.
        :param stores: the stores that it may use, by name, or by spec to add them here.
        :param store: name or spec of a store to keep the result in; none by default.
        :param value_serde: as in :meth:`map_values`.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param selector: function that gives each change another key, ``selector(key, value)``, as in
            ``KStream.select_key``; the value is None for a deleted key.
        :param name: the node's name in messages, counts and pictures; numbered by default.

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
        changes = self._entries("to_stream").changes(name if selector is None else None)
        stream: KStream = changes.graph.make_stream(changes)
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

        When an entry changes, the pair of its old value leaves its group, and the pair of the new one enters
        its own. A pair with None in it belongs to no group.

        :param key_serde: serde of the groups' keys; may be left out if the builder has a default.
        :param value_serde: serde of the values in the groups; may be left out if the builder has a default.
        :param name: the node's name, and part of the repartition topic's,
            ``<application id>-<name>-repartition``; all folds of the group then share this topic. By default
            each store has a topic of its own.
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
        **options: Unpack[ResultOptions[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[KR, VO],
        joiner: TablesJoiner[V, VO, VR],
        *,
        foreign_key: ForeignKey[K, V, KR],
        **options: Unpack[ResultOptions[K, VR]],
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

        :param joiner: function that returns a new value and changes neither argument; None deletes the key.
        :param foreign_key: function of its arguments alone: ``foreign_key(key, value)`` gives the other
            table's key for each entry, None for an entry that has no result.
        :param store: name or spec of a store to keep the result in; none by default.
        :param value_serde: serde of the results; needed where they are written or kept, unless the builder
            has a default.
        :param name: name of the node that gives the result, for messages, counts and pictures; numbered by
            default. The nodes that read the tables are called ``<name>-join-this`` and ``<name>-join-other``;
            in a join by foreign key, the names of topics and stores begin with it.
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
        **options: Unpack[ResultOptions[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[KR, VO],
        joiner: TablesJoiner[V, VO | None, VR],
        *,
        foreign_key: ForeignKey[K, V, KR],
        **options: Unpack[ResultOptions[K, VR]],
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

        :param joiner: function that is given None for the value of the table that does not hold the key.
        """
        return self._join("outer_join", other, joiner, None, store, value_serde, name)

    def suppress(self, *, name: str | None = None) -> KTable[K, V]:
        """Hold back results until they are final; for tables of windows only.

        :param name: the node's name.
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
        """Return the table's description, with the keys that its entries have.

        :param call: name of the DSL method that uses them.
        """
        return self._known if call == "to_stream" else self._kept(call)

    def _kept(self, call: str) -> KnownTable:
        """Return the table's description, in a form of which an operator below can ask for entries.

        :param call: name of the DSL method that adds this operator.
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

    Its stream has (``Windowed``, newest value), and (``Windowed``, None) for a window that was deleted, or
    for a session that grew or was merged and now has other bounds; of a suppressed table, the final values.
    It can be written as it is: every window of a key goes into the key's own partition, as in Kafka Streams.
    A group or join of it goes through a repartition topic.

    A window leaves the table's store when it is closed for good, at the end of the store's retention; that
    is no change of the table. ``spec`` describes the store: its key serde is that of the key alone.

    :param windows: the table's description, with its windows.
    """

    def __init__(self, windows: KnownWindowedTable) -> None:
        super().__init__(windows.table)
        self._windows = windows
        self._suppressed = self if windows.suppressed else None

    @property
    def window(self) -> FoldWindow:
        """The windows that the table was folded by."""
        return self._windows.window

    def suppress(self, *, name: str | None = None) -> WindowedKTable[K, V]:
        """Hold each window back until it is closed, then emit its final value, once.

        A tumbling or hopping window is closed when stream time has reached its end plus the grace; a sliding
        one when stream time has passed that; a session when stream time has passed its last record by more
        than gap and grace. The window's ``at_run_end`` decides on windows that are open at the end of a run:
        ``hold`` emits nothing, ``flush`` emits the values that changed since they were last emitted. If a
        session that was emitted so grows, it is emitted with None under its old bounds.

        :param name: the node's name in messages, counts and pictures; numbered by default.
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


@answers_java_names
class KGroupedTable(Generic[K, V]):
    """Entries of a table grouped by a key of their own; made by :meth:`KTable.group_by`.

    A fold adds the values of a group, and subtracts one when its entry changes, is deleted, or moves to
    another group. Values come in any order, save that each is subtracted after it was added.

    :param entries: the grouped entries.
    """

    def __init__(self, entries: GroupedEntries) -> None:
        self._entries = entries

    def count(self, *, store: StoreArgument[K, int] = None, name: str | None = None) -> KTable[K, int]:
        """Count the entries of each group. A group that has lost its last entry stays, with a count of 0, as
        in Kafka Streams.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param adder: function that returns the new aggregate and changes neither argument.
        :param subtractor: function that returns the new aggregate and changes neither argument; None deletes
            the group.
        :param store: name of the store, or its spec.
        :param value_serde: serde of the aggregate; by default the serde of the group's values.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param initializer: function that makes a new, empty aggregate.
        :param adder: function that returns the new aggregate, which may be the old one changed; None deletes
            the group.
        :param subtractor: function that returns the new aggregate, as the adder does.
        :param store: name of the store, or its spec.
        :param value_serde: serde of the aggregate; may be left out if the builder has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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
