"""Holds the parts that several commands share: options and arguments, the topology and settings of an
application, the cluster to connect to, and the printing of tables.

A command names options as the types of its parameters, and gives the default itself:
``dry_run: DryRun = False``.
A command that connects has the decorator ``connecting`` and a parameter ``connection: Connection``.

The broker and the settings to log in come from options, or from the environment: an address, or the file that
it names for Spark drivers too. Only files and connections hold secrets, which are never printed.

Rule: a help text imports nothing of this package but the module of its command and this one. What a command
works with, it imports when it works.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from airflow_kstreams.explore.tables import Table
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.settings import ApplicationSettings
    from airflow_kstreams.streams.topology.topology import Topology
    from airflow_kstreams.tables.connections import TablesSettings

_PIPED_COLUMNS = 160
#: It leaves a part of 10 s to the start of the command and to its end.
CONNECT_MS = 8_000
_ADDRESS = "KSTREAMS_BOOTSTRAP_SERVERS"
_SERVERS = "bootstrap.servers"


def show(tables: Iterable[Table], *, notes: Iterable[str] = ()) -> None:
    """Print tables, an empty line after each, then notes, a line each."""
    from rich.console import Console

    from airflow_kstreams.streams.printable import printable

    console = Console(soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
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
    from airflow_kstreams.streams.printable import printable

    typer.echo(printable(line), err=err)


def load_topology(path: Path, function: str) -> Topology:
    """Build the topology that an application file defines.

    Output of the file goes to stderr, apart from the command's own.

    :raises TopologyError: the file does not run, or defines no topology.
    """
    from airflow_kstreams.streams.topology.application_file import ApplicationFile

    with contextlib.redirect_stdout(sys.stderr):
        return dataclasses.replace(ApplicationFile.read(path), function=function).topology()


def application_settings(application_id: str, pairs: Sequence[str] | None) -> ApplicationSettings:
    """Return checked settings.

    :param pairs: settings as ``NAME=VALUE``.
    :raises BadParameter: a pair has another form.
    :raises ConfigError: a setting is unknown, or its value does not fit.
    """
    from airflow_kstreams.streams.settings import ApplicationSettings

    return ApplicationSettings.parse(application_id, dict(named_values(pairs, "--setting", "NAME=VALUE")))


def utc_ms(moment: datetime) -> int:
    """Return a moment that was given without a time zone, in UTC, in epoch milliseconds."""
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A cluster as options and environment name it.

    Rule: an option comes before a file or a connection, and these before the environment.

    :param bootstrap_server: Kafka's address.
    :param config_file: file with client settings.
    :param airflow_conn: id of a connection of Airflow.
    """

    bootstrap_server: str | None = None
    config_file: Path | None = None
    airflow_conn: str | None = None

    def client_config(self) -> dict[str, object]:
        """Return the client settings, not yet checked; empty if neither options nor environment give any.
        Settings of tables that stand beside them in a file are left out, see :func:`tables_settings`.

        :raises ConfigError: a file or a connection cannot be read or understood, or both are given.
        """
        from airflow_kstreams.kafka.configuration.config_file import read_client_config
        from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE
        from airflow_kstreams.streams.errors import ConfigError
        from airflow_kstreams.tables.connections import parted

        if self.config_file is not None and self.airflow_conn is not None:
            raise ConfigError(
                "--config-file and --airflow-conn are two sources of client settings", fix="give one of them"
            )
        config: dict[str, object] = {}
        address = os.environ.get(_ADDRESS)
        if self.airflow_conn is not None:
            from airflow_kstreams.cli.airflow_connection import read_airflow_connection

            config |= read_airflow_connection(self.airflow_conn)
        elif self.config_file is not None:
            config |= parted(read_client_config(self.config_file))[0]
        elif named := os.environ.get(CLIENT_CONFIG_FILE):
            config |= parted(read_client_config(Path(named)))[0] | ({_SERVERS: address} if address else {})
        if address:
            config.setdefault(_SERVERS, address)
        if self.bootstrap_server is not None:
            config[_SERVERS] = self.bootstrap_server
        return config

    def cluster(
        self,
        settings: ApplicationSettings | None = None,
        *,
        look_ms: int | None = None,
        in_child: bool = True,
    ) -> KafkaCluster:
        """Return the cluster, without contacting it. A broker that does not answer the first request within
        ``CONNECT_MS`` is an error.

        :param settings: settings of the application, see ``KafkaCluster``.
        :param look_ms: largest time of all requests together, in milliseconds, see ``KafkaCluster``.
        :param in_child: False for a command that copies records, see ``KafkaCluster``.
        :raises ConfigError: as for :meth:`client_config`, or no broker is named.
        """
        from airflow_kstreams.kafka.cluster import KafkaCluster
        from airflow_kstreams.streams.errors import ConfigError

        config = self.client_config()
        if _SERVERS not in config:
            raise ConfigError(
                f"no Kafka cluster is named: neither options nor environment give {_SERVERS}",
                fix=f"give --bootstrap-server HOST:PORT, --config-file or --airflow-conn, or set {_ADDRESS}",
            )
        return KafkaCluster(
            config, settings=settings, look_ms=look_ms, connect_ms=CONNECT_MS, in_child=in_child
        )


_CONNECTION_OPTIONS: dict[str, Any] = {
    "bootstrap_server": Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "--bootstrap-servers",
            metavar="HOST:PORT",
            help=f"Kafka's address; {_ADDRESS} unless given.",
        ),
    ],
    "config_file": Annotated[
        Path | None,
        typer.Option(
            "--config-file",
            "--command-config",
            metavar="FILE",
            help="Properties file with client settings, as for Kafka's own tools (or JSON).",
        ),
    ],
    "airflow_conn": Annotated[
        str | None,
        typer.Option("--airflow-conn", metavar="ID", help="Connection of Airflow with the client settings."),
    ],
}


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection, which stand in the place of its parameter ``connection``.

    :param command: function of a command with a parameter ``connection``, of type :class:`Connection`.
    """

    @functools.wraps(command)
    def connected(**given: Any) -> None:
        options = {option: given.pop(option) for option in _CONNECTION_OPTIONS}
        command(connection=Connection(**options), **given)

    parameters: list[inspect.Parameter] = []
    # The annotations are text, which only the module of the command can evaluate.
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "connection":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
                for name, kind in _CONNECTION_OPTIONS.items()
            ]
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=keyword, annotation=hints[parameter.name]))
    connected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    connected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return connected


def tables_settings(file: Path | None) -> TablesSettings:
    """Return what is said about catalogues and storages of tables; empty if neither option nor environment
    say anything.

    :param file: the file that the option ``--tables-config`` names; without it they come from the file that
        the environment names for drivers, where they may stand beside the client settings.
    :raises ConfigError: a file cannot be read or understood, or a name in it is unknown.
    """
    from airflow_kstreams.kafka.configuration.config_file import read_client_config
    from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE
    from airflow_kstreams.tables.connections import TablesSettings, parted

    if file is not None:
        return TablesSettings.from_file(file)
    named = os.environ.get(CLIENT_CONFIG_FILE)
    return TablesSettings({}) if named is None else parted(read_client_config(Path(named)))[1]


ApplicationPath = Annotated[
    Path,
    typer.Argument(metavar="APP.py", help="The application file.", exists=True, dir_okay=False),
]
FunctionName = Annotated[
    str, typer.Option("--function", metavar="NAME", help="The function that returns the topology.")
]
ApplicationId = Annotated[
    str,
    typer.Option("--application-id", metavar="ID", envvar="KSTREAMS_APPLICATION_ID", help="The application."),
]
ApplicationSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="NAME=VALUE", help="An application setting, as the runs have it; repeatable."
    ),
]
TablesConfig = Annotated[
    Path | None,
    typer.Option(
        "--tables-config",
        metavar="FILE",
        help="JSON file that says where Iceberg and Delta tables are: names iceberg.* and delta.*.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document in place of tables and text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
