"""Durations and times as people read them: one form for each, in commands, logs, findings and notebooks."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams.figures.time_texts import ago_text, duration_text, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.0042, "0.0042 s"),
        (0.4, "0.4 s"),
        (9.97, "10 s"),
        (36.2, "36 s"),
        (59.7, "1 min"),
        (252, "4 min 12 s"),
        (7_500, "2 h 5 min"),
        (86_399, "23 h 59 min"),
        (100_000, "1 day 3 h"),
        (7 * 86_400, "7 days"),
        (1_234 * 86_400, "1,234 days"),
    ],
)
def test_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds * 1000) == text


def test_time_that_has_passed_has_the_unit_that_suits_it() -> None:
    passed = (-5, 0, 999, 59_000, 60_000, 119_000, 7_199_000, 7_200_000, 48 * 3_600_000)
    words = ["just now", "just now", "just now", "59 s", "1 min", "1 min", "119 min", "2 h", "2 days"]
    assert [ago_text(each, 0).removesuffix(" ago") for each in passed] == words


def test_time_is_utc() -> None:
    assert time_text(1_767_225_600_999) == "2026-01-01 00:00:00"
