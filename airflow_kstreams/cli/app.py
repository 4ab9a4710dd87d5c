"""Runs the commands and turns their errors into exit codes.

Exit codes: 0 done; 1 an error of this package, printed in one line on stderr; 2 the command line itself is
wrong; 130 interrupted. Any other error is a defect and keeps its traceback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from airflow_kstreams.streams.errors import KStreamsError

#: The commands in the order of the help text; each is the function, or the group of commands, of its module
#: that has the same name.
COMMANDS = (
    "acls",
    "describe",
    "expand",
    "explore",
    "pack",
    "prepare_spark",
    "dead_letters",
    "doctor",
    "replay",
    "reset",
    "state",
    "status",
)
#: Answer, and are not listed: they have another name.
HIDDEN = ("replay",)

FAILED = 1
INTERRUPTED = 130


class _Commands(TyperGroup):
    """Turns errors of a command into exit codes."""

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
    return " ".join(text.split())


app = typer.Typer(
    name="airflow-kstreams",
    help="Show topologies, explore them, and look after the applications that run them.",
    cls=_Commands,
    no_args_is_help=True,
    # Importing Rich takes longer than all other imports.
    rich_markup_mode=None,
    # Python's own traceback: complete, and without the values of variables.
    pretty_exceptions_enable=False,
)
for _name in COMMANDS:
    _command = getattr(import_module(f"airflow_kstreams.cli.commands.{_name}"), _name)
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name.replace("_", "-"))
    else:
        app.command(hidden=_name in HIDDEN)(_command)


def main() -> None:
    """Run the command line of this process."""
    app()
