from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.java.peer import KafkaStreamsPeer


@pytest.fixture(scope="session")
def kafka_streams() -> Iterator[KafkaStreamsPeer]:
    """Java's Kafka Streams, one process for all tests."""
    peer = KafkaStreamsPeer()
    yield peer
    peer.close()
