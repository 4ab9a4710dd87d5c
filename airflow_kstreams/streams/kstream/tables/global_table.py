"""Defines the table of a topic that every task sees whole, and adds the node that joins a stream with it. Its
operator stands in :mod:`airflow_kstreams.streams.kstream.operators.tables.table_join`.

No partition counts have to fit, and no stream is repartitioned: every task has every entry.
"""

from __future__ import annotations

from typing import Generic

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef
from airflow_kstreams.streams.hints.function_checks import KEY, call_site, check_functions, declared_beside
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.graph import StreamGraph
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.operators.tables.table_join import (
    GlobalKeySelector,
    GlobalTableJoin,
    ValueJoiner,
)
from airflow_kstreams.streams.type_variables import K, V


@answers_java_names
class GlobalKTable(Generic[K, V]):
    """The newest value of each key of a whole topic, as it was when the run began; made by
    :meth:`KStreamBuilder.global_table`. Streams are joined with it: ``stream.join(table, joiner, key=...)``.

    :param graph: graph of the topology that is being built.
    :param definition: the table's topic, serdes and storage.
    """

    def __init__(self, graph: StreamGraph, definition: GlobalTableDef) -> None:
        self._graph = graph
        self._definition = definition

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._definition.topic


def key_in_vain_error(call: str) -> TopologyError:
    """Describe a join that is given ``key=`` and joins no global table.

    :param call: name of the DSL method.
    """
    return TopologyError(
        f"{call} at {call_site()} is given key= for a join on the records' own keys",
        fix="select_key(...) ahead of the join, or builder.global_table(topic)",
    )


def join_global_table(
    call: str,
    stream: KnownStream,
    table: GlobalKTable,
    joiner: ValueJoiner,
    selector: GlobalKeySelector | None,
    name: str | None,
) -> KnownStream:
    """Add the join, and return the stream of its results.

    :param call: name of the DSL method, ``join`` or ``left_join``.
    :param selector: function given by the user that gives the table's key of a record; None is refused.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: joiner or selector is no function, or the table is of another builder.
    """
    if selector is None:
        raise TopologyError(
            f"{call} at {call_site()} joins the global table of {table._definition.topic!r} and does not say "
            "which entry a record names",
            fix="give key=lambda key, value: ..., e.g. key=lambda key, value: key",
        )
    with_key = KEY in declared_beside(call, (KEY,), joiner=joiner)
    check_functions(call, key=selector)
    if table._graph is not stream.graph:
        raise TopologyError(
            f"{call} at {call_site()} is given a GlobalKTable of another builder",
            fix="make both with one builder",
        )
    operator = GlobalTableJoin(
        joiner=joiner,
        selector=selector,
        global_table=table._definition,
        left=call == "left_join",
        with_key=with_key,
    )
    kind = "KSTREAM-LEFTJOIN" if operator.left else "KSTREAM-JOIN"
    joined = stream.behind(kind, operator, name)
    if operator.left:
        stream.graph.without_key.append(joined.node)
    return joined.with_new_value(call)
