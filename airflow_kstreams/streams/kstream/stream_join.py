"""Adds the nodes and stores that join two streams with windows. The operators that these nodes run stand in
:mod:`airflow_kstreams.streams.kstream.operators.windows.windowed_join`.

Invariant: equal keys of both sides lie in one task. That holds if both topics have equal partition counts and
were partitioned by the same bytes: both sides' keys have the same serde, and a side whose key changed goes
through a repartition topic first, written in that serde.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec, Storage
from airflow_kstreams.streams.hints.function_checks import KEY, call_site, check_choice, declared_beside
from airflow_kstreams.streams.kstream.graph import Serdes, check_name
from airflow_kstreams.streams.kstream.known import KnownStream, WindowedStream
from airflow_kstreams.streams.kstream.lasting_names import lasting_name
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.kstream.operators.tables.table_join import ValueJoiner
from airflow_kstreams.streams.kstream.operators.windows.windowed_join import (
    JoinArrivals,
    JoinKind,
    JoinSide,
    WindowClose,
    WindowedJoin,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.windows import SlidingWindow


class JoinOptions(NamedTuple):
    """The options of a join of streams; see :meth:`WindowedKStream.join`."""

    key_serde: Serde | None
    value_serde: Serde | None
    other_value_serde: Serde | None
    name: str | None


def check_join_window(window: object, storage: object) -> None:
    """Refuse an argument of ``with_window`` that is no window for joins, or no storage.

    :raises TopologyError: one of them is another object; the error names the user's line.
    """
    if not isinstance(window, SlidingWindow):
        raise TopologyError(
            f"with_window at {call_site()} is given a {type(window).__name__}, expected a SlidingWindow",
            fix="joins take SlidingWindow(size_ms=...); other windows are for grouped streams",
        )
    check_choice(f"with_window at {call_site()}", get_args(Storage), storage=storage)


def check_table_options(call: str, table: str, options: JoinOptions) -> None:
    """Refuse options that the join with a table does not have.

    :param call: name of the DSL method, for messages.
    :param table: name of the table's store.
    :raises TopologyError: such an option is given; the error names the user's line.
    """
    if options.key_serde is not None or options.other_value_serde is not None:
        raise TopologyError(
            f"{call} at {call_site()} is given serdes for the table {table!r}, which has its own",
            fix="leave out key_serde= and other_value_serde=",
        )


def join_streams(
    call: JoinKind, left: WindowedStream, right: WindowedStream, joiner: ValueJoiner, options: JoinOptions
) -> KnownStream:
    """Add the join, behind a repartition topic on each side whose key changed, and return the stream of its
    results.

    :raises TopologyError: the joiner is no function, the key serdes differ, a serde is missing, or the name
        is taken or not legal.
    """
    with_key = KEY in declared_beside(call, (KEY,), joiner=joiner)
    check_name(options.name)
    graph, name = left.stream.graph, options.name
    key_serde = _key_serde(left.stream, right.stream, options.key_serde, call)
    left_values = graph.serde("value", options.value_serde, left.stream.serdes, call)
    right_values = graph.serde(
        "value", options.other_value_serde, right.stream.serdes, call, option="other_value_serde"
    )
    reads, kind = (*left.stream.reads, *right.stream.reads), call.replace("_", "-")
    stores = graph.join_name(name, reads, kind, call, "-left", "-right")
    left_store, right_store = f"{stores}-left", f"{stores}-right"
    left_topic, right_topic = (left_store, right_store) if name else (None, None)
    left_parent = _arrivals(left.stream, key_serde, left_values, left_topic)
    right_parent = _arrivals(right.stream, key_serde, right_values, right_topic)
    # Each node takes a number even if it is named, as in Kafka Streams: so a name changes no other node's.
    left_node, right_node = graph.name("KSTREAM-JOINTHIS"), graph.name("KSTREAM-JOINOTHER")
    if name:
        left_node, right_node = f"{name}-this-join", f"{name}-other-join"
    left_side = JoinSide(
        window=left.window,
        store=_store(left_store, (key_serde, left_values), left, right),
        waits=call in ("left_join", "outer_join"),
    )
    right_side = JoinSide(
        window=right.window,
        store=_store(right_store, (key_serde, right_values), right, left),
        waits=call == "outer_join",
    )
    join = WindowedJoin(kind=call, joiner=joiner, left=left_side, right=right_side, with_key=with_key)
    add_operator = graph.topology.add_operator
    add_operator(left_node, JoinArrivals(join=join, is_left=True), left_parent)
    add_operator(right_node, JoinArrivals(join=join, is_left=False), right_parent)
    close_node = graph.name("KSTREAM-MERGE")
    if name:
        close_node = f"{name}-merge"
    add_operator(close_node, WindowClose(join=join), left_node, right_node)
    if call in ("left_join", "outer_join"):
        graph.without_key.append(close_node)
    for side in (left_side, right_side):
        graph.add_join_store(side.store, (left_node, right_node, close_node))
    known = Serdes(key=key_serde, value=None).with_new_value(call)
    return KnownStream(graph=graph, node=close_node, serdes=known, reads=(lasting_name(reads, kind),))


def _arrivals(stream: KnownStream, key_serde: Serde, value_serde: Serde, name: str | None) -> str:
    """Return the node whose records are joined: behind a repartition topic if the key or the times changed.

    :param name: the repartition topic's name; None for one made of the topics that the stream reads.
    """
    if not stream.key_changed and not stream.redated:
        return stream.with_own_values().node
    # As for a join with a table, so that both can share the topic.
    drop = DropNulls(keep_null_keys=True)
    topic = name or lasting_name(stream.reads)
    return stream.graph.repartition(topic, stream.node, key_serde, value_serde, drop=drop)


def _store(
    name: str, serdes: tuple[Serde, Serde], side: WindowedStream, other: WindowedStream
) -> JoinStoreSpec:
    """Return the spec of a side's store, which keeps an element until every partner on the other side would
    be late.

    :param serdes: serdes of keys and values.
    """
    key_serde, value_serde = serdes
    return JoinStoreSpec(
        name=name,
        key_serde=key_serde,
        value_serde=value_serde,
        cached=False,
        storage=side.storage,
        retention_ms=side.window.size_ms + other.window.size_ms + other.window.grace_ms,
    )


def _key_serde(left: KnownStream, right: KnownStream, given: Serde | None, call: str) -> Serde:
    """Return the serde of both sides' keys; a side whose key changed is written anew, in any serde.

    :param given: serde given by the user; None if there is none.
    :param call: name of the DSL method, for messages.
    :raises TopologyError: the sides' keys have different serdes, or no serde is known.
    """
    check_serdes(call, key_serde=given)
    kept = [stream for stream in (left, right) if not stream.key_changed]
    known = [serde for stream in kept if (serde := stream.serdes.key) is not None]
    wanted = ([given] if given is not None else []) + known
    other = next((serde for serde in wanted if serde != wanted[0]), None)
    if other is not None:
        raise TopologyError(
            f"{call} at {call_site()} is to join by keys of {wanted[0]!r} and of {other!r}: equal keys lie "
            "in different partitions",
            fix="repartition one stream: select_key(selector) before the join, with a selector that gives "
            f"keys of {wanted[0]!r}, or of {other!r} for the other stream",
        )
    return wanted[0] if wanted else left.graph.serde("key", None, left.serdes, call)
