"""``airflow-kstreams describe``: a topology as text, Mermaid or SVG."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.application import APPLICATION, FUNCTION, load_topology


class Format(StrEnum):
    """What to print."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


#: By the ending of the file to write.
_BY_ENDING = {".svg": Format.SVG, ".mmd": Format.MERMAID, ".mermaid": Format.MERMAID}


def describe(
    application: APPLICATION,
    output_format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="By the output file's ending, or text, unless given.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there, not to stdout.", show_default=False)
    ] = None,
    application_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Show internal topics by their names in Kafka.", show_default=False),
    ] = None,
    function: FUNCTION = "topology",
) -> None:
    """Show the topology of an application file.

    SVG needs the extra "draw": pip install 'airflow-kstreams[draw]'.
    """
    topology = load_topology(application, function)
    wanted = output_format or (_BY_ENDING.get(output.suffix, Format.TEXT) if output else Format.TEXT)
    render = {
        Format.TEXT: topology.describe,
        Format.MERMAID: topology.to_mermaid,
        Format.SVG: topology.to_svg,
    }[wanted]
    text = render(application_id=application_id)
    if output is None:
        typer.echo(text, nl=False)
        return
    _write(output, text)


def _write(path: Path, text: str) -> None:
    from airflow_kstreams.streams.errors import ConfigError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            fix="name a file in a folder that you may write",
        ) from None
