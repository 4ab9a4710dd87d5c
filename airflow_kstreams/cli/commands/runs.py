"""Defines ``airflow-kstreams runs``: shows an application's runs. It only reads."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from airflow_kstreams import inspect
from airflow_kstreams.cli.json_output import AsJson, print_json
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    Connection,
    connecting,
    look_settings,
    show,
    utc_ms,
)
from airflow_kstreams.inspect.readings import LOOK_MS
from airflow_kstreams.inspect.tables_of import notes_of_runs, tables_of_runs

DOCUMENTS = {"runs": inspect.SeenRuns}


class RunStateName(StrEnum):
    """State of a run."""

    FINISHED = "finished"
    NOTHING_NEW = "nothing new"
    TAKEN_BACK = "taken back"
    UNDER_WAY = "under way"
    UNFINISHED = "unfinished"
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
    as_json: AsJson = False,
) -> None:
    """Show the runs of an application, the newest first, and what is odd about them.

    A question mark follows the state of a run that is odd, though it is green; the rule is said below.
    """
    only = inspect.RunFilter(
        states=frozenset(each.value for each in state or ()),
        dag_id=dag,
        since_ms=0 if since is None else utc_ms(since),
        until_ms=None if until is None else utc_ms(until),
        suspicious=odd,
    )
    settings = look_settings(application_id, setting, look_ms=LOOK_MS)
    kafka = connection.cluster(settings, look_ms=LOOK_MS)
    found = inspect.runs(
        application_id, kafka, count=limit, before=before, only=only, settings=settings.to_dict()
    )
    if as_json:
        print_json(found)
    else:
        show(tables_of_runs(found), notes=notes_of_runs(found))
