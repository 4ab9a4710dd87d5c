"""Defines ``airflow-kstreams doctor``: finds what may break the product's promise, from this machine to the
executors, before it does. It only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.least_acls import Purpose, needed_lines
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    ApplicationSetting,
    AsJson,
    Connection,
    FunctionName,
    TablesConfig,
    application_settings,
    connecting,
    load_topology,
    say,
    show,
    tables_settings,
)

if TYPE_CHECKING:
    from airflow_kstreams.batch.inspect.doctor import Finding
    from airflow_kstreams.streams.naming.permissions import Permission
    from airflow_kstreams.streams.plan import TopologyPlan
    from airflow_kstreams.streams.settings import ApplicationSettings

_HOUR_MS = 3_600_000
#: Time for all looks together, and with Spark, whose own start takes most of it.
_SECONDS, _SPARK_SECONDS = 10.0, 120.0
_MAX_BYTES = "message.max.bytes"
#: Part of the time for all looks in which the cluster must answer, so that the others tell of their own.
_OF_CLUSTER = 0.8
FOUND_ERRORS = 1


@connecting
def doctor(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    tables_config: TablesConfig = None,
    gap_hours: Annotated[
        float | None,
        typer.Option(
            min=0.01, metavar="HOURS", help="Longest time between two runs; from the ledger unless given."
        ),
    ] = None,
    first_run: Annotated[
        bool,
        typer.Option("--first-run", help="No run has begun yet: an unknown application is no error."),
    ] = False,
    purposes: Annotated[
        list[Purpose] | None,
        typer.Option(
            "--for", help="Work of this user whose permissions count; repeatable. Runs unless given."
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark", help="Run one tiny job on Spark (MASTER, SPARK_REMOTE): what executors have."
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help=f"Time for all looks; {_SECONDS:g}, with --spark {_SPARK_SECONDS:g}.",
        ),
    ] = None,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Find what may go wrong in the cluster, the topics, the application's state, and what surrounds it.

    It looks at all side by side, and says what it did not see. Nothing is written to Kafka. The exit code is
    1 if an error was found.
    """
    from airflow_kstreams.batch.inspect.doctor import Subject
    from airflow_kstreams.batch.inspect.doctor.findings import CLIENT_MAX_BYTES
    from airflow_kstreams.inspect.readings import opened_tables
    from airflow_kstreams.inspect.surroundings import Surroundings, examine

    settings = application_settings(application_id, setting)
    topology = load_topology(application, function)
    seconds = timeout or (_SPARK_SECONDS if spark else _SECONDS)
    look_ms = round(seconds * 1000 * _OF_CLUSTER)
    cluster = connection.cluster(settings.of_look(look_ms), look_ms=look_ms)
    config = connection.client_config()
    plan = topology.plan(application_id)
    found = examine(
        cluster,
        Subject(
            plan=plan,
            settings=settings,
            groups=partial(topology.partition_groups, application_id) if plan.partition_grouper else None,
            gap_ms=None if gap_hours is None else round(gap_hours * _HOUR_MS),
            producer_max_bytes=int(str(config.get(_MAX_BYTES, CLIENT_MAX_BYTES))),
            needs=partial(_needed, purposes or [Purpose.RUN]),
            tables=opened_tables(tables_settings(tables_config)),
            first_run=first_run,
        ),
        Surroundings(client_config=config, seconds=seconds, spark=spark),
    )
    if as_json:
        from airflow_kstreams.cli.documents.doctor_document import DoctorDocument
        from airflow_kstreams.cli.json_output import print_json

        print_json(DoctorDocument(application_id=application_id, findings=found.findings))
    else:
        _show(found.findings)
    if found.errors:
        raise typer.Exit(FOUND_ERRORS)


def _needed(
    purposes: Sequence[Purpose], plan: TopologyPlan, settings: ApplicationSettings
) -> tuple[Permission, ...]:
    return tuple(line.permission for line in needed_lines(plan, settings, purposes))


def _show(findings: Sequence[Finding]) -> None:
    """Print the table, and below it the remedies, with each command in one piece to be copied."""
    from airflow_kstreams.explore.tables import Table

    rows = [(finding.level.value, finding.check, finding.text) for finding in findings]
    show([Table(title="What was looked at", columns=("", "check", "found"), rows=rows)])
    for finding in findings:
        if finding.fix:
            say(f"{finding.level.value}, {finding.check} ({finding.code}): what to do: {finding.fix}")
            say("")
