"""Makes the document of ``acls``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from airflow_kstreams.cli.least_acls import NeededLine


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


def acls_document(lines: Sequence[NeededLine], application_id: str, principal: str) -> AclsDocument:
    """Make the document of ``acls``.

    :param principal: the Kafka user; empty unless given.
    """
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
