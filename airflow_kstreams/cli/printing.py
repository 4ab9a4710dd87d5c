"""Prints tables and notes of commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kstreams.explore.tables import Table

_PIPED_COLUMNS = 160


def show(tables: Iterable[Table], *, notes: Iterable[str] = ()) -> None:
    """Print tables, an empty line after each, then notes."""
    from rich.console import Console

    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # A pipe or a file has no width to fit.
        console = Console(width=_PIPED_COLUMNS)
    for table in tables:
        console.print(table)
        console.print()
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=not console.is_terminal)
