"""Brings text into one form that terminals and logs can hold.

Rule: text that others may have written (names, ids, keys, values, errors of libraries and functions) reaches
a terminal or a log only through :func:`printable`, for a terminal obeys control characters, and a line feed
begins a line that this package never wrote. Errors pass it when they are made, log lines by
:func:`package_log`, and what commands print in their tables and lines.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def printable(text: str) -> str:
    r"""Return text for one line of output: characters that cannot be printed are escaped as in Python.

    Among them are line feeds, control characters, those that turn the direction of writing, invisible ones,
    and halves of surrogate pairs.

    >>> print(printable("two\nlines"))
    two\nlines
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def printable_lines(text: str) -> str:
    r"""Return text of several lines for output; only line feeds end a line.

    >>> print(printable_lines("two\nlines\r"))
    two
    lines\r
    """
    return "\n".join(map(printable, text.split("\n")))


class _PrintableLines(logging.Filter):
    """Makes each line printable, and the lines of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _silent.get() and record.levelno < logging.ERROR:
            return False
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = printable(text), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = "\n".join(map(_printable_part, traceback.format_exception(record.exc_info[1])))
        return True


def _printable_part(part: str) -> str:
    """Return a part of a traceback: lines of the program, or the one line of an error's text."""
    part = part.rstrip("\n")
    is_program = part.startswith((" ", "\n", "Traceback (most recent"))
    return printable_lines(part) if is_program else printable(part)


_silent = ContextVar("silent", default=False)


@contextmanager
def without_log_lines() -> Iterator[None]:
    """Leave out this package's log lines in the block, errors excepted, in the thread that runs it: for a
    look that returns what the lines say.
    """
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


_FILTER = _PrintableLines()


def package_log(name: str) -> logging.Logger:
    """Return the log of a module of this package; its lines are printable."""
    log = logging.getLogger(name)
    log.addFilter(_FILTER)  # once, however often it is asked for
    return log
