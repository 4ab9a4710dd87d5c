"""Holds the parts that several commands share: options and arguments, the topology and settings of an
application, the cluster to connect to, and the printing of tables.

A command names options as the types of its parameters, and gives the default itself:
``bootstrap_server: BootstrapServer = None``.

The broker and the settings to log in come from options, or from the file that the environment names for Spark
drivers too. Only files hold secrets, which are never printed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE
from airflow_kstreams.streams.printable import printable
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.topology import Topology

if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster

_PIPED_COLUMNS = 160


def show(tables: Iterable[Table], *, notes: Iterable[str] = ()) -> None:
    """Print tables, an empty line after each, then notes, a line each."""
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # A pipe or a file has no width to fit.
        console = Console(width=_PIPED_COLUMNS)
    for table in tables:
        console.print(table)
        console.print()
    for note in notes:
        console.print(printable(note), markup=False, highlight=False, soft_wrap=not console.is_terminal)


def say(line: str, *, err: bool = False) -> None:
    """Print one line as it is, of any length.

    :param err: whether it goes to stderr.
    """
    typer.echo(printable(line), err=err)


def load_topology(path: Path, function: str) -> Topology:
    """Build the topology that an application file defines.

    Output of the file goes to stderr, apart from the command's own.

    :raises TopologyError: the file does not run, or defines no topology.
    """
    with contextlib.redirect_stdout(sys.stderr):
        return dataclasses.replace(ApplicationFile.read(path), function=function).topology()


def application_settings(application_id: str, pairs: Sequence[str] | None) -> ApplicationSettings:
    """Return checked settings.

    :param pairs: settings as ``NAME=VALUE``.
    :raises BadParameter: a pair has another form.
    :raises ConfigError: a setting is unknown, or its value does not fit.
    """
    return ApplicationSettings.parse(application_id, dict(named_values(pairs, "--setting", "NAME=VALUE")))


def named_values(pairs: Sequence[str] | None, option: str, form: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each pair that a repeatable option was given.

    :param option: name of the option, for messages.
    :param form: form of a pair as the option's help shows it: ``NAME=VALUE``.
    :raises BadParameter: a pair has another form.
    """
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not {form}", param_hint=option)
        yield name, value


def client_config(bootstrap: str | None, file: Path | None) -> dict[str, object] | None:
    """Return the client settings of the options or the environment, None if neither gives any.

    :raises ConfigError: the file cannot be read or understood.
    """
    named = os.environ.get(CLIENT_CONFIG_FILE)
    path = file or (Path(named) if named else None)
    config: dict[str, object] = dict(read_client_config(path)) if path is not None else {}
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    return config or None


def cluster(
    bootstrap: str | None,
    file: Path | None,
    settings: ApplicationSettings | None = None,
    *,
    look_ms: int | None = None,
    in_child: bool = True,
) -> KafkaCluster:
    """Return the cluster that options or environment name, without contacting it.

    :param settings: settings of the application, see ``KafkaCluster``.
    :param look_ms: largest time of all requests together, in milliseconds, see ``KafkaCluster``.
    :param in_child: False for a command that copies records, see ``KafkaCluster``.
    :raises ConfigError: a file cannot be read, as for :func:`client_config`, or no broker is named.
    """
    from airflow_kstreams.kafka.cluster import KafkaCluster

    return KafkaCluster(
        client_config(bootstrap, file) or {}, settings=settings, look_ms=look_ms, in_child=in_child
    )


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
