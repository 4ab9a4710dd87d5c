"""Lets a topology write other topics and tables than the ones it names: the setting ``output.topics``.

A backfill runs the application file of the live application, and must not write into its topics and tables
unless the user allows it for each of them. A table is named ``table:<name>``, and in its place stands the
identifier or the URI of another one; its own, or the name alone, stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, TableOperator, tables_of
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.table_plan import is_table_label, table_label
from airflow_kstreams.streams.tables.other_place import TableElsewhere
from airflow_kstreams.streams.tables.table_rows import TableSpec
from airflow_kstreams.streams.topology.topology import Topology


def with_outputs(topology: Topology, settings: ApplicationSettings) -> Topology:
    """Return the topology with the output topics and tables of the settings.

    :raises TopologyError: ``output.topics`` lacks a topic or table that is written, or names a topic that is
        read, or a table that there is not; or the run keeps to a data interval and names no outputs, or
        shares a topic that it writes and reads with other runs.
    """
    if settings.outputs is None and not settings.keeps_to_interval:
        return topology
    outputs = settings.outputs or {}
    internal = {topic.name for topic in topology.internal_topics}
    subs = topology.subtopologies()
    read = {topic for sub in subs for topic in sub.source_topics} - internal
    written = {topic for sub in subs for topic in sub.sink_topics} - internal
    shared = sorted(written & read if settings.keeps_to_interval else outputs.keys() & read)
    if shared:
        raise TopologyError(
            f"topology of application {settings.application_id!r} reads topic {shared[0]!r}, which it also "
            "writes: under this name it is the live application's, and no other name can take its place",
            fix="let the engine create such topics, which are then each application's own: group_by, or a "
            "repartition topic, in place of through() and send_to() + stream()",
        )
    _refuse_missing(written, outputs, settings)
    _refuse_tables(tables_of(topology.nodes), outputs, settings)
    topics = {name: other for name, other in outputs.items() if not is_table_label(name)}
    clashing = sorted({other for other in topics.values() if other in read})
    if clashing:
        raise TopologyError(
            f"output.topics of application {settings.application_id!r} names {clashing[0]!r}, which the "
            "topology reads",
            fix="name a topic of its own",
        )
    return dataclasses.replace(
        topology,
        nodes=tuple(_written_elsewhere(node, outputs) for node in topology.nodes),
        written_as=topics,
    )


def _written_elsewhere(node: Node, outputs: Mapping[str, str]) -> Node:
    """Return a node that writes to what the settings name."""
    if isinstance(node, SinkNode) and node.topic in outputs:
        return dataclasses.replace(node, topic=outputs[node.topic])
    if isinstance(node, ProcessorNode) and isinstance(node.operator, TableOperator):
        table = node.operator.traits.table
        location = "" if table is None else outputs[table_label(table.name)]
        if table is not None and location != table_label(table.name):
            moved = node.operator.with_table(TableElsewhere(table, location))
            return dataclasses.replace(node, operator=moved)
    return node


def _refuse_tables(
    tables: Mapping[str, TableSpec], outputs: Mapping[str, str], settings: ApplicationSettings
) -> None:
    labels = {table_label(name) for name in tables}
    if missing := sorted(labels - outputs.keys()):
        name = missing[0].removeprefix(table_label(""))
        raise TopologyError(
            f"application {settings.application_id!r} writes to {', '.join(map(repr, missing))}, and no "
            "table is named to take its place",
            fix="name one for each, or its own identifier or URI if it is to be written: in a DAG "
            f"backfill_outputs={{{missing[0]!r}: '{name}_backfilled'}}, else by the setting "
            f"output.topics={missing[0]}={name}_backfilled",
        )
    if unknown := sorted(name for name in outputs.keys() - labels if is_table_label(name)):
        raise TopologyError(
            f"output.topics of application {settings.application_id!r} names {unknown[0]!r}, and the "
            f"topology writes to {', '.join(sorted(map(repr, labels))) or 'no table'}",
            fix="correct the name, or leave it out",
        )


def _refuse_missing(written: set[str], outputs: Mapping[str, str], settings: ApplicationSettings) -> None:
    missing = sorted(written - outputs.keys())
    if missing:
        raise TopologyError(
            f"application {settings.application_id!r} writes {', '.join(map(repr, missing))}, "
            "and no topic is named to take its place",
            fix="name one for each, or the same if it is to be written: in a DAG "
            f"backfill_outputs={{{missing[0]!r}: 'backfilled-{missing[0]}'}}, else by the setting "
            f"output.topics={missing[0]}=backfilled-{missing[0]}",
        )
