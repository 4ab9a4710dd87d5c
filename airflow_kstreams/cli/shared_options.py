"""Defines the options and arguments that several commands take.

A command names them as the types of its parameters, and gives the default itself:
``bootstrap_server: BootstrapServer = None``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ApplicationPath = Annotated[
    Path,
    typer.Argument(metavar="APP.py", help="The application file.", exists=True, dir_okay=False),
]
FunctionName = Annotated[
    str, typer.Option("--function", metavar="NAME", help="The function that returns the topology.")
]
ApplicationId = Annotated[str, typer.Option("--application-id", metavar="ID", help="The application.")]
ApplicationSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="NAME=VALUE", help="An application setting, as the runs have it; repeatable."
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="Kafka's address."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        "--command-config",
        metavar="FILE",
        help="Properties file with client settings, as for Kafka's own tools (or JSON).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
