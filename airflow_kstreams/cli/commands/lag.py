"""Defines ``airflow-kstreams lag``: shows what waits for an application's next run. It only reads."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    AsJson,
    Connection,
    application_settings,
    connecting,
    show,
)


@connecting
def lag(
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    partitions: Annotated[int, typer.Option(min=0, help="Partitions to show one by one.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the offsets that wait for the next run, by topic and by partition.

    Markers of transactions take offsets, too, so there may be fewer records.
    """
    from airflow_kstreams import inspect
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.inspect.readings import LOOK_MS
    from airflow_kstreams.inspect.tables_of import notes_of_lag, tables_of_lag

    settings = application_settings(application_id, setting).of_look(LOOK_MS)
    kafka = connection.cluster(settings, look_ms=LOOK_MS)
    found = inspect.lag(application_id, kafka, partitions=partitions, settings=settings.to_dict())
    if as_json:
        print_json(found)
    else:
        show(tables_of_lag(found), notes=notes_of_lag(found))
