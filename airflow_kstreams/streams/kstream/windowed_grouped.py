"""A stream grouped by key and window, ready to be folded into a windowed table."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import (
    SessionStoreSpec,
    StoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.kstream.aggregation import Aggregator, Initializer, Reducer
from airflow_kstreams.streams.kstream.arguments import check_functions, check_store_kind
from airflow_kstreams.streams.kstream.grouping import GroupedRecords, StoreArgument
from airflow_kstreams.streams.kstream.window_fold import (
    Fold,
    Merger,
    SessionFold,
    TimeWindowFold,
    aggregating,
    counting,
    reducing,
)
from airflow_kstreams.streams.kstream.windowed_table import WindowedKTable
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import HoppingWindow, SessionWindow, TimeWindow, TumblingWindow

S = TypeVar("S", WindowStoreSpec, SessionStoreSpec)

_FUNCTIONS = "pass functions: aggregate(initializer, aggregator), for sessions with a merger, reduce(reducer)"


class WindowedKGroupedStream:
    """Records grouped by key and window; made by :meth:`KGroupedStream.windowed_by`.

    Records without key or value, with a negative timestamp, or too late for every window they lie in, are
    dropped and counted. A store may be given as in :class:`KGroupedStream`; a plain ``StoreSpec`` becomes a
    window or session store that keeps each window until it closes.

    :param records: what is grouped.
    :param window: by which windows.
    :raises TopologyError: the window is not one to fold by; with the user's line.
    """

    def __init__(self, records: GroupedRecords, window: TimeWindow | SessionWindow) -> None:
        if not isinstance(window, TumblingWindow | HoppingWindow | SessionWindow):
            raise TopologyError(
                f"windowed_by at {call_site()} is given {type(window).__name__}, expected a window to fold "
                "by",
                fix="pass a TumblingWindow, HoppingWindow or SessionWindow; a SlidingWindow is for joins",
            )
        self._records = records
        self._window = window

    def count(self, *, store: StoreArgument = None) -> WindowedKTable:
        """Count the records of each key per window.

        :param store: name of the store, whose values are whole numbers (``serdes.int64()``), or its spec.
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
        return self._table(counting(), store, builtin_serdes.int64())

    def reduce(
        self, reducer: Reducer, *, store: StoreArgument = None, value_serde: Serde | None = None
    ) -> WindowedKTable:
        """Fold the values of each key and window by ``reducer(aggregate, value)``, starting from the first
        value. Two sessions become one by ``reducer(earlier, later)``.

        :param reducer: returns the new aggregate and changes neither argument; None deletes the window.
        :param store: as in :meth:`count`.
        :param value_serde: of the aggregate; that of the stream's values unless given.
        :raises TopologyError: as in :meth:`count`.
        """
        check_functions(reducer, call="reduce", fix=_FUNCTIONS)
        return self._table(reducing(reducer), store, value_serde)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger | None = None,
        *,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
    ) -> WindowedKTable:
        """Fold the values of each key and window by ``aggregator(key, value, aggregate)``, starting from
        ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param aggregator: returns the new aggregate, which may be the old one changed; None deletes the
            window.
        :param merger: for sessions, and only for them: ``merger(key, earlier, later)`` makes one aggregate of
            those of two sessions that a record brings together; it comes before the aggregator.
        :param store: as in :meth:`count`.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :raises TopologyError: as in :meth:`count`, or the merger is missing or in vain.
        """
        sessions = isinstance(self._window, SessionWindow)
        if sessions != (merger is not None):
            found = "no merger" if sessions else "a merger, but its windows never merge"
            raise TopologyError(
                f"aggregate by {type(self._window).__name__} at {call_site()} is given {found}",
                fix="pass aggregate(initializer, aggregator, merger) for sessions, without merger otherwise",
            )
        merge = merger or (lambda key, left, right: None)
        check_functions(initializer, aggregator, merge, call="aggregate", fix=_FUNCTIONS)
        return self._table(aggregating(initializer, aggregator, merge), store, value_serde)

    def _table(self, fold: Fold, store: StoreArgument, value_serde: Serde | None) -> WindowedKTable:
        graph, window = self._records.graph, self._window
        inherited = self._records.serdes if fold.kind == "reduce" else None
        given = self._records.store_spec(store, value_serde, fold.kind, inherited=inherited)
        operator: TimeWindowFold | SessionFold
        if isinstance(window, SessionWindow):
            session_spec = _spec(given, SessionStoreSpec, window.gap_ms + window.grace_ms, fold.kind)
            operator = SessionFold(fold=fold, window=window, store=session_spec)
        else:
            window_spec = _spec(given, WindowStoreSpec, window.size_ms + window.grace_ms, fold.kind)
            operator = TimeWindowFold(fold=fold, window=window, store=window_spec)
        spec = operator.store
        kind = "KSTREAM-REDUCE" if fold.kind == "reduce" else "KSTREAM-AGGREGATE"
        node = graph.operator(kind, operator, self._records.parent(spec), (spec.name,))
        graph.add_table_store(spec, node)
        return WindowedKTable(graph, node, spec, window)


def _spec(given: StoreSpec, kind: type[S], least_ms: int, call: str) -> S:
    """Return the spec of a store that keeps windows at least until they close.

    :param least_ms: the retention that takes.
    """
    if type(given) is StoreSpec:
        facts = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
        return kind(**facts, retention_ms=least_ms)
    check_store_kind(given, kind, call)
    spec = cast("S", given)
    if spec.retention_ms < least_ms:
        raise TopologyError(
            f"{call} at {call_site()} is given the store {spec.name!r}, which keeps entries for "
            f"{spec.retention_ms} ms, but its windows may change for {least_ms} ms",
            fix=f"give it retention_ms={least_ms}, or pass a plain StoreSpec",
        )
    return spec
