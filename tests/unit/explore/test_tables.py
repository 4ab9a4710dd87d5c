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


RUN = "scheduled__2026-01-0{}T00:00:00+00:00"
RUNS = Table(
    title="Runs of shop",
    columns=("run", "begun (UTC)", "state", "took", "in", "out", "lost"),
    rows=[
        (RUN.format(day), "2026-01-01 00:00:05", "finished?", "1 min 30 s", "1,234,567", "1,200,000", "0")
        for day in (1, 2, 2)
    ],
    numbers=4,
    more=3,
)


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_names_are_whole_and_stand_on_a_line_of_their_own_where_figures_leave_no_room(width: int) -> None:
    shown = lines(RUNS, width)
    assert max(map(len, shown)) <= width
    assert shown[-1] == "... and 3 more"
    figures = "2026-01-01 00:00:05 finished? 1 min 30 s 1,234,567 1,200,000 0"
    rows = [" ".join(line.split()) for line in shown if "finished?" in line]
    if width == 120:
        assert rows == [f"{RUN.format(day)} {figures}" for day in (1, 2, 2)]
        return
    assert rows == [figures] * 3
    # Rows that follow each other under one name have it once.
    assert [line for line in shown if "scheduled" in line] == [RUN.format(1), RUN.format(2)]
    assert shown[2:4] == ["run", next(line for line in shown if "begun (UTC)" in line)]


def test_name_that_is_longer_than_the_line_is_folded_and_none_of_it_is_lost() -> None:
    topic = "t" * 249
    table = Table(title="Waiting", columns=("topic", "end", "lag"), rows=[(topic, "7", "5")], numbers=2)
    shown = lines(table, 80)
    assert max(map(len, shown)) <= 80
    assert "".join(line for line in shown if line.startswith("tt")) == topic


def test_short_names_stay_in_their_rows() -> None:
    table = Table(title="", columns=("topic", "found"), rows=[("flights", "late " * 40)])
    assert " flights   late late" in "\n".join(lines(table, 60))
