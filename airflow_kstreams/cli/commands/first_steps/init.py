"""Defines ``airflow-kstreams init``: writes the files of a first project."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airflow_kstreams.cli.shared_options import say

if TYPE_CHECKING:
    from airflow_kstreams.first_steps.project import Example, Project

_WHAT = {
    "orders": "totals of customers from their orders",
    "flights": "delays of airlines, day by day",
    "empty": "a place for a topology of your own",
}


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write.")] = Path(),
    example: Annotated[
        Literal["orders", "flights", "empty"] | None,
        typer.Option(help="What the application does at first."),
    ] = None,
    application_id: Annotated[
        str | None,
        typer.Option("--application-id", metavar="ID", help="Names the application in Kafka, and its files."),
    ] = None,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", metavar="HOST:PORT", help="Kafka's address.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="CRON", help="The DAG's schedule: cron, @hourly and the like, or none."),
    ] = None,
) -> None:
    """Write a first project: application, test, DAG, connections, and some records to try it with.

    Asks for each option that is not given. Without a terminal it takes the default, and says so. Files that
    exist are never touched.
    """
    from airflow_kstreams.first_steps.project import Project, check_addresses, check_schedule
    from airflow_kstreams.streams.settings import check_application_id

    chosen = example or _example()
    default_id = "my-app" if chosen == "empty" else chosen
    project = Project(
        example=chosen,
        application_id=_answer(
            "The application's id in Kafka", application_id, default_id, check_application_id
        ),
        bootstrap_servers=_answer(
            "Kafka's address",
            bootstrap_server,
            os.environ.get("KSTREAMS_BOOTSTRAP_SERVERS") or "localhost:9092",
            check_addresses,
        ),
        schedule=_answer(
            "The DAG's schedule (cron, @hourly, ..., none)", schedule, "@hourly", check_schedule
        ),
    )
    paths = [str(path.relative_to(folder)) for path in project.write(folder)]
    say(f"wrote into {folder.absolute()}:")
    for path, what in zip(paths, _contents(project), strict=True):
        say(f"  {path:<{max(map(len, paths))}}  {what}")
    say("next, test it:")
    if folder.absolute() != Path.cwd():
        say(f"  cd {shlex.quote(str(folder))}")
    say(f"  python -m pytest test_{project.module}.py")


def _contents(project: Project) -> tuple[str, ...]:
    """Return what each file holds, in the order in which they are written."""
    reads, writes = project.topics
    return (
        f"the application: reads {reads}, writes {writes}",
        "its test, in memory",
        f"its DAG, schedule {project.schedule}",
        "where Kafka and Spark are, for Airflow and for this command",
        f"records for {reads}",
    )


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _answer(question: str, given: str | None, default: str, check: Callable[[str], None]) -> str:
    """Return what the option gives, else what a person answers, else the default.

    An answer that does not pass the check is asked for again.
    """
    from airflow_kstreams.streams.errors import ConfigError

    if given is not None:
        return given
    if not _can_ask():
        say(f"{question}: {default}")
        return default
    while True:
        answer = str(typer.prompt(question, default=default)).strip()
        try:
            check(answer)
        except ConfigError as error:
            say(f"{error.cause}: {error.fix}", err=True)
        else:
            return answer


def _example() -> Example:
    from airflow_kstreams.streams.errors import ConfigError

    def known(answer: str) -> None:
        if answer not in _WHAT:
            raise ConfigError(f"there is no example {answer!r}", fix=f"say one of {', '.join(_WHAT)}")

    for name, what in _WHAT.items():
        say(f"  {name:<7}  {what}")
    answer = _answer("The example to begin with", None, "orders", known)
    return next(name for name in ("orders", "flights", "empty") if name == answer)
