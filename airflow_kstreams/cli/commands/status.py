"""Defines ``airflow-kstreams status``: shows the present state of an application. It only reads."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
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
    application_id: ApplicationId,
    connection: Connection,
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

    A broker that does not answer, or falls silent meanwhile, is an error within 10 seconds.
    """
    from airflow_kstreams.batch.inspect.status import read_status
    from airflow_kstreams.cli.documents.status_document import status_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.status_tables import status_tables

    look_ms = round(timeout * 1000)
    settings = application_settings(application_id, None).of_look(look_ms)
    kafka = connection.cluster(settings, look_ms=look_ms)
    found = read_status(kafka, application_id)
    if as_json:
        print_json(status_document(found, runs=runs, records=records))
        return
    notes = [f"{found.application_id}-metadata:", *found.metadata] if records else ()
    show(status_tables(found, runs), notes=notes)
