"""Computes the size of a shape from its text.

Names are set in a monospaced face, whose characters are 0.6 of the font size wide in every common family, so
their width is known without the font.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_kstreams.streams.picture.chart import Shape, ShapeKind

NAME_SIZE = 12.0
NOTE_SIZE = 10.0
NOTE_HEIGHT = 13.0
LINE_HEIGHT = 15.0
PADDING = 9.0
#: Size of the round end of a topic, or the lid of a store or table, within its shape.
CAP = 8.0
#: Kinds that are drawn as cylinders.
CYLINDERS: frozenset[ShapeKind] = frozenset({"store", "table"})
_SIGN = 0.6 * NAME_SIZE
_NOTE_SIGN = 0.6 * NOTE_SIZE
_LONGEST_LINE = 30
_NARROWEST = 96.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A shape's text and size.

    :param lines: lines of the name, which give the name when they are joined.
    :param text_top: top of the text, from the shape's top.
    """

    lines: tuple[str, ...]
    width: float
    height: float
    text_top: float


def label(shape: Shape) -> Label:
    """Return the label and size of a shape."""
    lines = tuple(_wrapped(shape.name))
    widest = max(max(map(_columns, lines)) * _SIGN, _columns(shape.note) * _NOTE_SIGN)
    text = NOTE_HEIGHT + LINE_HEIGHT * len(lines)
    sides = CAP if shape.kind == "topic" else 0.0
    lid = CAP if shape.kind in CYLINDERS else 0.0
    return Label(
        lines=lines,
        width=max(_NARROWEST, widest + 2 * PADDING + 2 * sides + 6),
        height=text + 2 * PADDING + 2.5 * lid - 4,
        text_top=PADDING - 2 + lid * 1.5,
    )


def _columns(text: str) -> int:
    """Return the width of a text in characters; those of East Asian scripts are two wide."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _wrapped(name: str) -> Iterator[str]:
    """Break a long name into lines, after a dash, dot or underscore where there is one in the second half."""
    line = ""
    for sign in name:
        if line and _columns(line + sign) > _LONGEST_LINE:
            end = 1 + max(line.rfind(mark) for mark in "-._ /:")
            end = end if end > len(line) // 2 else len(line)
            yield line[:end]
            line = line[end:]
        line += sign
    yield line
