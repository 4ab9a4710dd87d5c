"""The fixtures ``kafka``, ``kafka_admin`` and ``acls`` for tests on the secured broker: the super user's
listener, which any client may use, and what carol may do on hers.

Modules take them by assignment (``kafka = super_user.kafka``): an imported name would be that of an argument,
too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

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
