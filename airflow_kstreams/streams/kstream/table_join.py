"""How a stream is joined with a table. What the join does is written in
:mod:`airflow_kstreams.streams.kstream.operators.table_join`.

Invariant: equal keys of both sides lie in one task. That holds if both topics have equal partition counts and
were partitioned by the same bytes: the stream's keys have the table's key serde, or the stream goes through a
repartition topic first, written in that serde.
"""

from __future__ import annotations

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.function_checks import check_functions
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.kstream.operators.table_join import TableJoin, ValueJoiner
from airflow_kstreams.streams.serde.base import Serde


def join_table(
    call: str, stream: KnownStream, table: KnownTable, joiner: ValueJoiner, name: str | None
) -> KnownStream:
    """Add the join, after a repartition topic if the key changed, and return the stream of its results.

    :param call: the DSL method, ``join`` or ``left_join``.
    :param name: of the repartition topic, None for the node's.
    :raises TopologyError: the joiner is no function, the table is windowed, the key serdes differ, or the
        stream must be repartitioned and a value serde is missing.
    """
    check_functions(call, joiner=joiner)
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
        drop = DropNulls(keep_null_keys=True)
        parent = graph.repartition(name, parent, spec.key_serde, value_serde, drop=drop)
    else:
        _check_keys(stream.serdes.key, spec, call)
    operator = TableJoin(joiner=joiner, store=spec, left=call == "left_join")
    kind = "KSTREAM-LEFTJOIN" if operator.left else "KSTREAM-JOIN"
    node = graph.operator(kind, operator, parent, (spec.name,))
    if operator.left:
        graph.without_key.append(node)
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
