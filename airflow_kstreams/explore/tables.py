"""Shows tables, and how far a long reading is, in terminals and notebooks."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from airflow_kstreams.streams.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table as RichTable
    from rich.text import Text

_TEXT_COLUMNS = 160
#: Words up to this length are not broken where a table is narrow.
_UNBROKEN_COLUMNS = 20
#: Spaces before each cell of a row that stands below its name.
_INDENT = 2
_HTML_CELL = "padding: 2px 10px; vertical-align: top; white-space: pre-wrap; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under headings.

    Text is shown as it is: no markup, no control character takes effect. Where the first column's names leave
    no room for the others, each name stands whole on a line of its own, above its rows.

    :param title: above the table.
    :param columns: headings.
    :param rows: a text for each column.
    :param numbers: number of last columns with numbers, which are aligned right.
    :param more: number of further rows that are not shown.
    :param keys: number of first columns that name a row: they are repeated where a table is too wide for one
        piece.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: int = 0
    more: int = 0
    keys: int = 1

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=_TEXT_COLUMNS, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable | Text | str]:
        from rich.cells import cell_len

        narrowest, widest = [], []
        for place, column in enumerate(self.columns):
            cells = [printable(row[place]) for row in self.rows]
            widest.append(max(map(cell_len, (printable(column), *cells))))
            # A heading breaks between words, a number nowhere, and a long name only if it must.
            words = [min(_longest_word(cell), _UNBROKEN_COLUMNS) for cell in cells]
            kept = map(cell_len, cells) if self._is_number(place) else words
            narrowest.append(max((_longest_word(printable(column)), *kept)))
        room = options.max_width - _edges(len(self.columns))
        name = max((_longest_word(printable(row[0])) for row in self.rows), default=0)
        if name > _UNBROKEN_COLUMNS and self.keys == 1 and not self._is_number(0):
            if name + sum(narrowest[1:]) <= room:
                narrowest[0] = name
            elif sum(narrowest[1:]) + _INDENT * len(narrowest[1:]) <= options.max_width:
                room = options.max_width - _INDENT * len(narrowest[1:])
                yield from self._under_names(_shared(narrowest[1:], widest[1:], room))
                return
        pieces = list(self._pieces(narrowest, options.max_width))
        for number, places in enumerate(pieces, 1):
            title = self.title if len(pieces) == 1 else f"{self.title} ({number} of {len(pieces)})"
            room = options.max_width - _edges(len(places))
            widths = _shared([narrowest[each] for each in places], [widest[each] for each in places], room)
            if number > 1:
                yield ""
            yield self._piece(title, dict(zip(places, widths, strict=True)), last=number == len(pieces))

    def _under_names(self, widths: Sequence[int]) -> Iterator[RichTable | Text | str]:
        """Yield each name on a line of its own, and below it its rows.

        :param widths: of the columns behind the first one.
        """
        from rich.table import Table as RichTable
        from rich.text import Text

        def lines(rows: Iterable[Sequence[str]], style: str = "") -> RichTable:
            table = RichTable(box=None, show_header=False, padding=(0, 0, 0, _INDENT))
            for place, width in enumerate(widths, 1):
                table.add_column(justify=self._justified(place), overflow="fold", width=width)
            for row in rows:
                table.add_row(*(Text(printable(cell), style=style) for cell in row[1:]))
            return table

        yield Text(printable(self.title), style="bold")
        yield ""
        yield Text(printable(self.columns[0]), style="bold")
        yield lines([self.columns], "bold")
        yield Text("\u2500" * (sum(widths) + _INDENT * len(widths)))
        for name, rows in groupby(self.rows, key=itemgetter(0)):
            yield Text(printable(name), overflow="fold")
            yield lines(rows)
        if self.more:
            yield Text(f"... and {self.more:,} more")

    def _pieces(self, narrowest: Sequence[int], width: int) -> Iterator[list[int]]:
        """Yield the columns of each piece, by their places: as many as fit, the keys before them."""
        keys = [*range(self.keys)]
        piece = [*keys]
        for place in range(self.keys, len(self.columns)):
            wanted = [*piece, place]
            if (
                len(piece) > len(keys)
                and sum(narrowest[each] for each in wanted) + _edges(len(wanted)) > width
            ):
                yield piece
                wanted = [*keys, place]
            piece = wanted
        yield piece

    def _piece(self, title: str, widths: Mapping[int, int], *, last: bool) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(printable(title), style="bold"),
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for place, width in widths.items():
            heading = Text(printable(self.columns[place]))
            table.add_column(heading, justify=self._justified(place), overflow="fold", width=width)
        for row in self.rows:
            table.add_row(*(Text(printable(row[place])) for place in widths))
        if self.more and last:
            table.caption = Text(f"... and {self.more:,} more")
            table.caption_justify = "left"
        return table

    def _repr_html_(self) -> str:
        return "".join(self._html())

    def _is_number(self, place: int) -> bool:
        return place >= len(self.columns) - self.numbers

    def _justified(self, place: int) -> Literal["left", "right"]:
        return "right" if self._is_number(place) else "left"

    def _html(self) -> Iterator[str]:
        yield f"<table><caption style='text-align: left'><b>{_escaped(self.title)}</b></caption><thead><tr>"
        aligns = [f"text-align: {self._justified(place)}" for place in range(len(self.columns))]
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


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split(" ")))


def _edges(columns: int) -> int:
    """Return the width of what a table has beside the text of its columns."""
    return 3 * columns - 1


def _shared(narrowest: Sequence[int], widest: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns: what they need, or equal shares of the room beyond the narrowest."""
    widths = [*narrowest]
    left = max(0, room - sum(widths))
    by_need = sorted(range(len(widths)), key=lambda place: widest[place] - widths[place])
    for number, place in enumerate(by_need):
        share = min(widest[place] - widths[place], left // (len(by_need) - number))
        widths[place] += share
        left -= share
    return widths


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
