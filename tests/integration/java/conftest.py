from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.java.peer import KafkaClients, KafkaStreamsPeer


@pytest.fixture(scope="session")
def kafka_streams() -> Iterator[KafkaStreamsPeer]:
    """Java's Kafka Streams, one process for all tests."""
    peer = KafkaStreamsPeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def java(kafka: str) -> Iterator[KafkaClients]:
    """Java's clients and tools on the session's broker, one process for all tests."""
    clients = KafkaClients(kafka)
    yield clients
    clients.close()
