"""Brings text into one form that terminals and logs can hold.

Rule: text that others may have written (names, ids, keys, values, errors of libraries and functions) reaches
a terminal or a log only through :func:`printable`, for a terminal obeys control characters, and a line feed
begins a line that this package never wrote. Errors pass it when they are made, log lines by
:func:`package_log`, and what commands print in their tables and lines.

Where a log is read in a viewer that cuts lines at its edge, as Airflow's does, lines are broken as well
(:func:`breaking_lines`).
"""

from __future__ import annotations

import logging
import re
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


#: Widest line that a reader of a log in a browser sees whole.
LOG_COLUMNS = 100
_INDENT = "  "
#: Programs whose command lines the texts of errors hold.
_PROGRAM = re.compile(r"airflow(-kstreams)?|pip|python|kafka-[a-z-]+(\.sh)?")
_END_OF_COMMAND = (",", ";", ".", ":", ")")
_columns: ContextVar[int | None] = ContextVar("columns of a log line", default=None)


def broken(text: str, columns: int = LOG_COLUMNS) -> str:
    r"""Break the lines of a text at spaces, with the parts after the first indented; a word that is longer
    than a line is cut.

    A command that goes on in the next line can be pasted as it stands: its lines end with a backslash.

    >>> print(broken("What to do: give its user the permission and retry", 30))
    What to do: give its user the
      permission and retry
    >>> print(broken("run: airflow-kstreams reset --application-id orders (once)", 36))
    run: airflow-kstreams reset \
      --application-id orders (once)
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def _parts(line: str, columns: int) -> Iterator[str]:
    if len(line) <= columns:
        yield line
        return
    margin = line[: len(line) - len(line.lstrip(" "))]
    part, in_command = margin, False
    for word in line[len(margin) :].split(" "):
        begins = _PROGRAM.fullmatch(word) is not None
        # After a word of a command, a space and a backslash must still fit.
        room = columns - 2 if in_command or begins else columns
        joined = f"{part} {word}" if part.strip() else f"{part}{word}"
        if len(joined) > room and part.strip():
            yield f"{part} \\" if in_command else part
            part, joined = f"{margin}{_INDENT}", f"{margin}{_INDENT}{word}"
        while len(joined) > room:
            yield joined[:room]
            joined = f"{margin}{_INDENT}{joined[room:]}"
        part = joined
        ends = word.startswith("(") or word.endswith(_END_OF_COMMAND)
        in_command = begins or (in_command and not ends)
    yield part


@contextmanager
def breaking_lines(columns: int = LOG_COLUMNS) -> Iterator[None]:
    """Break what this package logs in the block."""
    token = _columns.set(columns)
    try:
        yield
    finally:
        _columns.reset(token)


class _PrintableLines(logging.Filter):
    """Makes each line printable, and the lines of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _silent.get() and record.levelno < logging.ERROR:
            return False
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = printable(text), ()
        columns = _columns.get()
        if columns is not None and len(text) > columns:
            record.msg, record.args = broken(printable(text), columns), ()
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
