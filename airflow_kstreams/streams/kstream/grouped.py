"""A stream grouped by key, ready to be folded into a table."""

from __future__ import annotations

from airflow_kstreams.streams.graph.nodes import Operator
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.aggregation import (
    Aggregate,
    Aggregator,
    Count,
    Initializer,
    Reduce,
    Reducer,
)
from airflow_kstreams.streams.kstream.arguments import check_functions, check_store_kind
from airflow_kstreams.streams.kstream.graph import StreamGraph
from airflow_kstreams.streams.kstream.grouping import GroupedRecords, Grouping, StoreArgument
from airflow_kstreams.streams.kstream.table import KTable
from airflow_kstreams.streams.kstream.windowed_grouped import WindowedKGroupedStream
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import SessionWindow, TimeWindow

__all__ = ["Grouping", "KGroupedStream", "StoreArgument"]

_FUNCTIONS = "pass functions: aggregate(initializer, aggregator), reduce(reducer)"


class KGroupedStream:
    """Records grouped by key; records without key or value are dropped and counted.

    :param graph: what is being built.
    :param node: the node whose results are grouped.
    :param grouping: how.
    """

    def __init__(self, graph: StreamGraph, node: str, grouping: Grouping) -> None:
        self._graph = graph
        self._records = GroupedRecords(graph, node, grouping)

    def windowed_by(self, window: TimeWindow | SessionWindow) -> WindowedKGroupedStream:
        """Group the records of each key further, by windows of time.

        :param window: a ``TumblingWindow``, ``HoppingWindow`` or ``SessionWindow``.
        :raises TopologyError: it is none of these.
        """
        return WindowedKGroupedStream(self._records, window)

    def count(self, *, store: StoreArgument = None) -> KTable:
        """Count the records of each key.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``).
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
        spec = self._spec(store, builtin_serdes.int64(), "count")
        return self._table(Count(store=spec), spec)

    def reduce(
        self, reducer: Reducer, *, store: StoreArgument = None, value_serde: Serde | None = None
    ) -> KTable:
        """Fold the values of each key by ``reducer(aggregate, value)``, starting from the first value.

        :param reducer: returns the new aggregate and changes neither argument, since the first aggregate is a
            value that others see too; None deletes the key.
        :param store: name of the store.
        :param value_serde: of the aggregate; that of the stream's values unless given.
        :raises TopologyError: a serde is missing, or the store's name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> largest = builder.stream("numbers").group_by_key().reduce(max, store="largest")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 5, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     driver.store("largest").get("a")
        5
        """
        check_functions(reducer, call="reduce", fix=_FUNCTIONS)
        spec = self._spec(store, value_serde, "reduce", inherit=True)
        return self._table(Reduce(reducer=reducer, store=spec), spec)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
    ) -> KTable:
        """Fold the values of each key by ``aggregator(key, value, aggregate)``, starting from
        ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param aggregator: returns the new aggregate, which may be the old one changed; None deletes the key.
            Under an error handler that goes on, one that may fail must not change the old one before.
        :param store: name of the store.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
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
        check_functions(initializer, aggregator, call="aggregate", fix=_FUNCTIONS)
        spec = self._spec(store, value_serde, "aggregate")
        return self._table(Aggregate(initializer=initializer, aggregator=aggregator, store=spec), spec)

    def _spec(
        self, store: StoreArgument, value_serde: Serde | None, call: str, *, inherit: bool = False
    ) -> StoreSpec:
        inherited = self._records.serdes if inherit else None
        spec = self._records.store_spec(store, value_serde, call, inherited=inherited)
        check_store_kind(spec, StoreSpec, call)
        return spec

    def _table(self, operator: Operator, spec: StoreSpec) -> KTable:
        parent = self._records.parent(spec)
        kind = "KSTREAM-REDUCE" if isinstance(operator, Reduce) else "KSTREAM-AGGREGATE"
        node = self._graph.operator(kind, operator, parent, (spec.name,))
        self._graph.add_table_store(spec, node)
        return KTable(self._graph, node, spec)
