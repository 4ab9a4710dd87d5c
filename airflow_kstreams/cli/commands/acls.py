"""Defines ``airflow-kstreams acls``: the permissions that the Kafka user of an application needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from airflow_kstreams.batch.protocol import needed_permissions as of
from airflow_kstreams.cli.json_output import AsJson, print_json
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
    EXPAND_ABORT = "expand-abort"
    DOCTOR = "doctor"
    STATE = "state"
    WATCH = "watch"
    FOLLOW = "follow"
    EXPLORE = "explore"


class NeededAcl(msgspec.Struct, frozen=True, kw_only=True):
    """An ACL that a user needs.

    :param operation: the operation to allow, as kafka-acls.sh spells it.
    :param resource: kind of the resource.
    :param name: name of the resource; empty for the cluster.
    :param prefixed: whether it is for all resources whose names begin with the name.
    :param serves: the work that fails without it.
    :param reason: what it is for.
    :param without: effect of its absence if the work goes on without it; empty if the work fails.
    """

    operation: str
    resource: str
    name: str
    prefixed: bool
    serves: Sequence[str]
    reason: str
    without: str


class AclsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The ACLs of a user.

    :param application_id: the application.
    :param principal: the Kafka user; empty unless given.
    :param acls: the ACLs, by resource.
    """

    application_id: str
    principal: str
    acls: Sequence[NeededAcl]


DOCUMENTS = {"acls": AclsDocument}


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
    if principal and ":" not in principal:
        raise ConfigError(f"--principal {principal!r} has no type", fix=f"write --principal User:{principal}")
    plan = load_topology(application, function).plan(application_id)
    settings = application_settings(application_id, setting)
    lines = needed_lines(plan, settings, purposes or [Purpose.RUN])
    if as_json:
        print_json(_document(lines, application_id, principal))
        return
    if output_format is ListFormat.COMMANDS:
        needed = [line.permission for line in lines]
        for command in acl_commands(needed, principal=principal, bootstrap=bootstrap_server):
            say(command)
        return
    show([_table(lines, application_id)])


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededLine:
    """One ACL, and the work that fails without it.

    :param permission: the ACL; its reason is that of all the work.
    :param serves: the purposes that need it.
    """

    permission: Permission
    serves: tuple[Purpose, ...]

    def including(self, other: NeededLine) -> NeededLine:
        """Return this line for the work of another one, too, whose permission it includes."""
        reasons = dict.fromkeys([*self.permission.reason.split("; "), *other.permission.reason.split("; ")])
        without = ""
        if self.permission.without and other.permission.without:
            both = (self.permission.without, other.permission.without)
            without = "; ".join(dict.fromkeys(each for text in both for each in text.split("; ")))
        return NeededLine(
            permission=replace(self.permission, reason="; ".join(reasons), without=without),
            serves=tuple(each for each in Purpose if each in (*self.serves, *other.serves)),
        )


def needed_lines(
    plan: TopologyPlan, settings: ApplicationSettings, purposes: Sequence[Purpose]
) -> list[NeededLine]:
    """Return the ACLs of a user, by resource: none that another one includes, and each with the work that
    fails without it.
    """
    makers = {
        Purpose.RUN: lambda: of.run_permissions(plan, settings),
        Purpose.CONTINUOUS: lambda: of.continuous_permissions(plan, settings),
        Purpose.RESET: lambda: of.reset_permissions(plan),
        Purpose.REPLAY: lambda: of.replay_permissions(plan, settings),
        Purpose.EXPAND: lambda: of.expand_permissions(plan),
        Purpose.EXPAND_PROCESSORS: lambda: of.expand_processors_permissions(plan),
        Purpose.EXPAND_ABORT: lambda: of.expand_abort_permissions(plan),
        Purpose.DOCTOR: lambda: of.doctor_permissions(plan),
        Purpose.STATE: lambda: of.state_permissions(plan),
        Purpose.WATCH: lambda: of.watch_permissions(plan),
        Purpose.FOLLOW: lambda: of.follow_permissions(plan.application_id),
        Purpose.EXPLORE: lambda: of.explore_permissions(plan),
    }
    found: dict[tuple[object, ...], NeededLine] = {}
    for purpose in dict.fromkeys(purposes):
        for permission in makers[purpose]():
            line = NeededLine(permission=permission, serves=(purpose,))
            key = (permission.operation, *_resource(line))
            found[key] = found[key].including(line) if key in found else line
    least = {
        key: line
        for key, line in found.items()
        if not any(one is not line and one.permission.includes(line.permission) for one in found.values())
    }
    for key, line in found.items():
        including = [each for each, one in least.items() if one.permission.includes(line.permission)]
        # Work that two lines allow goes on without either of them.
        if key not in least and len(including) == 1:
            least[including[0]] = least[including[0]].including(line)
    resources = list(dict.fromkeys(map(_resource, least.values())))
    return sorted(least.values(), key=lambda line: resources.index(_resource(line)))


def _resource(line: NeededLine) -> tuple[object, ...]:
    return line.permission.resource, line.permission.name, line.permission.prefixed


def _document(lines: Sequence[NeededLine], application_id: str, principal: str) -> AclsDocument:
    return AclsDocument(
        application_id=application_id,
        principal=principal,
        acls=[
            NeededAcl(
                operation=line.permission.operation.value,
                resource=line.permission.resource.value,
                name=line.permission.name,
                prefixed=line.permission.prefixed,
                serves=[each.value for each in line.serves],
                reason=line.permission.reason,
                without=line.permission.without,
            )
            for line in lines
        ],
    )


def _table(lines: Sequence[NeededLine], application_id: str) -> Table:
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
