"""The commands, and how they end.

Exit codes: 0 done; 1 an error of this package, said in one line on stderr; 2 the command line itself is
wrong; 130 interrupted. Anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from airflow_kstreams.cli.acls import acls
from airflow_kstreams.cli.describe import describe
from airflow_kstreams.cli.doctor import doctor
from airflow_kstreams.cli.explore import explore
from airflow_kstreams.cli.pack import pack
from airflow_kstreams.cli.prepare_spark import prepare_spark
from airflow_kstreams.cli.replay import replay
from airflow_kstreams.cli.reset import reset
from airflow_kstreams.cli.status import status

if TYPE_CHECKING:
    from airflow_kstreams.streams.errors import KStreamsError

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
app.command()(acls)
app.command()(describe)
app.command()(explore)
app.command()(pack)
app.command()(prepare_spark)
app.command()(doctor)
app.command()(replay)
app.command()(reset)
app.command()(status)


def main() -> None:
    """Run the command line of this process."""
    app()
