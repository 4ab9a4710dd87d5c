"""What commands that look at an application file have in common."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from airflow_kstreams.streams.topology.topology import Topology

APPLICATION = Annotated[
    Path,
    typer.Argument(
        metavar="APP.py", help="The application file.", exists=True, dir_okay=False, show_default=False
    ),
]
FUNCTION = Annotated[
    str, typer.Option("--function", metavar="NAME", help="The function that returns the topology.")
]


def load_topology(path: Path, function: str) -> Topology:
    """Build the topology that an application file defines.

    What the file prints goes to stderr, apart from the command's own output.

    :raises TopologyError: the file does not run, or defines no topology.
    """
    from airflow_kstreams.streams.topology.application_file import ApplicationFile

    with contextlib.redirect_stdout(sys.stderr):
        return dataclasses.replace(ApplicationFile.read(path), function=function).topology()
