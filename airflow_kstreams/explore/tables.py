"""Shows tables, and how far a long reading is, in terminals and notebooks."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_kstreams.streams.printable import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_TEXT_COLUMNS = 160
_HTML_CELL = "padding: 2px 10px; vertical-align: top; white-space: pre-wrap; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under headings.

    Text is shown as it is: no markup, no control character takes effect.

    :param title: above the table.
    :param columns: headings.
    :param rows: a text for each column.
    :param numbers: number of last columns with numbers, which are aligned right.
    :param more: number of further rows that are not shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: int = 0
    more: int = 0

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=_TEXT_COLUMNS, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich__(self) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(printable(self.title), style="bold"),
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for place, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "right" if self._is_number(place) else "left"
            table.add_column(Text(printable(column)), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        if self.more:
            table.caption = Text(f"... and {self.more:,} more")
            table.caption_justify = "left"
        return table

    def _repr_html_(self) -> str:
        return "".join(self._html())

    def _is_number(self, place: int) -> bool:
        return place >= len(self.columns) - self.numbers

    def _html(self) -> Iterator[str]:
        yield f"<table><caption style='text-align: left'><b>{_escaped(self.title)}</b></caption><thead><tr>"
        aligns = [
            f"text-align: {'right' if self._is_number(place) else 'left'}"
            for place in range(len(self.columns))
        ]
        for column, align in zip(self.columns, aligns, strict=True):
            yield f"<th style='{_HTML_CELL}{align}'>{_escaped(column)}</th>"
        yield "</tr></thead><tbody>"
        for row in self.rows:
            cells = zip(row, aligns, strict=True)
            yield "<tr>"
            yield from (f"<td style='{_HTML_CELL}{align}'>{_escaped(cell)}</td>" for cell, align in cells)
            yield "</tr>"
        yield "</tbody></table>"
        if self.more:
            yield f"<p>... and {self.more:,} more</p>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


#: Called with how many offsets were read so far, and how many there are to read.
Progress = Callable[[int, int], None]


@contextmanager
def shown_progress(what: str, *, show: bool = True) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs, in a terminal or a notebook only."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(show_speed=True),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    seen = show and (console.is_terminal or console.is_jupyter)
    with progress.Progress(*columns, console=console, transient=True, disable=not seen) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
