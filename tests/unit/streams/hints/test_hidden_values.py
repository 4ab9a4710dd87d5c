"""Texts of errors without the parts that may come from a record."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams.hints.hidden_values import without_values

pytestmark = pytest.mark.promise("errors-hold-no-values")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("KeyError: 'canary'", "KeyError: '***'"),
        ("base 10: 'canary and no end", "base 10: '***"),
        ("base 10: 'canary \\' and no end", "base 10: '***"),
        ("base 10: 'canary \\\\' and its end", "base 10: '***' and its end"),
        ("base 10: 'a lone backslash at the end\\", "base 10: '***"),
        ("of two lines: 'canary\n\\\n canary'", "of two lines: '***'"),
        ("b'canary' and b\"canary", "b'***' and b\"***"),
        ("no field 'amount' in 'canary'", "no field 'amount' in '***'"),
        ("no field 'unit' in 12345", "no field '***' in ***"),
        ("the customers' list isn't closed", "the customers' list isn't closed"),
    ],
)
def test_quoted_parts_and_numbers_are_hidden_unless_they_are_words_of_the_program(
    text: str, shown: str
) -> None:
    assert without_values(text, own="an amount\nof units") == shown


@pytest.mark.promise("no-record-hangs-a-task")
def test_long_text_is_cut_before_it_is_searched() -> None:
    text = "refused: " + " ".join(f"'canary{number:06}'" for number in range(70_000)) + " 123"
    shown = without_values(text, own="program")
    assert shown.startswith("refused: '***' '***'")
    assert shown.endswith(" ... (cut)")
    assert "canary" not in shown
    assert len(shown) < 20_000


def test_number_is_not_shown_in_part_when_the_text_is_cut_within_it() -> None:
    for length in range(9_980, 10_001):
        assert "9" not in without_values("a" * length + " 98765432101234567890", own="")
