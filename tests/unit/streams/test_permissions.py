from __future__ import annotations

import pickle

from airflow_kstreams.batch.protocol.needed_permissions import naming_permissions
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)


def topic(operation: Operation, name: str = "orders") -> Permission:
    return Permission(operation=operation, resource=Resource.TOPIC, name=name)


def denied(permission: Permission, principal: str = "User:carol") -> AccessDeniedError:
    return AccessDeniedError(
        what="reading",
        where="k:9092",
        permission=permission,
        principal=principal,
        code="TOPIC_AUTHORIZATION_FAILED",
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
    assert (str(copy), copy.permission, copy.code) == (str(error), error.permission, error.code)
    assert "this user needs the permission Write on transactional id app-*" in copy.cause
    assert "--allow-principal User:NAME" in copy.fix
    assert "--transactional-id app- --resource-pattern-type prefixed" in copy.fix
