"""Adds the node that joins a stream with a table; its operator stands in
:mod:`airflow_kstreams.streams.kstream.operators.tables.table_join`.

Invariant: equal keys of both sides lie in one task. That holds if both topics have equal partition counts and
were partitioned by the same bytes: the stream's keys have the table's key serde, or the stream goes through a
repartition topic first, written in that serde.
"""

from __future__ import annotations

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import KEY, call_site, declared_beside
from airflow_kstreams.streams.kstream.arguments import check_source_of_tables
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable
from airflow_kstreams.streams.kstream.lasting_names import lasting_name
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.kstream.operators.tables.table_join import TableJoin, ValueJoiner
from airflow_kstreams.streams.serde.base import Serde


def join_table(
    call: str, stream: KnownStream, table: KnownTable, joiner: ValueJoiner, name: str | None
) -> KnownStream:
    """Add the join, after a repartition topic if the key changed, and return the stream of its results.

    :param call: name of the DSL method, ``join`` or ``left_join``.
    :param name: name of the node, and in the repartition topic's name; None for a numbered node and a topic
        named after the topics that the stream reads, which joins of one stream share.
    :raises TopologyError: the joiner is no function, the table is windowed, the key serdes differ, or the
        stream must be repartitioned and a value serde is missing.
    """
    with_key = KEY in declared_beside(call, (KEY,), joiner=joiner)
    graph, parent = stream.graph, stream.node
    if table.windowed or any(spec.type not in ("key_value", "versioned") for spec in table.kept_in):
        raise TopologyError(
            f"{call} at {call_site()} joins a stream with the windowed table {table.kept_in[0].name!r}, "
            "whose keys are windowed",
            fix="send table.to_stream() to a topic of yours and join with builder.table(topic)",
        )
    if not table.repeatable:
        check_source_of_tables(table, call)
    key_serde = graph.serde("key", None, table.serdes, call)
    redated = stream.redated and not stream.key_changed
    if stream.key_changed:
        value_serde = graph.serde("value", None, stream.serdes, call)
        drop = DropNulls(keep_null_keys=True)
        topic = name or lasting_name(stream.reads)
        parent = graph.repartition(topic, parent, key_serde, value_serde, drop=drop)
    elif stream.serdes.key != key_serde:
        raise _other_keys(stream.serdes.key, table, call)
    operator = TableJoin(
        joiner=joiner,
        table=table.node,
        store=table.spec,
        left=call == "left_join",
        versioned=table.versioned,
        with_key=with_key,
    )
    kind = "KSTREAM-LEFTJOIN" if operator.left else "KSTREAM-JOIN"
    node = graph.operator(kind, operator, parent, table.stores, name=name)
    if operator.left:
        graph.without_key.append(node)
    known = Serdes(key=key_serde, value=None).with_new_value(call)
    # The joiner's result may hold the table's own object.
    return KnownStream(
        graph=graph, node=node, serdes=known, reads=stream.reads, table_values=True, redated=redated
    )


def _other_keys(key_serde: Serde | None, table: KnownTable, call: str) -> TopologyError:
    return TopologyError(
        f"{call} at {call_site()} joins a stream with keys of {key_serde!r} and the table "
        f"{table.kept_in[0].name!r} with keys of {table.serdes.key!r}: equal keys lie in different "
        "partitions",
        fix="repartition the stream: select_key(selector) before the join, with a selector that gives keys "
        f"of {table.serdes.key!r}",
    )
