"""The commands, and how they end.

Exit codes: 0 done; 1 an error of this package, said in one line on stderr; 2 the command line itself is
wrong; 130 interrupted. Anything else is a defect and keeps its traceback.
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
    """Turns what a command raises into an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Here and not above: the engine is not needed to print a help text.
            from airflow_kstreams.streams.errors import KStreamsError

            if not isinstance(error, KStreamsError):
                raise
            typer.echo(one_line(error), err=True)
            raise typer.Exit(FAILED) from None


def one_line(error: KStreamsError) -> str:
    """Return what happened and what to do about it, in one line."""
    text = f"error: {error.cause}"
    if error.fix:
        text += f" -- what to do: {error.fix}"
    return " ".join(text.split())


app = typer.Typer(
    name="airflow-kstreams",
    help="Look at topologies, run them, and look after the applications they make.",
    cls=_Commands,
    no_args_is_help=True,
    # Rich takes longer to import than all the rest.
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
