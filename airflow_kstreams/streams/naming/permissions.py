"""Describes the permissions that a Kafka user needs, in the words of Kafka's ACLs.

Kafka's authorizer takes some operations as including others: a user who may read, write, delete or alter
something may also describe it. So no list has ``Describe`` beside one of those.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

#: Stands for a principal that is not known here.
ANY_PRINCIPAL = "User:NAME"
_INCLUDE_DESCRIBE = ("Read", "Write", "Delete", "Alter")
_INCLUDE_DESCRIBE_CONFIGS = ("AlterConfigs",)


class Operation(StrEnum):
    """An operation, as ``kafka-acls.sh`` spells it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"

    def includes(self, other: Operation) -> bool:
        """Return True if a user who may do this may do the other, too."""
        return (
            self is other
            or (other is Operation.DESCRIBE and self in _INCLUDE_DESCRIBE)
            or (other is Operation.DESCRIBE_CONFIGS and self in _INCLUDE_DESCRIBE_CONFIGS)
        )


class Resource(StrEnum):
    """A kind of resource, as ``kafka-acls.sh`` spells its option."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One ACL that a user needs.

    :param operation: the operation to allow.
    :param resource: kind of resource.
    :param name: name of the resource; empty for the cluster.
    :param prefixed: True for all resources whose names begin with ``name``.
    :param reason: the use of the permission, as text.
    :param without: effect of its absence if the run goes on without it, as text; empty if the run fails.
    """

    operation: Operation
    resource: Resource
    name: str = ""
    prefixed: bool = False
    reason: str = ""
    without: str = ""

    def covers(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Return True if this permission, once given, allows an operation on a resource."""
        same = name.startswith(self.name) if self.prefixed else self.name in (name, "*")
        return self.resource is resource and same and self.operation.includes(operation)

    def includes(self, other: Permission) -> bool:
        """Return True if this permission allows all that the other one allows."""
        whole = self.name == "*" and not self.prefixed
        return self.covers(other.operation, other.resource, other.name) and (
            whole or self.prefixed or not other.prefixed
        )

    def __str__(self) -> str:
        """Return e.g. ``Read on topic orders``."""
        named = f" {self.name}" if self.name else ""
        return f"{self.operation} on {self.resource.replace('-', ' ')}{named}{'*' if self.prefixed else ''}"


def transactional_permission(owner: str, reason: str = "transactions of tasks and coordinator") -> Permission:
    """Return the permission for the transactional ids of an application, or of another owner: they begin with
    its id and a dash.
    """
    return Permission(
        operation=Operation.WRITE,
        resource=Resource.TRANSACTIONAL_ID,
        name=f"{owner}-",
        prefixed=True,
        reason=reason,
    )


def acl_command(permissions: Sequence[Permission], *, principal: str, bootstrap: str) -> str:
    """Return the command of Kafka's own tool that gives permissions on one resource.

    :param permissions: permissions on one resource.
    :param principal: the user, e.g. ``User:orders``; empty when it is not known.
    :param bootstrap: bootstrap servers for an administrator, or a placeholder.
    """
    first = permissions[0]
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--add"]
    words += ["--allow-principal", principal or ANY_PRINCIPAL]
    for permission in permissions:
        words += ["--operation", permission.operation.value]
    words.append(f"--{first.resource.value}")
    if first.name:
        words.append(first.name)
    if first.prefixed:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


def acl_commands(permissions: Iterable[Permission], *, principal: str, bootstrap: str) -> list[str]:
    """Return the commands that give permissions, one per resource."""
    by_resource = groupby(permissions, key=lambda each: (each.resource, each.name, each.prefixed))
    return [acl_command(list(group), principal=principal, bootstrap=bootstrap) for _, group in by_resource]
