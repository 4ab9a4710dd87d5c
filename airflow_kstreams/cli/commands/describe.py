"""Defines ``airflow-kstreams describe``: prints a topology as text, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import ApplicationPath, AsJson, FunctionName, load_topology


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
        from airflow_kstreams.cli.documents.topology_document import topology_document
        from airflow_kstreams.cli.json_output import print_json

        if output_format or output:
            raise typer.BadParameter("goes without --format and --output", param_hint="--json")
        print_json(topology_document(load_topology(application, function), application_id))
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


def _by_ending(output: Path | None) -> TopologyFormat:
    from airflow_kstreams.streams.errors import ConfigError

    ending = output.suffix.lower() if output else ""
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    raise ConfigError(
        f"--output is {str(output)!r}, and no topology is written as {ending}",
        fix=f"name a file with one of {', '.join(filter(None, _BY_ENDING))}, or give the format: --format",
    )


def _write(path: Path, text: str) -> None:
    from airflow_kstreams.streams.errors import unwritable

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None
