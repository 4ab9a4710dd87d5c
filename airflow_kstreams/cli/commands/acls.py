"""Defines ``airflow-kstreams acls``: the permissions that the Kafka user of an application needs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from airflow_kstreams.batch.protocol import needed_permissions as of
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    ApplicationSetting,
    FunctionName,
    application_settings,
    load_topology,
    say,
    show,
)
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.permissions import Permission, acl_commands
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings

_PLACEHOLDER = "HOST:PORT"


class ListFormat(StrEnum):
    """Format of the list."""

    TABLE = "table"
    COMMANDS = "commands"


class Purpose(StrEnum):
    """Task of the user."""

    RUN = "run"
    CONTINUOUS = "continuous"
    RESET = "reset"
    REPLAY = "replay"
    EXPAND = "expand"
    EXPAND_PROCESSORS = "expand-processors"
    DOCTOR = "doctor"
    STATE = "state"
    WATCH = "watch"


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
) -> None:
    """List the ACLs that the Kafka user of an application needs, no more and no less.

    Nothing is contacted. Pass the settings that the runs have: dead letters and state.dir need more. A user
    who may read, write or delete a topic may also describe it, so that is not listed.
    """
    if principal and ":" not in principal:
        raise ConfigError(f"--principal {principal!r} has no type", fix=f"write --principal User:{principal}")
    plan = load_topology(application, function).plan(application_id)
    settings = application_settings(application_id, setting)
    needed = permissions(plan, settings, purposes or [Purpose.RUN])
    if output_format is ListFormat.COMMANDS:
        for command in acl_commands(needed, principal=principal, bootstrap=bootstrap_server):
            say(command)
        return
    show([_table(needed, application_id)])


def permissions(
    plan: TopologyPlan, settings: ApplicationSettings, purposes: Sequence[Purpose]
) -> list[Permission]:
    """Return the permissions of the user, one entry per operation and resource, by resource."""
    found: dict[tuple[object, ...], Permission] = {}
    makers = {
        Purpose.RUN: lambda: of.run_permissions(plan, settings),
        Purpose.CONTINUOUS: lambda: of.continuous_permissions(plan.application_id),
        Purpose.RESET: lambda: of.reset_permissions(plan),
        Purpose.REPLAY: lambda: of.replay_permissions(plan, settings),
        Purpose.EXPAND: lambda: of.expand_permissions(plan),
        Purpose.EXPAND_PROCESSORS: lambda: of.expand_processors_permissions(plan),
        Purpose.DOCTOR: lambda: of.doctor_permissions(),
        Purpose.STATE: lambda: of.state_permissions(plan),
        Purpose.WATCH: lambda: of.watch_permissions(plan),
    }
    for purpose in dict.fromkeys(purposes):
        for each in makers[purpose]():
            found.setdefault((each.resource, each.name, each.prefixed, each.operation), each)
    resources = list(dict.fromkeys(key[:3] for key in found))
    return sorted(found.values(), key=lambda each: resources.index((each.resource, each.name, each.prefixed)))


def _table(needed: Sequence[Permission], application_id: str) -> Table:
    return Table(
        title=f"Permissions of {application_id}",
        columns=("operation", "resource", "name", "for"),
        rows=[
            (
                each.operation.value,
                each.resource.value,
                f"{each.name}*" if each.prefixed else each.name,
                each.reason + (f" (optional: without it {each.without})" if each.without else ""),
            )
            for each in needed
        ],
    )
