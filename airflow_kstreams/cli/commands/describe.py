"""Defines ``airflow-kstreams describe``: prints a topology as text, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from airflow_kstreams.cli.json_output import AsJson, print_json
from airflow_kstreams.cli.shared_options import ApplicationPath, FunctionName, load_topology
from airflow_kstreams.streams.errors import ConfigError, unwritable
from airflow_kstreams.streams.graph.components import parents
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from airflow_kstreams.streams.topology.topology import Topology


class TopologyFormat(StrEnum):
    """Format of the output."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"
    STREAM_TIME = "stream-time"


#: Format by the ending of the file to write.
_BY_ENDING = {
    "": TopologyFormat.TEXT,
    ".txt": TopologyFormat.TEXT,
    ".svg": TopologyFormat.SVG,
    ".mmd": TopologyFormat.MERMAID,
    ".mermaid": TopologyFormat.MERMAID,
}


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a topology.

    :param name: its name.
    :param kind: what it is.
    :param parents: names of the nodes whose records it gets.
    :param topics: topics that a source reads, or the topic that a sink writes.
    :param stores: stores that a processor uses.
    :param defined_at: file and line that defined it; null where they are not known.
    """

    name: str
    kind: Literal["source", "processor", "sink"]
    parents: Sequence[str]
    topics: Sequence[str]
    stores: Sequence[str]
    defined_at: str | None


class TopologyPart(msgspec.Struct, frozen=True, kw_only=True):
    """A subtopology.

    :param id: its number.
    :param nodes: its nodes, parents before children.
    """

    id: int
    nodes: Sequence[TopologyNode]


class TopologyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The topology of an application file.

    :param application_id: application by which internal topics are named; null for their logical names.
    :param subtopologies: its subtopologies by their numbers.
    """

    application_id: str | None
    subtopologies: Sequence[TopologyPart]


DOCUMENTS = {"describe": TopologyDocument}


def describe(
    application: ApplicationPath,
    output_format: Annotated[
        TopologyFormat | None,
        typer.Option("--format", help="Format of the output; by the file's ending, else text, if left out."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; stdout if left out.")
    ] = None,
    application_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Show internal topics by their names in Kafka."),
    ] = None,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Show the topology of an application file.

    The format stream-time says how far the end of a run brings stream time of each subtopology.
    """
    if as_json:
        if output_format or output:
            raise typer.BadParameter("goes without --format and --output", param_hint="--json")
        print_json(_document(load_topology(application, function), application_id))
        return
    wanted = output_format or _by_ending(output)
    topology = load_topology(application, function)
    renders: dict[TopologyFormat, Callable[..., str]] = {
        TopologyFormat.TEXT: partial(topology.describe, purposes=True),
        TopologyFormat.MERMAID: topology.to_mermaid,
        TopologyFormat.SVG: topology.to_svg,
        TopologyFormat.STREAM_TIME: topology.describe_stream_time,
    }
    text = renders[wanted](application_id=application_id)
    if output is None:
        typer.echo(text, nl=False)
        return
    _write(output, text)


def _document(topology: Topology, application_id: str | None) -> TopologyDocument:
    def shown(topic: str) -> str:
        return topic if application_id is None else topology.real_topic(topic, application_id)

    def entry(node: Node) -> TopologyNode:
        kind: Literal["source", "processor", "sink"]
        topics: tuple[str, ...] = ()
        match node:
            case SourceNode():
                kind, topics = "source", node.topics
            case ProcessorNode():
                kind = "processor"
            case SinkNode():
                kind, topics = "sink", (node.topic,)
        return TopologyNode(
            name=node.name,
            kind=kind,
            parents=parents(node),
            topics=[*map(shown, topics)],
            stores=node.stores if isinstance(node, ProcessorNode) else (),
            defined_at=None if node.site is None else str(node.site),
        )

    return TopologyDocument(
        application_id=application_id,
        subtopologies=[
            TopologyPart(id=sub.id, nodes=[*map(entry, sub.nodes)]) for sub in topology.subtopologies()
        ],
    )


def _by_ending(output: Path | None) -> TopologyFormat:
    ending = output.suffix.lower() if output else ""
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    raise ConfigError(
        f"--output is {str(output)!r}, and no topology is written as {ending}",
        fix=f"name a file with one of {', '.join(filter(None, _BY_ENDING))}, or give the format: --format",
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None
