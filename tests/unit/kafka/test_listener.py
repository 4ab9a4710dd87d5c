"""The address that a client's complaint names."""

from __future__ import annotations

import pytest

from airflow_kstreams.kafka.listener import _address


@pytest.mark.parametrize(
    ("complaint", "servers", "address"),
    [
        ("sasl_ssl://kafka:9093/bootstrap: Connect failed", "other:1", ("kafka", 9093)),
        ("ssl://[::1]:9093/1: SSL handshake failed", "other:1", ("::1", 9093)),
        ("GroupCoordinator: kafka:9092: gone", "other:9092", ("other", 9092)),
        ("no listener", "kafka-1:9092,kafka-2:9092", ("kafka-1", 9092)),
        ("no listener", " SSL://kafka-1.example:9093 , kafka-2:9092", ("kafka-1.example", 9093)),
        ("no listener", "kafka-1, kafka-2:9092", ("kafka-2", 9092)),
        ("ssl://kafka:" + "1" * 5_000, "kafka", None),
    ],
)
def test_listener_is_the_one_of_the_complaint_else_the_first(
    complaint: str, servers: str, address: tuple[str, int] | None
) -> None:
    assert _address({"bootstrap.servers": servers}, complaint) == address
