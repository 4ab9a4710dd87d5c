"""Tests here run on the secured broker: the usual fixtures reach its plain listener, where anybody is the
super user; who logs in over TLS may do nothing until an ACL says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from airflow_kstreams.streams.naming.permissions import Permission
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls


@pytest.fixture(scope="session")
def kafka(secured_broker: SecuredBroker) -> str:
    """``bootstrap.servers`` of the super user's listener."""
    return secured_broker.bootstrap


@pytest.fixture(scope="session")
def kafka_admin(secured_broker: SecuredBroker) -> AdminClient:
    """Plain admin client of the super user."""
    return AdminClient({"bootstrap.servers": secured_broker.bootstrap, "log_level": 2})


@pytest.fixture
def acls(kafka_admin: AdminClient) -> Iterator[Acls]:
    """Carol's permissions, which last until the end of the test."""
    acls = Acls(kafka_admin, principal="User:carol")
    yield acls
    acls.withdraw()


@pytest.fixture
def allow(acls: Acls) -> Callable[[Iterable[Permission]], None]:
    """``allow(permissions)`` gives them to carol until the end of the test."""
    return acls.allow
