"""What the page of errors says: codes, tree, and of each an example, what to check, and the way out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

from dev.reference_pages.docstrings import docstring_of
from dev.reference_pages.entries import Row
from dev.reference_pages.markup import Markup
from dev.reference_pages.public_api import CODE, ERRORS, error_classes, module_at

#: What the classes do not say of their errors, by code.
EXAMPLES = Path(__file__).parent / "error_examples.toml"
_TABLE_LINE = re.compile(r"^``(?P<name>\w+)``\s+(?P<recovery>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorExample:
    """An error as a test makes it (``@pytest.mark.error_example(code)``).

    :param cause: its line of cause.
    :param fix: its line of remedy; empty if it has none.
    :param check: how to see that this is what happened.
    """

    cause: str
    fix: str = ""
    check: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    """An error of the tree, as Markdown.

    :param code: what names it in texts; empty for errors that only group others.
    :param depth: how many errors stand above it in the tree.
    :param base: link to the error it derives from, empty for the first one.
    :param retriable: whether running the same thing again can succeed.
    :param recovery: what it calls for; empty for errors that only group others.
    :param attributes: the typed fields that it adds to those of its base.
    :param example: None for errors that only group others.
    """

    name: str
    code: str
    link: str
    depth: int
    base: str
    retriable: str
    recovery: str
    text: str
    attributes: tuple[Row, ...]
    example: ErrorExample | None


@cache
def error_examples() -> Mapping[str, ErrorExample]:
    """Return the examples by code."""
    told = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))
    return {code: ErrorExample(**example) for code, example in told.items()}


def error_entries(package: griffe.Module, markup: Markup) -> list[ErrorEntry]:
    """Return the errors, each below the one it derives from."""
    module = module_at(package, ERRORS)
    if module is None or module.docstring is None:
        raise LookupError(f"{ERRORS} is no module with a docstring")
    recoveries = {line["name"]: line["recovery"] for line in _TABLE_LINE.finditer(module.docstring.value)}
    tree = _below("Exception", error_classes(package), depth=0)
    return [_entry(error, depth, recoveries.get(error.name, ""), markup) for error, depth in tree]


def _below(parent: str, classes: Sequence[griffe.Class], *, depth: int) -> Iterator[tuple[griffe.Class, int]]:
    for error in classes:
        if parent in map(str, error.bases):
            yield error, depth
            yield from _below(error.name, classes, depth=depth + 1)


def _entry(error: griffe.Class, depth: int, recovery: str, markup: Markup) -> ErrorEntry:
    code = code_of(error)
    return ErrorEntry(
        name=error.name,
        code=code,
        link=markup.link(error.path),
        depth=depth,
        base=next((markup.link(base.path) for base in error.mro() if _is_error(base)), ""),
        retriable=_retriable(error),
        recovery=markup.cell(recovery, error),
        text=markup.prose(docstring_of(error).text, error),
        attributes=tuple(
            Row(
                name=f"`{name}`",
                type=markup.annotation(_type_of(error, name)),
                meaning=markup.cell(text, error),
            )
            for name, text in docstring_of(error).parameters.items()
        ),
        example=error_examples()[code] if code else None,
    )


def _is_error(base: griffe.Class) -> bool:
    return base.module.path == ERRORS


def code_of(error: griffe.Class) -> str:
    """Return the code that a class has of its own; empty for one that only groups others."""
    value = error.members.get(CODE)
    return str(value.value).strip("'\"") if isinstance(value, griffe.Attribute) else ""


def _retriable(error: griffe.Class) -> str:
    for owner in (error, *error.mro()):
        if "is_retriable" in owner.members and owner.name != "KStreamsError":
            return "depends"
        if "retriable" in owner.members:
            return "yes" if str(owner["retriable"].value) == "True" else "no"
    raise LookupError(f"{error.path} does not derive from KStreamsError")


def _type_of(error: griffe.Class, name: str) -> griffe.Expr | str | None:
    for owner in (error, *error.mro()):
        if name in owner.attributes and owner.attributes[name].annotation is not None:
            return owner.attributes[name].annotation
        constructor = owner.members.get("__init__")
        if isinstance(constructor, griffe.Function) and name in constructor.parameters:
            return constructor.parameters[name].annotation
    return None
