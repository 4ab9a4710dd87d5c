"""The join of a stream with a table.

Rule: each record of the stream meets the table's entry of its key as it is at that moment; changes of the
table give no result. A task chooses records by timestamp, and the topic whose name sorts first among equal
ones, so a record meets the table as of its own time, however the records were fetched. A cached table is read
through its cache.

Invariant: equal keys of both sides lie in one task. That holds if both topics have equal partition counts and
were partitioned by the same bytes: the stream's keys have the table's key serde, or the stream goes through a
repartition topic first, written in that serde.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.arguments import check_functions
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable
from airflow_kstreams.streams.serde.base import Serde

#: ``joiner(stream_value, table_value)`` gives the result's value; in a left join the table's may be None.
ValueJoiner = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin:
    """Joins each record with the table's value of its key, as Kafka Streams does.

    A record without value is dropped and counted, and one without key in an inner join; a left join gives it
    no table value.

    :param joiner: makes the result's value.
    :param store: of the table.
    :param left: whether a record without a table value is joined with None rather than left out.
    """

    joiner: ValueJoiner
    store: StoreSpec
    left: bool

    @property
    def type(self) -> str:
        """Kind of node."""
        return "left_join_table" if self.left else "join_table"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        joiner = self.joiner
        left = self.left
        serialize_key = self.store.key_serde.serialize
        get_entry = context.store(self.store.name).get_entry
        count_dropped = context.count_dropped

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if value is None or (key is None and not left):
                count_dropped()
                return
            entry = None if key is None else get_entry(serialize_key(key))
            if entry is not None:
                forward(key, joiner(value, entry[0]))
            elif left:
                forward(key, joiner(value, None))

        return run


def join_table(
    call: str, stream: KnownStream, table: KnownTable, joiner: ValueJoiner, name: str | None
) -> KnownStream:
    """Add the join, after a repartition topic if the key changed, and return the stream of its results.

    :param call: the DSL method, ``join`` or ``left_join``.
    :param name: of the repartition topic, None for the node's.
    :raises TopologyError: the joiner is no function, the table is windowed, the key serdes differ, or the
        stream must be repartitioned and a value serde is missing.
    """
    check_functions(joiner, call=call)
    graph, spec, parent = stream.graph, table.spec, stream.node
    if spec.type != "key_value":
        raise TopologyError(
            f"{call} at {call_site()} joins a stream with the windowed table {spec.name!r}, whose keys are "
            "windowed",
            fix="send table.to_stream() to a topic of yours and join with builder.table(topic)",
        )
    if stream.key_changed:
        value_serde = graph.serde("value", None, stream.serdes, call)
        name = name or parent
        parent = graph.repartition(name, parent, spec.key_serde, value_serde, keep_null_keys=True)
    else:
        _check_keys(stream.serdes.key, spec, call)
    operator = TableJoin(joiner=joiner, store=spec, left=call == "left_join")
    kind = "KSTREAM-LEFTJOIN" if operator.left else "KSTREAM-JOIN"
    node = graph.operator(kind, operator, parent, (spec.name,))
    known = Serdes(key=spec.key_serde, value=None).with_new_value(call)
    # What the joiner returns may hold the table's own object.
    return KnownStream(graph=graph, node=node, serdes=known, table_values=True)


def _check_keys(key_serde: Serde | None, spec: StoreSpec, call: str) -> None:
    if key_serde != spec.key_serde:
        raise TopologyError(
            f"{call} at {call_site()} joins a stream with keys of {key_serde!r} and the table {spec.name!r} "
            f"with keys of {spec.key_serde!r}: equal keys lie in different partitions",
            fix="repartition the stream: select_key(lambda k, v: k) before the join",
        )
