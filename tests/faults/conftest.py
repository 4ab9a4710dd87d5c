from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.proxy.kafka_proxy import KafkaProxy
from dev.servers.embedded import Broker
from tests.support.kafka.one_task import one_task
from tests.support.spark.calling_scene import calling
from tests.support.spark.gated_scene import scene

__all__ = ["calling", "one_task", "proxy", "scene"]


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    """A proxy before the session's broker, without rules."""
    with KafkaProxy.before(broker) as running:
        yield running
