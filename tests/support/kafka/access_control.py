"""Gives permissions by a plain client, as ``kafka-acls.sh`` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from tests.conftest import Deadline

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS = 30.0
_OPERATIONS = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.ALTER: AclOperation.ALTER,
    Operation.DELETE: AclOperation.DELETE,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
    Operation.IDEMPOTENT_WRITE: AclOperation.IDEMPOTENT_WRITE,
}
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Resource.CLUSTER: ResourceType.BROKER,
}


class Acls:
    """The ACLs of one principal.

    :param admin: of the super user.
    """

    def __init__(self, admin: AdminClient, *, principal: str) -> None:
        self._admin = admin
        self._principal = principal
        self._given = 0

    def allow(self, permissions: Iterable[Permission]) -> None:
        """Give permissions and wait until the broker heeds them."""
        bindings = [self._binding(permission) for permission in permissions]
        for future in self._admin.create_acls(bindings, request_timeout=_SECONDS).values():
            future.result(_SECONDS)
        self._given += len(bindings)
        self._await(self._given)

    def given_elsewhere(self, number: int) -> None:
        """Wait until the broker heeds permissions that another program gave."""
        self._given += number
        self._await(self._given)

    def withdraw(self) -> None:
        """Take every permission back."""
        for future in self._admin.delete_acls([self._filter()], request_timeout=_SECONDS).values():
            future.result(_SECONDS)
        self._given = 0
        self._await(0)

    def _await(self, count: int) -> None:
        def heeded() -> bool:
            found = self._admin.describe_acls(self._filter(), request_timeout=_SECONDS).result(_SECONDS)
            return len(found) == count

        Deadline(seconds=_SECONDS).until(heeded, f"{count} ACLs of {self._principal}")

    def _filter(self) -> AclBindingFilter:
        return AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any name
            ResourcePatternType.ANY,
            self._principal,
            None,  # type: ignore[arg-type]  # any host
            AclOperation.ANY,
            AclPermissionType.ANY,
        )

    def _binding(self, permission: Permission) -> AclBinding:
        return AclBinding(
            _RESOURCES[permission.resource],
            permission.name or "kafka-cluster",
            ResourcePatternType.PREFIXED if permission.prefixed else ResourcePatternType.LITERAL,
            self._principal,
            "*",
            _OPERATIONS[permission.operation],
            AclPermissionType.ALLOW,
        )
