from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

from airflow_kstreams.batch.protocol.needed_permissions import naming_permissions
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)
from tests.support.kafka.printed_commands import printed_commands


def topic(operation: Operation, name: str = "orders") -> Permission:
    return Permission(operation=operation, resource=Resource.TOPIC, name=name)


def denied(permission: Permission, principal: str = "User:carol") -> AccessDeniedError:
    return AccessDeniedError(
        what="reading",
        where="k:9092",
        permission=permission,
        principal=principal,
        kafka_code="TOPIC_AUTHORIZATION_FAILED",
    )


def test_reading_and_writing_include_describing_as_in_kafkas_authorizer() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE):
        assert topic(operation).covers(Operation.DESCRIBE, Resource.TOPIC, "orders")
    assert not topic(Operation.CREATE).covers(Operation.DESCRIBE, Resource.TOPIC, "orders")
    assert not topic(Operation.READ).covers(Operation.WRITE, Resource.TOPIC, "orders")
    assert not topic(Operation.READ).covers(Operation.READ, Resource.GROUP, "orders")
    assert not topic(Operation.READ).covers(Operation.READ, Resource.TOPIC, "orders-eu")


def test_prefix_covers_every_name_that_begins_so() -> None:
    prefix = transactional_permission("app")
    assert prefix.covers(Operation.WRITE, Resource.TRANSACTIONAL_ID, "app-0_3")
    assert not prefix.covers(Operation.WRITE, Resource.TRANSACTIONAL_ID, "apple-0_3")


def test_error_names_what_the_application_needs_when_it_may_not_even_describe() -> None:
    try:
        with naming_permissions([topic(Operation.WRITE, "other"), topic(Operation.READ)]):
            raise denied(topic(Operation.DESCRIBE))
    except AccessDeniedError as error:
        named = error
    assert named.permission == topic(Operation.READ)
    assert named.fix.startswith(
        "have an administrator run: kafka-acls.sh --bootstrap-server k:9092 --add "
        "--allow-principal User:carol --operation Read --topic orders ("
    )
    assert not named.is_retriable


def test_error_survives_pickling_when_it_crosses_processes() -> None:
    error = denied(transactional_permission("app"), principal="")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.permission, copy.kafka_code) == (str(error), error.permission, error.kafka_code)
    assert "this user needs the permission Write on transactional id app-*" in copy.cause
    assert "--allow-principal User:NAME" in copy.fix
    assert "--transactional-id app- --resource-pattern-type prefixed" in copy.fix


def granted_by(error: AccessDeniedError) -> list[Permission]:
    """Return what the command that an error prints grants its user."""
    arguments, _ = printed_commands(error.fix)
    assert arguments[0] == "kafka-acls.sh"
    assert "--add" in arguments
    option = dict(pairwise(arguments))
    assert option["--allow-principal"] == "User:carol"
    prefixed = option.get("--resource-pattern-type") == "prefixed"
    return [
        Permission(
            operation=Operation(option["--operation"]),
            resource=resource,
            name=option[f"--{resource}"],
            prefixed=prefixed,
        )
        for resource in Resource
        if f"--{resource}" in option
    ]


@pytest.mark.remedy("errors.AccessDeniedError.__init__")
@pytest.mark.parametrize(
    "needed",
    [
        topic(Operation.READ),
        topic(Operation.CREATE),
        transactional_permission("app"),
        Permission(operation=Operation.READ, resource=Resource.GROUP, name="app"),
    ],
    ids=str,
)
def test_command_that_the_error_prints_grants_what_is_missing(needed: Permission) -> None:
    name = f"{needed.name}0_3" if needed.prefixed else needed.name
    (granted,) = granted_by(denied(needed))
    assert granted.covers(needed.operation, needed.resource, name)
    assert not granted.covers(needed.operation, needed.resource, "other")
