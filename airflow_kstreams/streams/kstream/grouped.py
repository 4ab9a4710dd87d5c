"""Defines groups of a stream's records, which folds make tables of: by key and by window, alone and beside
others.

``arguments.py`` and ``windows/`` add the nodes of a fold to the topology.
"""

from __future__ import annotations

from typing import Generic

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site, check_functions
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import FUNCTIONS, GroupedRecords, StoreArgument
from airflow_kstreams.streams.kstream.ktable import KTable, WindowedKTable
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
from airflow_kstreams.streams.kstream.windows.cogrouping import Cogroup
from airflow_kstreams.streams.kstream.windows.window_tables import (
    WINDOW_FUNCTIONS,
    aggregating_windows,
    check_fold_window,
    folded_by_window,
)
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.type_variables import VR, K, V
from airflow_kstreams.streams.windows import FoldWindow


@answers_java_names
class KGroupedStream(Generic[K, V]):
    """Records grouped by key; records without key or value are dropped and counted.

    :param records: the grouped records.
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
        """Begin a fold of several grouped streams into one table: ``cogroup(...)`` of the result adds another
        stream, and ``aggregate(initializer)`` makes the table.

        :param aggregator: function of this stream's values: ``aggregator(key, value, aggregate)`` returns the
            new aggregate, which may be the old one changed; None deletes the key.
        :raises TopologyError: it is no function.
        """
        return CogroupedKStream(Cogroup().joined_by(self._records, aggregator))

    def count(self, *, store: StoreArgument[K, int] = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param reducer: function that returns the new aggregate; None deletes the key. If it never returns its
            second argument, it may change the first, which begins as a copy of a value.
        :param store: name of the store, or its spec.
        :param value_serde: serde of the aggregate; by default the serde of the stream's values.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param initializer: function that makes a new, empty aggregate.
        :param aggregator: function that returns the new aggregate, which may be the old one changed; None
            deletes the key. Under an error handler that goes on, an aggregator that may fail must not change
            the old aggregate before it fails.
        :param store: name of the store, or its spec.
        :param value_serde: serde of the aggregate; may be left out if the builder has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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
class WindowedKGroupedStream(Generic[K, V]):
    """Records grouped by key and window; made by :meth:`KGroupedStream.windowed_by`.

    Records without key or value, with a negative timestamp, or too late for every window they lie in, are
    dropped and counted. A store may be given as in :class:`KGroupedStream`; a plain ``StoreSpec`` becomes a
    window or session store that keeps each window until it closes.

    :param records: the grouped records.
    :param window: the windows of each group.
    """

    def __init__(self, records: GroupedRecords, window: FoldWindow) -> None:
        self._records = records
        self._window = window

    def count(
        self, *, store: StoreArgument[K, int] = None, name: str | None = None
    ) -> WindowedKTable[K, int]:
        """Count the records of each key per window.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param reducer: function that returns the new aggregate; None deletes the window. If it never returns
            its second argument, it may change the first, which begins as a copy of a value.
        :param store: as in :meth:`count`.
        :param value_serde: serde of the aggregate; by default the serde of the stream's values.
        :param name: the node's name in messages, counts and pictures; numbered by default.
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

        :param initializer: function that makes a new, empty aggregate.
        :param aggregator: function that returns the new aggregate, which may be the old one changed; None
            deletes the window.
        :param merger: function for sessions, and only for them: ``merger(key, earlier, later)`` makes one
            aggregate of those of two sessions that a record brings together; it is called before the
            aggregator. As in Kafka Streams, the first session of a record is merged with a new, empty
            aggregate.
        :param store: as in :meth:`count`.
        :param value_serde: serde of the aggregate; may be left out if the builder has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: as in :meth:`count`, or the window and the merger do not fit.
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

    :param cogroup: the streams and their aggregators.

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

        :param grouped: a grouped stream of the same builder, whose keys have the same serde.
        :param aggregator: function of its values: ``aggregator(key, value, aggregate)`` returns the new
            aggregate, which may be the old one changed; None deletes the key.
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

        :param window: one of the windows that :meth:`KGroupedStream.windowed_by` takes.
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
        repartition topic: that of its group's name, else the store's and what the stream reads.

        :param initializer: function that makes a new, empty aggregate.
        :param store: name of the store, or its spec.
        :param value_serde: serde of the aggregate; may be left out if the builder has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: the initializer is no function, a serde is missing, or a name is taken.
        """
        return KTable(self._cogroup.aggregated(initializer, store, value_serde, name))


@answers_java_names
class WindowedCogroupedKStream(Generic[K, VR]):
    """Records of several streams, grouped by key and window; made by :meth:`CogroupedKStream.windowed_by`.

    :param cogroup: the streams and their aggregators.
    :param window: the windows of each group.
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

        :param initializer: function that makes a new, empty aggregate.
        :param merger: function for sessions, and only for them: ``merger(key, earlier, later)`` makes one
            aggregate of those of two sessions that a record brings together; it is called before the
            aggregator. As in Kafka Streams, the first session of a record is merged with a new, empty
            aggregate.
        :param store: as for :meth:`WindowedKGroupedStream.count`.
        :param value_serde: serde of the aggregate; may be left out if the builder has a default.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: as for :meth:`CogroupedKStream.aggregate`, or the window and the merger do not
            fit.
        """
        return WindowedKTable(
            self._cogroup.aggregated_by_window(self._window, initializer, merger, store, value_serde, name)
        )
