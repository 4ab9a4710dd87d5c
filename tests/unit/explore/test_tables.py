"""Tables in narrow terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from airflow_kstreams.explore.tables import Table

HEADINGS = (
    "task",
    "node",
    "process-total",
    "process-latency p50",
    "commit-latency avg",
    "restore-rate",
    "lag",
)
ROWS = [
    (f"0_{number}", "KSTREAM-MAP-0000000002", "1,234,567", "20.0 ms", "1.5 ms", "-", "0") for number in (1, 2)
]


def lines(table: Table, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_heading_and_no_number_is_broken_when_a_table_is_wide(width: int) -> None:
    shown = lines(Table(title="Tasks", columns=HEADINGS, rows=ROWS, numbers=5, more=3, keys=2), width)
    assert max(map(len, shown)) <= width
    words = {word for line in shown for word in line.split()}
    assert {word for heading in HEADINGS for word in heading.split()} <= words
    assert {"1,234,567", "20.0", "0_1"} <= words
    pieces = [line for line in shown if line.startswith("Tasks")]
    assert pieces == (
        ["Tasks"] if width == 160 else [f"Tasks ({n} of {len(pieces)})" for n in range(1, len(pieces) + 1)]
    )
    assert sum(line.startswith(" 0_1") for line in shown) == max(1, len(pieces))
    assert shown.count("... and 3 more") == 1


def test_long_text_is_folded_between_words_when_it_does_not_fit() -> None:
    run = "scheduled__2026-01-01T00:00:00+00:00"
    table = Table(title="", columns=("what", "is"), rows=[("state", f"running, run {run}, generation 3")])
    assert f" state   running, run {run}," in lines(table, 60)
