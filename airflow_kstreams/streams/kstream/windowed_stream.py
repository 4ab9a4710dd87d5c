"""A stream with a window, and its joins with another. What a join does is written in
:mod:`airflow_kstreams.streams.kstream.windowed_join`.

Invariant: equal keys of both sides lie in one task. That holds if both topics have equal partition counts and
were partitioned by the same bytes: both sides' keys have the same serde, and a side whose key changed goes
through a repartition topic first, written in that serde.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.kstream.arguments import check_functions, check_partner, no_window_error
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.kstream import KStream
from airflow_kstreams.streams.kstream.stateless import CopyValues
from airflow_kstreams.streams.kstream.table import KTable
from airflow_kstreams.streams.kstream.window_close import WindowClose
from airflow_kstreams.streams.kstream.windowed_join import (
    JoinArrivals,
    JoinKind,
    JoinSide,
    StreamJoiner,
    WindowedJoin,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import SlidingWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """What a user says of a join beside its streams and joiner; see :meth:`WindowedKStream.join`."""

    key_serde: Serde | None
    value_serde: Serde | None
    other_value_serde: Serde | None
    name: str | None


class WindowedKStream(KStream):
    """A stream that can be joined with another one; made by ``KStream.with_window``.

    Every operator of a stream works; what ``filter``, ``map``, ``branch`` and their like make of it has the
    window too.

    :param window: for how long its elements are kept for those of another stream.
    :raises TopologyError: the window is no ``SlidingWindow``.

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

    def __init__(
        self,
        graph: StreamGraph,
        node: str,
        serdes: Serdes,
        *,
        window: SlidingWindow,
        key_changed: bool = False,
        table_values: bool = False,
    ) -> None:
        super().__init__(graph, node, serdes, key_changed=key_changed, table_values=table_values)
        if not isinstance(window, SlidingWindow):
            raise TopologyError(
                f"with_window at {call_site()} is given a {type(window).__name__}, expected a SlidingWindow",
                fix="joins take SlidingWindow(size_ms=...); other windows are for grouped streams",
            )
        self._window = window

    @overload
    def join(
        self,
        other: KTable,
        joiner: StreamJoiner,
        *,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...

    @overload
    def join(
        self,
        other: WindowedKStream,
        joiner: StreamJoiner,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...

    def join(
        self,
        other: KTable | WindowedKStream,
        joiner: StreamJoiner,
        *,
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
        :param key_serde: of both streams' keys, needed where an operator changed both.
        :param value_serde: of this stream, needed after an operator that changed the value.
        :param other_value_serde: of the other stream, likewise.
        :param name: the stores are then named ``<name>-left`` and ``<name>-right``, with the changelogs
            ``<application id>-<store>-changelog``, and where a key changed, the repartition topics
            ``<application id>-<store>-repartition``. State is found by these names: name joins whose state is
            to outlive changes of the topology.
        :raises TopologyError: the other is no windowed stream or table of the same builder, the key serdes
            differ, a serde is missing, or the name is taken.
        """
        options = JoinOptions(
            key_serde=key_serde, value_serde=value_serde, other_value_serde=other_value_serde, name=name
        )
        return self._join_any("join", other, joiner, options)

    @overload
    def left_join(
        self,
        other: KTable,
        joiner: StreamJoiner,
        *,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self,
        other: WindowedKStream,
        joiner: StreamJoiner,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...

    def left_join(
        self,
        other: KTable | WindowedKStream,
        joiner: StreamJoiner,
        *,
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
        options = JoinOptions(
            key_serde=key_serde, value_serde=value_serde, other_value_serde=other_value_serde, name=name
        )
        return self._join_any("left_join", other, joiner, options)

    def outer_join(
        self,
        other: WindowedKStream,
        joiner: StreamJoiner,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`left_join` does, and the other stream's elements likewise: ``joiner(None, value)``;
        those without key at once.

        Each stream's window says what becomes of its elements that still wait at the end of a run.
        """
        options = JoinOptions(
            key_serde=key_serde, value_serde=value_serde, other_value_serde=other_value_serde, name=name
        )
        return self._join_windowed("outer_join", other, joiner, options)

    def join_prior(
        self,
        other: WindowedKStream,
        joiner: StreamJoiner,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
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
        options = JoinOptions(
            key_serde=key_serde, value_serde=value_serde, other_value_serde=other_value_serde, name=name
        )
        return self._join_windowed("join_prior", other, joiner, options)

    def _join_any(
        self, call: JoinKind, other: KTable | WindowedKStream, joiner: StreamJoiner, options: JoinOptions
    ) -> KStream:
        if not isinstance(other, KTable):
            return self._join_windowed(call, other, joiner, options)
        if options.key_serde is not None or options.other_value_serde is not None:
            raise TopologyError(
                f"{call} at {call_site()} is given serdes for the table {other.store!r}, which has its own",
                fix="leave out key_serde= and other_value_serde=",
            )
        return self._join(call, other, joiner, self._serdes.given(None, options.value_serde), options.name)

    def _join_windowed(
        self, call: JoinKind, other: WindowedKStream, joiner: StreamJoiner, options: JoinOptions
    ) -> KStream:
        if type(other) is KStream:
            raise no_window_error("it is given", call)
        check_partner(other, WindowedKStream, self._graph, call)
        check_functions(joiner, call=call)
        graph, name = self._graph, options.name
        key_serde = _key_serde(self, other, options.key_serde, call)
        left_values = graph.serde("value", options.value_serde, self._serdes, call)
        right_values = graph.serde(
            "value", options.other_value_serde, other._serdes, call, option="other_value_serde"
        )
        left_parent = self._arrivals(key_serde, left_values, name and f"{name}-left")
        right_parent = other._arrivals(key_serde, right_values, name and f"{name}-right")
        left_node, right_node = graph.name("KSTREAM-JOINTHIS"), graph.name("KSTREAM-JOINOTHER")
        left = JoinSide(
            window=self._window,
            store=_store(name and f"{name}-left", left_node, key_serde, left_values, self._window),
            waits=call in ("left_join", "outer_join"),
        )
        right = JoinSide(
            window=other._window,
            store=_store(name and f"{name}-right", right_node, key_serde, right_values, other._window),
            waits=call == "outer_join",
        )
        join = WindowedJoin(kind=call, joiner=joiner, left=left, right=right)
        add_operator = graph.topology.add_operator
        add_operator(left_node, JoinArrivals(join=join, is_left=True), left_parent)
        add_operator(right_node, JoinArrivals(join=join, is_left=False), right_parent)
        close_node = graph.name("KSTREAM-MERGE")
        add_operator(close_node, WindowClose(join=join), left_node, right_node)
        for side in (left, right):
            graph.add_join_store(side.store, (left_node, right_node, close_node))
        return KStream(graph, close_node, Serdes(key=key_serde, value=None).with_new_value(call))

    def _arrivals(self, key_serde: Serde, value_serde: Serde, name: str | None) -> str:
        """Return the node to join, behind a repartition topic if the key changed."""
        if self._key_changed:
            # As for a join with a table, so that both can share the topic.
            return self._graph.repartition(
                name or self._node, self._node, key_serde, value_serde, keep_null_keys=True
            )
        if self._table_values:
            return self._graph.operator("KSTREAM-COPYVALUES", CopyValues(), self._node)
        return self._node


def _store(
    name: str | None, node: str, key_serde: Serde, value_serde: Serde, window: SlidingWindow
) -> JoinStoreSpec:
    return JoinStoreSpec(
        name=name or f"{node}-store",
        key_serde=key_serde,
        value_serde=value_serde,
        cached=False,
        retention_ms=window.size_ms + window.grace_ms,
    )


def _key_serde(left: WindowedKStream, right: WindowedKStream, given: Serde | None, call: str) -> Serde:
    """Return the serde of both sides' keys: a side whose key changed is written anew and takes any."""
    kept = [stream for stream in (left, right) if not stream._key_changed]
    known = [serde for stream in kept if (serde := stream._serdes.key) is not None]
    wanted = ([given] if given is not None else []) + known
    other = next((serde for serde in wanted if serde != wanted[0]), None)
    if other is not None:
        raise TopologyError(
            f"{call} at {call_site()} is to join by keys of {wanted[0]!r} and of {other!r}: equal keys lie "
            "in different partitions",
            fix="repartition one stream: select_key(lambda k, v: k) before the join",
        )
    return wanted[0] if wanted else left._graph.serde("key", None, left._serdes, call)
