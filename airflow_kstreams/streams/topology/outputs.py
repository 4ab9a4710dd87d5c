"""Lets a topology write other topics than the ones it names: the setting ``output.topics``.

A backfill runs the application file of the live application, and must not write into its topics unless the
user allows it for each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import SinkNode
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology


def with_outputs(topology: Topology, settings: ApplicationSettings) -> Topology:
    """Return the topology with the output topics of the settings.

    :raises TopologyError: ``output.topics`` lacks a topic that is written, or names one that is read; or the
        run keeps to a data interval and names no outputs, or shares a topic that it writes and reads with
        other runs.
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
    clashing = sorted({other for other in outputs.values() if other in read})
    if clashing:
        raise TopologyError(
            f"output.topics of application {settings.application_id!r} names {clashing[0]!r}, which the "
            "topology reads",
            fix="name a topic of its own",
        )
    return dataclasses.replace(
        topology,
        nodes=tuple(
            dataclasses.replace(node, topic=outputs[node.topic])
            if isinstance(node, SinkNode) and node.topic in outputs
            else node
            for node in topology.nodes
        ),
        written_as=outputs,
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
