"""Compares what this user may do with what the application needs.

Brokers tell a user what it may do with a topic, with a group and with the cluster, and nothing of names that
do not exist yet, nor of transactional ids. So a permission is there, missing, or not looked at, and the last
is said, too. Brokers without an authorizer let every user do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_kstreams.batch.inspect.doctor.findings import DoctorView
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, ok, unseen, warning
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource, acl_commands
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.ports import Allowed

_CHECK = "permissions"
_ADDRESS = "HOST:PORT"


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check that the user has every permission that it needs, as far as it may know."""
    needed = seen.subject.needs(seen.plan, seen.subject.settings)
    topics = {each.name for each in needed if each.resource is Resource.TOPIC and not each.prefixed}
    groups = {each.name for each in needed if each.resource is Resource.GROUP and not each.prefixed}
    allowed = seen.admin.allowed(topics, groups)
    if allowed is None:
        yield ok(_CHECK, "the brokers have no authorizer: every user may do everything")
        return
    given = {each: _is_given(each, allowed) for each in needed}
    missing = [each for each, there in given.items() if there is False]
    unknown = [each for each, there in given.items() if there is None]
    fatal = [each for each in missing if not each.without]
    optional = [each for each in missing if each.without]
    if fatal:
        yield error(
            _CHECK,
            "permission-missing",
            f"this user lacks {_listed(fatal)}, without which its work fails",
            _commands(fatal),
        )
    if optional:
        reasons = first_few([*dict.fromkeys(each.without for each in optional)])
        yield warning(
            _CHECK,
            "permission-optional",
            f"this user lacks {_listed(optional)}; without that {reasons}",
            _commands(optional),
        )
    if unknown:
        yield unseen(
            _CHECK,
            f"{_listed(unknown)}: brokers do not tell users of transactional ids, and of what does not exist",
        )
    if not missing and len(unknown) < len(needed):
        yield ok(_CHECK, f"this user has the {len(needed) - len(unknown)} permissions that can be looked at")


def _is_given(needed: Permission, allowed: Allowed) -> bool | None:
    """Return whether a permission is given; None if brokers do not tell."""
    if needed.prefixed:
        return None
    if needed.resource is Resource.CLUSTER:
        return None if allowed.cluster is None else _includes(allowed.cluster, needed.operation)
    if needed.resource is Resource.GROUP:
        operations = allowed.groups.get(needed.name)
    elif needed.resource is Resource.TOPIC:
        operations = allowed.topics.get(needed.name)
        if needed.operation is Operation.CREATE:
            # A topic that exists need not be created.
            creates = allowed.cluster is not None and Operation.CREATE in allowed.cluster
            return True if operations or creates else None
    else:
        return None
    return None if operations is None else _includes(operations, needed.operation)


def _includes(operations: Iterable[Operation], wanted: Operation) -> bool:
    return any(each.includes(wanted) for each in operations)


def _listed(permissions: Sequence[Permission]) -> str:
    return first_few([str(each) for each in permissions])


def _commands(permissions: Iterable[Permission]) -> str:
    return "have an administrator give them: " + "; then ".join(
        acl_commands(permissions, principal="", bootstrap=_ADDRESS)
    )
