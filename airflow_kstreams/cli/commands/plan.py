"""Defines ``airflow-kstreams plan``: shows the run that would begin now. It only reads."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    AsJson,
    Connection,
    FunctionName,
    TablesConfig,
    application_settings,
    connecting,
    load_topology,
    show,
    tables_settings,
    utc_ms,
)


@connecting
def plan(  # noqa: PLR0913 - every parameter is an option
    application_id: ApplicationId,
    connection: Connection,
    application: Annotated[
        Path | None,
        typer.Argument(
            metavar="[APP.py]",
            help="The application file; the topology of the last run unless given.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    setting: ApplicationSetting = None,
    tables_config: TablesConfig = None,
    interval: Annotated[
        tuple[datetime, datetime] | None,
        typer.Option(
            metavar="START END", help="Data interval, UTC; from the last run's until now unless given."
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=0, help="Partitions to show one by one.")] = 20,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Show the run that would begin now: slice, state, windows, time, and what would refuse it.

    It is the begin itself, on a cluster where nothing is written.
    """
    from airflow_kstreams import inspect
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.inspect.readings import LOOK_MS
    from airflow_kstreams.inspect.tables_of import notes_of_plan, tables_of_plan

    topology = None if application is None else load_topology(application, function)
    settings = application_settings(application_id, setting).of_look(LOOK_MS)
    found = inspect.plan(
        application_id,
        connection.cluster(settings, look_ms=LOOK_MS),
        topology=topology,
        interval_ms=None if interval is None else (utc_ms(interval[0]), utc_ms(interval[1])),
        partitions=partitions,
        settings=settings.to_dict(),
        tables=tables_settings(tables_config),
    )
    if as_json:
        print_json(found)
    else:
        show(tables_of_plan(found), notes=notes_of_plan(found))
