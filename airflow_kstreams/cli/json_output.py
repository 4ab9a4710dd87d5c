"""Prints results and errors as JSON.

Rule: with ``--json`` stdout holds one JSON document or nothing, and an error is one JSON object in one line
of stderr, an :class:`ErrorDocument`. Each document is encoded from a ``msgspec.Struct`` or a dataclass. Its
schema, which ``dev/reference`` writes to ``docs/reference/json/``, is made from the same type:
``cli.documents.by_command`` names it.

All text is ASCII with JSON's escapes, so text of others moves no cursor and turns no direction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import typer

_INDENT = 2


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a command with --json: one line of stderr.

    :param error: class of the error, as docs/reference/errors.md lists them, or UsageError.
    :param code: what names the error in the reference, e.g. ``KS-RUN-002``; empty for a wrong command line.
    :param cause: the event, its place, the finding and the expectation.
    :param fix: the remedy; empty if there is none.
    :param retriable: whether a retry without a change can succeed.
    :param exit_code: exit code of the command: 1, or 2 where the command line itself is wrong.
    """

    error: str
    code: str
    cause: str
    fix: str
    retriable: bool
    exit_code: int


def print_json(document: object) -> None:
    """Print a command's one document.

    :param document: a struct or dataclass whose type is in ``DOCUMENTS``.
    """
    typer.echo(_text(document, indent=_INDENT))


def print_json_list(name: str, elements: Iterable[object], document: Callable[[], object]) -> None:
    """Print one document whose first field is a list that memory does not need to hold. An error meanwhile
    leaves it incomplete.

    :param name: name of the list.
    :param elements: elements of the list, each printed in a line of its own.
    :param document: makes the document, with an empty list, when all elements are printed.
    """
    separator = ""
    for element in elements:
        typer.echo(separator or f'{{\n  "{name}": [', nl=False)
        typer.echo(f"\n    {_text(element)}", nl=False)
        separator = ","
    end = _text(document(), indent=_INDENT)
    typer.echo(f"\n  {end[end.index(']') :]}" if separator else end)


def plain_value(value: Any) -> Any:
    """Return a value of a user's as JSON can hold it: what is of no type of JSON's, as Python prints it."""
    try:
        return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
    except Exception:  # a value may hold anything, e.g. keys of a dict that are no text
        return repr(value)


def error_line(document: ErrorDocument) -> str:
    """Return an error as one line."""
    return _text(document)


def _text(document: object, *, indent: int | None = None) -> str:
    plain = msgspec.to_builtins(document)
    try:
        text = json.dumps(plain, indent=indent, allow_nan=False)
    except ValueError:  # a number that is none
        text = json.dumps(_finite(plain), indent=indent)
    return text.replace("\x7f", "\\u007f")


def _finite(plain: Any) -> Any:
    """Return lists, dicts and values with null for numbers that JSON does not have."""
    if isinstance(plain, dict):
        return {name: _finite(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_finite(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
