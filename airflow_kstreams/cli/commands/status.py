"""Defines ``airflow-kstreams status``: shows the present state of an application. It only reads."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    AsJson,
    Connection,
    application_settings,
    connecting,
    show,
)

#: It leaves a part of 10 s to the start of the command and to its end.
_TIMEOUT_SECONDS = 8.0


@connecting
def status(
    connection: Connection,
    application_id: Annotated[
        str | None,
        typer.Option(
            "--application-id",
            metavar="ID",
            envvar="KSTREAMS_APPLICATION_ID",
            help="The application; all of the cluster are listed unless given.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List all applications, whatever the environment names.")
    ] = False,
    runs: Annotated[int, typer.Option(min=0, metavar="N", help="Finished runs to show.")] = 10,
    records: Annotated[
        bool, typer.Option("--records", help="Show the records of the metadata topic, too.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=2, metavar="SECONDS", help="Longest wait for all answers."),
    ] = _TIMEOUT_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Show an application's unfinished run, lease, offsets with their lag, and finished runs.

    Without an id it lists the applications of the cluster, each with its last run. A broker that does not
    answer, or falls silent meanwhile, is an error within 10 seconds.
    """
    look_ms = round(timeout * 1000)
    if every or application_id is None:
        if records:
            raise typer.BadParameter(
                "goes with one application: give --application-id", param_hint="--records"
            )
        _list(connection, look_ms, as_json=as_json)
        return
    from airflow_kstreams.batch.inspect.ahead.lag import oddities
    from airflow_kstreams.batch.inspect.status import read_status
    from airflow_kstreams.cli.documents.status_document import status_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.status_tables import status_tables
    from airflow_kstreams.inspect.tables_of import odd_text

    settings = application_settings(application_id, None).of_look(look_ms)
    kafka = connection.cluster(settings, look_ms=look_ms)
    found = read_status(kafka, application_id)
    odd = oddities(found, settings, now_ms=round(time.time() * 1000))
    if as_json:
        print_json(status_document(found, runs=runs, records=records, suspicions=odd))
        return
    notes = [f"Odd: {odd_text(each)}" for each in odd]
    notes += [f"{found.application_id}-metadata:", *found.metadata] if records else []
    show(status_tables(found, runs), notes=notes)


def _list(connection: Connection, look_ms: int, *, as_json: bool) -> None:
    from airflow_kstreams import inspect
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.inspect.tables_of import notes_of_applications, tables_of_applications

    settings = application_settings("status", None).of_look(look_ms)
    found = inspect.applications(connection.cluster(settings, look_ms=look_ms))
    if as_json:
        print_json(found)
    else:
        show(tables_of_applications(found) if found.applications else (), notes=notes_of_applications(found))
