"""Several groups that are folded into one table, as users see them; made by ``KGroupedStream.cogroup``."""

from __future__ import annotations

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.java_names import answers_java_names
from airflow_kstreams.streams.kstream.cogrouping import Cogroup
from airflow_kstreams.streams.kstream.grouping import StoreArgument
from airflow_kstreams.streams.kstream.kstream import KGroupedStream, KTable, WindowedKTable
from airflow_kstreams.streams.kstream.operators.aggregation import Aggregator, Initializer
from airflow_kstreams.streams.kstream.operators.window_fold import Merger
from airflow_kstreams.streams.kstream.window_tables import FoldWindow, check_fold_window
from airflow_kstreams.streams.serde.base import Serde


@answers_java_names
class CogroupedKStream:
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

    def cogroup(self, grouped: KGroupedStream, aggregator: Aggregator) -> CogroupedKStream:
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

    def windowed_by(self, window: FoldWindow) -> WindowedCogroupedKStream:
        """Group the records of each key further, by windows of time.

        :param window: as for :meth:`KGroupedStream.windowed_by`.
        :raises TopologyError: it is no such window.
        """
        check_fold_window(window)
        return WindowedCogroupedKStream(self._cogroup, window)

    def aggregate(
        self,
        initializer: Initializer,
        *,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
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
class WindowedCogroupedKStream:
    """Records of several streams, grouped by key and window; made by :meth:`CogroupedKStream.windowed_by`.

    :param cogroup: what is known of them.
    :param window: by which windows.
    """

    def __init__(self, cogroup: Cogroup, window: FoldWindow) -> None:
        self._cogroup = cogroup
        self._window = window

    def aggregate(
        self,
        initializer: Initializer,
        merger: Merger | None = None,
        *,
        store: StoreArgument = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> WindowedKTable:
        """Fold all records of each key and window, starting from ``initializer()``.

        :param initializer: makes a new, empty aggregate.
        :param merger: for sessions, and only for them: ``merger(key, earlier, later)`` makes one aggregate of
            those of two sessions that a record brings together; it comes before the aggregator.
        :param store: as for :meth:`WindowedKGroupedStream.count`.
        :param value_serde: of the aggregate; may be left out if the builder has a default.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: as for :meth:`CogroupedKStream.aggregate`, or the merger is missing or in vain.
        """
        return WindowedKTable(
            self._cogroup.aggregated_by_window(self._window, initializer, merger, store, value_serde, name)
        )
