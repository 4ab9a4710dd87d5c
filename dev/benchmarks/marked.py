"""The part of a page that holds a benchmark's figures, between marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_END = "<!-- end of figures -->\n"


def with_figures(page: str, command: str, lines: Iterable[str]) -> str:
    """Return a page with these lines between the marks of a command.

    :param command: that measures and writes them, such as ``dev/bench async``.
    :raises ValueError: it has no such marks.
    """
    mark = f"<!-- figures: {command} -->\n"
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {mark.strip()} with its end")
    return "".join((before, begin, "\n".join(lines), "\n", end, after))


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of Markdown, whose columns behind the first are figures."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
