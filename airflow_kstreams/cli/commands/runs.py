"""Defines ``airflow-kstreams runs``: shows an application's runs. It only reads."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    AsJson,
    Connection,
    application_settings,
    connecting,
    say,
    show,
    utc_ms,
)


class RunStateName(StrEnum):
    """State of a run."""

    FINISHED = "finished"
    NOTHING_NEW = "nothing new"
    TAKEN_BACK = "taken back"
    UNDER_WAY = "under way"
    UNFINISHED = "unfinished"
    FAILED = "failed"
    CONTINUOUS = "continuous"


@connecting
def runs(  # noqa: PLR0913 - every parameter is an option
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Runs to show.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="RUN", help="Begin behind this run: the next page.")
    ] = None,
    state: Annotated[
        list[RunStateName] | None, typer.Option(help="Only runs in this state; repeatable.")
    ] = None,
    dag: Annotated[str, typer.Option(metavar="DAG", help="Only runs of this DAG.")] = "",
    since: Annotated[datetime | None, typer.Option(help="Only runs that began then or later, UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only runs that began before that, UTC.")] = None,
    odd: Annotated[bool, typer.Option("--odd", help="Only runs about which something is odd.")] = False,
    run: Annotated[
        str | None, typer.Option("--show", metavar="RUN", help="Show this run in full instead.")
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="RUN RUN", help="Compare two runs instead."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Write this run as one HTML file to mail; it has no data of records."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The HTML file; stdout unless given.", dir_okay=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the runs of an application, the newest first, and what is odd about them.

    A question mark follows the state of a run that is odd, though it is green; the rule is said below.
    """
    from airflow_kstreams import inspect
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.inspect import tables_of
    from airflow_kstreams.inspect.readings import LOOK_MS

    if sum(each is not None for each in (run, pair, html)) > 1:
        raise typer.BadParameter("give one of --show, --compare and --html")
    if html is not None and as_json:
        raise typer.BadParameter("a page is no JSON: give --show RUN --json", param_hint="--html")
    if output is not None and html is None:
        raise typer.BadParameter("only a page goes to a file: give --html RUN", param_hint="--output")
    only = inspect.RunFilter(
        states=frozenset(each.value for each in state or ()),
        dag_id=dag,
        since_ms=0 if since is None else utc_ms(since),
        until_ms=None if until is None else utc_ms(until),
        suspicious=odd,
    )
    settings = application_settings(application_id, setting).of_look(LOOK_MS)
    kafka = connection.cluster(settings, look_ms=LOOK_MS)
    given = settings.to_dict()
    if html is not None:
        full = inspect.run(application_id, html, kafka, settings=given)
        if output is None:
            typer.echo(inspect.run_page(full), nl=False)
        else:
            output.write_text(inspect.run_page(full), encoding="utf-8")
            say(f"{output} holds run {full.run.run_id}.")
        return
    found: inspect.ComparedRuns | inspect.RunInFull | inspect.SeenRuns
    if pair is not None:
        found = inspect.compare(application_id, *pair, kafka, settings=given)
        tables, notes = tables_of.tables_of_comparison(found), tables_of.notes_of_comparison(found)
    elif run is not None:
        found = inspect.run(application_id, run, kafka, settings=given)
        tables, notes = tables_of.tables_of_run(found), tables_of.notes_of_run(found)
    else:
        found = inspect.runs(application_id, kafka, count=limit, before=before, only=only, settings=given)
        tables, notes = tables_of.tables_of_runs(found), tables_of.notes_of_runs(found)
    if as_json:
        print_json(found)
    else:
        show(tables, notes=notes)
