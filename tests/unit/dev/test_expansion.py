"""``dev/bench expansion``: what is told of its figures."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from rich.console import Console

from dev.benchmarks.expansion import (
    FILE,
    PAGE,
    PICTURE,
    RATES,
    Beside,
    Expanded,
    Sizes,
    draw,
    tables,
    verdict,
    with_figures,
)

MEASURED = Expanded(
    sizes=Sizes(keys=1_000, records=2_000),
    machine="a machine",
    beside=(
        Beside(rate=5_000.0, alone=10_000.0, during=9_000.0, copied=4_900.0),
        Beside(rate=None, alone=10_000.0, during=6_000.0, copied=70_000.0),
    ),
    catch_up=3.0,
    read=30_000,
    moved=500,
    moved_bytes=2_500_000,
    begin=0.5,
    takeover=0.75,
    rebuilt=12.0,
    rebuilt_records=40_000,
)


def test_both_sides_are_shown_with_their_ratios() -> None:
    console = Console(file=io.StringIO(), width=150)
    for table in tables(MEASURED):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for shown in (
        "5,000 records/s",
        "0.90",
        "full speed",
        "0.60",
        "500 of 1,000 keys",
        "2.5",
        "0.25",
        "40,000",
    ):
        assert shown in text, shown
    assert verdict(MEASURED) == (
        "runs beside a catch-up against runs alone: 0.90 at 5,000 records/s, 0.60 at full speed; catch-up "
        "and takeover against all over again: 0.31; a machine"
    )


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    draw(MEASURED, first)
    draw(MEASURED, second)
    assert first.read_text() == second.read_text() and "Speed of a run" in first.read_text()


def test_stored_picture_and_page_are_those_of_the_stored_figures(tmp_path: Path) -> None:
    stored = msgspec.json.decode(FILE.read_bytes(), type=Expanded)

    draw(stored, tmp_path / "expansion.svg")

    assert (stored.sizes, [each.rate for each in stored.beside]) == (Sizes(), [*RATES])
    assert (tmp_path / "expansion.svg").read_bytes() == PICTURE.read_bytes()
    text = PAGE.read_text(encoding="utf-8")
    assert with_figures(text, stored) == text
