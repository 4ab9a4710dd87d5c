"""Adds the nodes that join two tables; their operators stand in
:mod:`airflow_kstreams.streams.kstream.operators.tables.tables_join`.

Invariant: equal keys of both tables lie in one task: both have keys of one serde, and their topics have equal
partition counts, since they share a subtopology with stores.
"""

from __future__ import annotations

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.kstream.arguments import StoreArgument, check_source_of_tables, refuse_windows
from airflow_kstreams.streams.kstream.graph import check_name
from airflow_kstreams.streams.kstream.known import KnownTable, kept_table
from airflow_kstreams.streams.kstream.lasting_names import reads_together
from airflow_kstreams.streams.kstream.operators.tables.tables_join import (
    JoinedTable,
    TableSide,
    TablesJoin,
    TablesJoiner,
    TablesJoinKind,
    TablesJoinSide,
)
from airflow_kstreams.streams.kstream.tables.derived_tables import derived_spec
from airflow_kstreams.streams.serde.base import Serde


def join_tables(
    call: TablesJoinKind,
    left: KnownTable,
    right: KnownTable,
    joiner: TablesJoiner,
    store: StoreArgument,
    value_serde: Serde | None,
    name: str | None,
) -> KnownTable:
    """Add the join, and return the table of its results.

    :param call: name of the DSL method.
    :param joiner: function that makes a result of both values.
    :param store: name or spec of the result's store given by the user; None if it is kept in none.
    :param value_serde: serde of the results given by the user; None if there is none.
    :param name: name of the node that gives the results; the sides' nodes are called after it, as in Kafka
        Streams. None for numbered ones.
    :raises TopologyError: the tables' keys have different serdes or windows, a table's store has no
        changelog, the store for the result does not fit, or the name is taken.
    """
    graph = left.graph
    check_name(name)
    _check_keys(left, right, call)
    for table in (left, right):
        check_source_of_tables(table, call)
    left, right = left.latest(), right.latest()
    serdes = left.serdes.with_new_value(call).given(call, None, value_serde)
    spec = derived_spec(left, serdes, store, value_serde, call, (*left.reads, *right.reads))
    left_node = graph.node_name("KTABLE-JOINTHIS", name and f"{name}-join-this")
    right_node = graph.node_name("KTABLE-JOINOTHER", name and f"{name}-join-other")
    join = TablesJoin(
        kind=call,
        joiner=joiner,
        left=TableSide(table=left.node, node=left_node, needed=call != "outer_join"),
        right=TableSide(table=right.node, node=right_node, needed=call == "join"),
    )
    kept_in = tuple({spec.name: spec for spec in (*left.kept_in, *right.kept_in)}.values())
    # Each side reads the stores of both: a store without an edge to them would be another subtopology's.
    stores = tuple(spec.name for spec in kept_in)
    add_operator = graph.topology.add_operator
    add_operator(left_node, TablesJoinSide(join=join, is_left=True), left.node, stores=stores)
    add_operator(right_node, TablesJoinSide(join=join, is_left=False), right.node, stores=stores)
    node = graph.node_name("KTABLE-MERGE", name)
    add_operator(node, JoinedTable(join=join, store=spec), left_node, right_node)
    redated, reads = left.redated or right.redated, reads_together((left.reads, right.reads))
    if spec is not None:
        return kept_table(graph, node, spec, reads, redated=redated)
    return KnownTable(
        graph=graph, node=node, serdes=serdes, reads=reads, spec=None, kept_in=kept_in, redated=redated
    )


def _check_keys(left: KnownTable, right: KnownTable, call: str) -> None:
    for table in (left, right):
        refuse_windows(table, call)
    if left.serdes.key != right.serdes.key:
        raise TopologyError(
            f"{call} at {call_site()} joins tables with keys of {left.serdes.key!r} and of "
            f"{right.serdes.key!r}: equal keys lie in different partitions",
            fix="repartition one of them: to_stream().select_key(selector).to_table(key_serde=...), with a "
            "selector that gives keys of the other's serde",
        )
