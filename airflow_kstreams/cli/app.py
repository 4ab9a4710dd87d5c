"""Runs the commands and turns their errors into exit codes.

Exit codes: 0 done; 1 an error of this package, printed in one line on stderr; 2 the command line itself is
wrong; 130 interrupted. Any other error is a defect and keeps its traceback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from airflow_kstreams.streams.errors import KStreamsError

#: The commands in the order of the help text, with their summaries; each is the function, or the group of
#: commands, of its module that has the same name. A command is imported when it is asked for, so that a help
#: text loads neither engine nor client.
COMMANDS = {
    "acls": "List the ACLs that the Kafka user of an application needs.",
    "describe": "Show the topology of an application file.",
    "expand": "Grow a topic, or the tasks that keep its state.",
    "explore": "Run a sample of real input and show the records at the nodes.",
    "pack": "Write an archive of this package for Spark's executors.",
    "prepare-spark": "Keep Spark's classes, so that drivers start sooner.",
    "dead-letters": "List dead letters, show one, or bring some of them back.",
    "doctor": "Find what may go wrong, before it does.",
    "reset": "Reset an application, so that it processes its input again.",
    "state": "Show the entries of a store, or of one key.",
    "status": "Show an application's unfinished run, offsets and finished runs.",
}

FAILED = 1
INTERRUPTED = 130


class _Commands(TyperGroup):
    """Imports the command that is asked for, and turns its errors into exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        command = getattr(import_module(f"airflow_kstreams.cli.commands.{module}"), module)
        one = typer.Typer(rich_markup_mode=None)
        if isinstance(command, typer.Typer):
            one.add_typer(command, name=cmd_name)
        else:
            one.command(cmd_name)(command)
        return get_group(one).get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Imported here: a help text does not need the engine.
            from airflow_kstreams.streams.errors import KStreamsError

            if not isinstance(error, KStreamsError):
                raise
            typer.echo(one_line(error), err=True)
            raise typer.Exit(FAILED) from None


def one_line(error: KStreamsError) -> str:
    """Return an error's cause and remedy in one line."""
    text = f"error: {error.cause}"
    if error.fix:
        text += f" -- what to do: {error.fix}"
    return text


app = typer.Typer(
    name="airflow-kstreams",
    cls=_Commands,
    no_args_is_help=True,
    # Importing Rich takes longer than all other imports.
    rich_markup_mode=None,
    # Python's own traceback: complete, and without the values of variables.
    pretty_exceptions_enable=False,
)


@app.callback()
def _help() -> None:
    """Show topologies, explore them, and look after the applications that run them."""


def main() -> None:
    """Run the command line of this process."""
    app()
