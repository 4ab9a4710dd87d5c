"""The client's own limits follow the topics, unless the user says otherwise."""

from __future__ import annotations

import logging

import pytest

from airflow_kstreams.kafka.delivery import sized, warn_of_small_limit


@pytest.mark.parametrize(
    ("limits", "record_bytes", "batch_bytes"),
    [
        ({}, 1_000_000, 1_000_000),
        ({"a": 1_048_588}, 1_048_588, 1_000_000),
        ({"a": 5_000_000, "b": 20_000}, 5_000_000, 20_000),
        # The broker decides whether it fits when it is compressed.
        ({"b": 20_000}, 1_000_000, 20_000),
        # More than the client takes for the setting.
        ({"a": 2**31 - 1}, 1_000_000_000, 1_000_000),
        ({"a": 0}, 1_000_000, 1),
    ],
)
def test_client_takes_what_the_topics_take(
    limits: dict[str, int], record_bytes: int, batch_bytes: int
) -> None:
    assert sized(limits) == {"message.max.bytes": str(record_bytes), "batch.size": str(batch_bytes)}


@pytest.mark.parametrize(("given", "warned"), [("500000", True), ("5000000", False), ("9000000", False)])
def test_users_own_smaller_limit_is_named(caplog: pytest.LogCaptureFixture, given: str, warned: bool) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_small_limit({"message.max.bytes": given}, {"orders": 5_000_000, "small": 1_000})
    text = "the client setting message.max.bytes = 500000 refuses records that orders takes"
    assert (text in caplog.text) is warned
