"""Defines ``airflow-kstreams acls``: the permissions that the Kafka user of an application needs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.least_acls import NeededLine, Purpose, needed_lines
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    ApplicationSetting,
    AsJson,
    FunctionName,
    application_settings,
    load_topology,
    say,
    show,
)

if TYPE_CHECKING:
    from airflow_kstreams.explore.tables import Table
    from airflow_kstreams.streams.naming.permissions import Permission

_PLACEHOLDER = "HOST:PORT"


class ListFormat(StrEnum):
    """Format of the list."""

    TABLE = "table"
    COMMANDS = "commands"


def acls(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    application_id: ApplicationId,
    principal: Annotated[
        str, typer.Option(metavar="TYPE:NAME", help="The Kafka user to allow it, e.g. User:orders.")
    ] = "",
    bootstrap_server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Kafka's address for the commands; it is not contacted.")
    ] = _PLACEHOLDER,
    purposes: Annotated[
        list[Purpose] | None,
        typer.Option("--for", help="Work that the user does; repeatable. Runs unless given."),
    ] = None,
    setting: ApplicationSetting = None,
    output_format: Annotated[
        ListFormat, typer.Option("--format", help="Format of the list.")
    ] = ListFormat.TABLE,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """List the ACLs that the Kafka user of an application needs, no more and no less.

    Each says which work it serves, and for what. Nothing is contacted. Pass the settings that the runs have:
    dead letters and state.dir need more. A user who may read, write or delete a topic may also describe it,
    so that is not listed.
    """
    from airflow_kstreams.streams.errors import ConfigError
    from airflow_kstreams.streams.naming.permissions import acl_commands

    if principal and ":" not in principal:
        raise ConfigError(f"--principal {principal!r} has no type", fix=f"write --principal User:{principal}")
    plan = load_topology(application, function).plan(application_id)
    settings = application_settings(application_id, setting)
    lines = needed_lines(plan, settings, purposes or [Purpose.RUN])
    if as_json:
        from airflow_kstreams.cli.documents.acls_document import acls_document
        from airflow_kstreams.cli.json_output import print_json

        print_json(acls_document(lines, application_id, principal))
        return
    if output_format is ListFormat.COMMANDS:
        needed = [line.permission for line in lines]
        for command in acl_commands(needed, principal=principal, bootstrap=bootstrap_server):
            say(command)
        return
    show([_table(lines, application_id)])


def _table(lines: Sequence[NeededLine], application_id: str) -> Table:
    from airflow_kstreams.explore.tables import Table

    return Table(
        title=f"Permissions of {application_id}",
        columns=("operation", "resource", "name", "serves", "for"),
        rows=[(*_named(line.permission), ", ".join(line.serves), _why(line.permission)) for line in lines],
    )


def _named(needed: Permission) -> tuple[str, str, str]:
    name = f"{needed.name}*" if needed.prefixed else needed.name
    return needed.operation.value, needed.resource.value, name


def _why(needed: Permission) -> str:
    return needed.reason + (f" (optional: without it {needed.without})" if needed.without else "")
