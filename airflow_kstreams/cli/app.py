"""Runs the commands and turns their errors into exit codes.

Exit codes: 0 done; 1 an error of this package; 2 the command line itself is wrong; 130 interrupted. An error
is one line on stderr, with ``--json`` one JSON object. Any other error is a defect and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from airflow_kstreams.streams.errors import KStreamsError

_PROGRAM = "airflow-kstreams"
Group = Literal["Look", "Run", "Repair", "Operate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the help says of a command before it is imported.

    :param group: heading of the help text under which it stands.
    :param summary: one sentence.
    :param page: the page of ``docs/`` that describes its use.
    :param examples: command lines without the program's name, one for each command of a group of commands.
    :param folder: the folder of its module below ``commands``, with a dot at its end; none by default.
    """

    group: Group
    summary: str
    page: str
    examples: tuple[str, ...]
    folder: str = ""


_OF_APPLICATION = "--application-id flight-delays"
#: The commands in the order of the help text; each is the function, or the group of commands, of its module
#: that has the same name. A command is imported when it is asked for, so that a help text loads neither
#: engine nor client.
COMMANDS: dict[str, Command] = {
    "status": Command(
        group="Look",
        summary="List applications, or show one: unfinished run, offsets, runs.",
        page="explanation/seeing.md",
        examples=(f"status {_OF_APPLICATION}", "status --all"),
    ),
    "runs": Command(
        group="Look",
        summary="Show an application's runs, and what is odd about them.",
        page="explanation/seeing.md",
        examples=(
            f"runs {_OF_APPLICATION} --since 2026-01-01",
            f"runs {_OF_APPLICATION} --compare scheduled__2026-01-01 scheduled__2026-01-02",
            f"runs {_OF_APPLICATION} --html scheduled__2026-01-01 --output run.html",
        ),
    ),
    "lag": Command(
        group="Look",
        summary="Show the offsets that wait for the next run.",
        page="explanation/seeing.md",
        examples=(f"lag {_OF_APPLICATION}",),
    ),
    "plan": Command(
        group="Look",
        summary="Show the run that would begin now, and what would refuse it.",
        page="explanation/seeing.md",
        examples=(f"plan {_OF_APPLICATION}",),
    ),
    "state": Command(
        group="Look",
        summary="Show the entries of a store, or of one key.",
        page="explanation/state.md",
        examples=(f"state spark_apps/flight_delays.py delays AA {_OF_APPLICATION}",),
    ),
    "describe": Command(
        group="Look",
        summary="Show the topology of an application file.",
        page="explanation/seeing.md",
        examples=("describe spark_apps/flight_delays.py --output flight_delays.svg",),
    ),
    "explore": Command(
        group="Look",
        summary="Run a sample of real input and show the records at the nodes.",
        page="explanation/seeing.md",
        examples=("explore spark_apps/flight_delays.py --last 100 --sample flights.sample",),
    ),
    "init": Command(
        group="Run",
        summary="Write a first project: application, test, DAG, connections.",
        page="reference/installing.md",
        examples=("init shop --example orders",),
        folder="first_steps.",
    ),
    "broker": Command(
        group="Run",
        summary="Start or stop one Kafka broker on this machine, to try things out.",
        page="reference/installing.md",
        examples=("broker start --port 9092", "broker stop --delete"),
        folder="first_steps.",
    ),
    "publish": Command(
        group="Run",
        summary="Publish the records of a file to a topic.",
        page="reference/installing.md",
        examples=("publish orders records.jsonl --key order --time at",),
        folder="first_steps.",
    ),
    "run": Command(
        group="Run",
        summary="Run an application by hand, without Airflow.",
        page="reference/installing.md",
        examples=("run spark_apps/flight_delays.py --application-id flight-delays",),
    ),
    "dead-letters": Command(
        group="Repair",
        summary="List dead letters, show one, or bring some of them back.",
        page="explanation/time-and-errors.md",
        examples=(
            f"dead-letters list {_OF_APPLICATION}",
            f"dead-letters show flights-0@17 {_OF_APPLICATION}",
            f"dead-letters replay {_OF_APPLICATION} --where node=parse --dry-run",
        ),
    ),
    "reset": Command(
        group="Repair",
        summary="Reset an application, so that it processes its input again.",
        page="explanation/reset.md",
        examples=(f"reset {_OF_APPLICATION} --input-topics flights --dry-run",),
    ),
    "doctor": Command(
        group="Operate",
        summary="Find what may go wrong, before it does.",
        page="explanation/seeing.md",
        examples=(f"doctor spark_apps/flight_delays.py {_OF_APPLICATION}",),
    ),
    "topics": Command(
        group="Operate",
        summary="Create topics, change their settings, or delete them.",
        page="reference/kafka-tools.md",
        examples=(
            "topics create flights weather --partitions 4",
            "topics set flights --config retention.ms=-1",
            "topics delete flights --dry-run",
        ),
    ),
    "acls": Command(
        group="Operate",
        summary="List the ACLs that the Kafka user of an application needs.",
        page="explanation/security.md",
        examples=(f"acls spark_apps/flight_delays.py {_OF_APPLICATION} --principal User:flights",),
    ),
    "tables": Command(
        group="Operate",
        summary="Look after the Iceberg and Delta tables of an application.",
        page="explanation/seeing.md",
        examples=(
            f"tables spark_apps/flight_delays.py list {_OF_APPLICATION} --tables-config tables.json",
            f"tables spark_apps/flight_delays.py check {_OF_APPLICATION} --tables-config tables.json",
        ),
    ),
    "expand": Command(
        group="Operate",
        summary="Grow a topic, or the tasks that keep its state.",
        page="explanation/growing.md",
        examples=(
            f"expand partitions flights --to 8 {_OF_APPLICATION} --dry-run",
            f"expand processors --to 8 {_OF_APPLICATION} --dry-run",
            f"expand abort {_OF_APPLICATION} --dry-run",
        ),
    ),
    "pack": Command(
        group="Operate",
        summary="Write an archive of this package for Spark's executors.",
        page="reference/installing.md",
        examples=("pack --output kstreams.tar.gz --extras rocksdb",),
        folder="spark_setup.",
    ),
    "prepare-spark": Command(
        group="Operate",
        summary="Keep Spark's classes, so that drivers start sooner.",
        page="reference/installing.md",
        examples=("prepare-spark",),
        folder="spark_setup.",
    ),
}


def command_module(name: str) -> ModuleType:
    """Import the module of a command."""
    return import_module(f"airflow_kstreams.cli.commands.{COMMANDS[name].folder}{name.replace('-', '_')}")


FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
#: What a wrong command line raises; Typer names only its subclass.
_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """Imports the command that is asked for, and turns its errors into exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(command_module(cmd_name), cmd_name.replace("-", "_"))
        one = typer.Typer(rich_markup_mode=None)
        if isinstance(command, typer.Typer):
            one.add_typer(command, name=cmd_name)
        else:
            one.command(cmd_name)(command)
        found = get_group(one).get_command(ctx, cmd_name)
        _add_epilog(found, cmd_name, COMMANDS[cmd_name])
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Typer suggests commands that it has imported.
        self.commands: Any = dict.fromkeys(COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for group in dict.fromkeys(command.group for command in COMMANDS.values()):
            rows = [
                (name.ljust(width), command.summary)
                for name, command in COMMANDS.items()
                if command.group == group
            ]
            with formatter.section(group):
                formatter.write_dl(rows)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *given: Any, **named: Any
    ) -> Any:
        arguments = [*(sys.argv[1:] if args is None else args)]
        self._as_json = "--json" in arguments
        return super().main(arguments, _PROGRAM, *given, **named)

    def make_context(self, *given: Any, **named: Any) -> Any:
        try:
            return super().make_context(*given, **named)
        except _UsageError as error:
            self._refuse_usage(error)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:  # a help text ends by it, too
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except _UsageError as error:
            self._refuse_usage(error)
        except Exception as error:
            # Imported here: a help text does not need the engine.
            from airflow_kstreams.streams.errors import KStreamsError

            if not isinstance(error, KStreamsError):
                raise
            self._say(error, FAILED)
            raise typer.Exit(FAILED) from None

    def _refuse_usage(self, error: Any) -> None:
        """End the command because of a wrong command line.

        :raises Exit: always; but a group of commands that is called without any prints its help.
        """
        from airflow_kstreams.streams.errors import ConfigError

        if type(error).__name__ == "NoArgsIsHelpError":
            raise error
        path = error.ctx.command_path if error.ctx is not None else _PROGRAM
        said = ConfigError(error.format_message(), fix=f"see {path} --help")
        self._say(said, WRONG_USAGE, name="UsageError")
        raise typer.Exit(WRONG_USAGE) from None

    def _say(self, error: KStreamsError, exit_code: int, *, name: str = "") -> None:
        if not self._as_json:
            typer.echo(one_line(error.cause if name else error.coded_cause, error.fix), err=True)
            return
        from airflow_kstreams.cli.json_output import ErrorDocument, error_line

        document = ErrorDocument(
            error=name or error.type_name,
            code="" if name else error.code,
            cause=error.cause,
            fix=error.fix,
            retriable=error.is_retriable,
            exit_code=exit_code,
        )
        typer.echo(error_line(document), err=True)


def one_line(cause: str, fix: str) -> str:
    """Return an error's cause and remedy in one line."""
    return f"error: {cause} -- what to do: {fix}" if fix else f"error: {cause}"


def _add_epilog(command: Any, words: str, listed: Command) -> None:
    """Add the example and the page to the help of a command, and of each command of a group."""
    for name, below in getattr(command, "commands", {}).items():
        _add_epilog(below, f"{words} {name}", listed)
    examples = [each for each in listed.examples if f"{each} ".startswith(f"{words} ")]
    # The sign keeps the lines as they are.
    lines = ["\b", "Example:" if len(examples) == 1 else "Examples:"]
    lines += [f"  {_PROGRAM} {each}" for each in examples]
    command.epilog = "\n".join([*lines, f"Page: docs/{listed.page}"])


app = typer.Typer(
    name=_PROGRAM,
    cls=_Commands,
    no_args_is_help=True,
    # Importing Rich takes longer than all other imports.
    rich_markup_mode=None,
    # Python's own traceback: complete, and without the values of variables.
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from airflow_kstreams import __version__

        typer.echo(f"{_PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _help(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Show topologies, explore them, and look after the applications that run them."""


def main() -> None:
    """Run the command line of this process."""
    app()
