"""An upsert says how much it has rewritten."""

from __future__ import annotations

import logging

import pytest

from airflow_kstreams.tables.upserts.said_sizes import say_rewritten


@pytest.mark.parametrize(
    ("rewritten", "new", "level", "said"),
    [
        (2_000, 100, logging.INFO, "2,000 bytes rewritten, 20.0 for each of new rows"),
        (2_100, 100, logging.WARNING, "2,100 bytes rewritten, 21.0 for each of new rows"),
        (0, 100, logging.INFO, "0 bytes rewritten, 0.0 for each of new rows"),
    ],
)
def test_bytes_rewritten_are_said_and_warned_of_above_twenty_for_a_new_one(
    caplog: pytest.LogCaptureFixture, rewritten: int, new: int, level: int, said: str
) -> None:
    with caplog.at_level(logging.INFO):
        say_rewritten("lake.customers", rewritten_bytes=rewritten, new_bytes=new)
    ((_, found, text),) = caplog.record_tuples
    assert found == level
    assert text.startswith(f"table lake.customers: {said}")


def test_nothing_is_said_when_there_is_nothing_new(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        say_rewritten("lake.customers", rewritten_bytes=0, new_bytes=0)
    assert not caplog.records
