"""The judge of the demo's tables finds each way in which one can be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dev.flight_demo.tables_oracle import FoundTable, compared

SUMS = {"carriers": 2, "flights": 5}
ROWS: dict[str, dict[str, Any]] = {
    "UA": {"flights": 3, "mean_delay_minutes": 1.5},
    "B6": {"flights": 2, "mean_delay_minutes": None},
}
#: Each run, and whether it had nothing new.
RUNS = {"one": False, "two": False, "nothing-new": True}
RIGHT = FoundTable(sums=SUMS, rows=ROWS, runs=("one", "two"))


def unequal(delta: FoundTable) -> list[str]:
    """What differs if the Iceberg table is right, and the Delta table is as given."""
    lines = compared(SUMS, ROWS, RUNS, {"Iceberg": RIGHT, "Delta": delta})
    assert {line.found["Iceberg"] == line.expected for line in lines} == {True}
    return [line.what for line in lines if not line.is_equal]


def test_nothing_differs_when_sums_rows_and_snapshots_are_right() -> None:
    assert unequal(RIGHT) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sums": {"carriers": 2, "flights": 4}}, ["flights"]),
        ({"rows": ROWS | {"UA": {"flights": 3, "mean_delay_minutes": 1.25}}}, ["carriers with another row"]),
        ({"rows": {"UA": ROWS["UA"]}}, ["carriers with another row"]),
        ({"rows": ROWS | {"ZZ": ROWS["B6"]}}, ["carriers with another row"]),
        ({"runs": ("one",)}, ["snapshots of two"]),
        ({"runs": ("one", "two", "two")}, ["snapshots of two"]),
        ({"runs": ("one", "two", "nothing-new")}, ["snapshots of nothing-new"]),
        ({"runs": ("one", "two", "")}, ["snapshots of no such run"]),
        ({"runs": ("one", "other")}, ["snapshots of two", "snapshots of no such run"]),
    ],
)
def test_difference_is_found_when_one_table_is_wrong(change: dict[str, Any], what: list[str]) -> None:
    assert unequal(replace(RIGHT, **change)) == what
