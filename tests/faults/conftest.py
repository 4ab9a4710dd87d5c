from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.embedded import Broker
from dev.kafka_proxy import KafkaProxy
from tests.gated_scene import scene
from tests.one_task import one_task

__all__ = ["one_task", "proxy", "scene"]


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    """A proxy before the session's broker, without rules."""
    with KafkaProxy.before(broker) as running:
        yield running
