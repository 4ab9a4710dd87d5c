"""Defines ``airflow-kstreams doctor``: finds what may break the product's promise, before it does. It only
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    ApplicationSetting,
    AsJson,
    Connection,
    FunctionName,
    application_settings,
    connecting,
    load_topology,
    say,
    show,
)

if TYPE_CHECKING:
    from airflow_kstreams.batch.inspect.doctor import Finding

_HOUR_MS = 3_600_000
_MAX_BYTES = "message.max.bytes"
FOUND_ERRORS = 1


@connecting
def doctor(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
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
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Find what may go wrong in the cluster, the topics and the application's own state.

    Nothing is written to Kafka. The exit code is 1 if an error was found.
    """
    from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
    from airflow_kstreams.batch.inspect.doctor.findings import CLIENT_MAX_BYTES

    settings = application_settings(application_id, setting)
    topology = load_topology(application, function)
    cluster = connection.cluster(settings)
    config = connection.client_config()
    plan = topology.plan(application_id)
    findings = diagnose(
        cluster,
        Subject(
            plan=plan,
            settings=settings,
            groups=partial(topology.partition_groups, application_id) if plan.partition_grouper else None,
            gap_ms=None if gap_hours is None else round(gap_hours * _HOUR_MS),
            producer_max_bytes=int(str(config.get(_MAX_BYTES, CLIENT_MAX_BYTES))),
            first_run=first_run,
        ),
    )
    findings += _of_client_settings(config)
    findings += _of_releases()
    if as_json:
        from airflow_kstreams.cli.documents.doctor_document import DoctorDocument
        from airflow_kstreams.cli.json_output import print_json

        print_json(DoctorDocument(application_id=application_id, findings=findings))
    else:
        _show(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(FOUND_ERRORS)


def _of_client_settings(config: Mapping[str, object]) -> Iterator[Finding]:
    from airflow_kstreams.batch.inspect.doctor.findings import ok, warning
    from airflow_kstreams.kafka.configuration.weak_settings import weaknesses

    check, found = "client settings", list(weaknesses(config))
    yield from (warning(check, weakness.text, weakness.fix) for weakness in found)
    if not found:
        yield ok(check, "servers are verified, and credentials travel by TLS, where they leave this machine")


def _of_releases() -> Iterator[Finding]:
    from airflow_kstreams.batch.inspect.doctor.findings import error, ok, warning
    from airflow_kstreams.launch.installation import installed, mixed_pyspark

    check, found = "releases", list(installed())
    beyond = [part for part in found if not part.is_proven]
    for part in beyond:
        yield warning(
            check,
            f"{part.name} {part.version} is installed, and this package is proven with {part.proven}",
            f"install a release of {part.name} between those of a line in docs/installing.md, together with "
            "the others of that line",
        )
    if (mixed := mixed_pyspark()) is not None:
        yield error(check, mixed.cause, mixed.fix)
    elif not beyond:
        yield ok(check, ", ".join(f"{part.name} {part.version}" for part in found))


def _show(findings: Sequence[Finding]) -> None:
    """Print the table, and below it the remedies, with each command in one piece to be copied."""
    from airflow_kstreams.explore.tables import Table

    rows = [(finding.level.value, finding.check, finding.text) for finding in findings]
    show([Table(title="What was looked at", columns=("", "check", "found"), rows=rows)])
    for finding in findings:
        if finding.fix:
            say(f"{finding.level.value}, {finding.check}: what to do: {finding.fix}")
            say("")
