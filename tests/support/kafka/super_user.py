"""The fixtures ``kafka`` and ``kafka_admin`` for tests on the secured broker: the super user's listener,
which any client may use.

Modules take them by assignment (``kafka = super_user.kafka``): an imported name would be that of an argument,
too.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from dev.servers.secured import SecuredBroker


@pytest.fixture(scope="session")
def kafka(secured_broker: SecuredBroker) -> str:
    """``bootstrap.servers`` of the super user's listener."""
    return secured_broker.bootstrap


@pytest.fixture(scope="session")
def kafka_admin(secured_broker: SecuredBroker) -> AdminClient:
    """Plain admin client of the super user."""
    return AdminClient({"bootstrap.servers": secured_broker.bootstrap, "log_level": 2})
