"""What the page of errors says: the tree, and what recovery each error calls for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import griffe

from dev.reference_pages.docstrings import docstring_of
from dev.reference_pages.entries import Row
from dev.reference_pages.markup import Markup
from dev.reference_pages.public_api import ERRORS, module_at

_TABLE_LINE = re.compile(r"^``(?P<name>\w+)``\s+(?P<recovery>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    """An error of the tree, as Markdown.

    :param depth: how many errors stand above it in the tree.
    :param base: link to the error it derives from, empty for the first one.
    :param retriable: whether running the same thing again can succeed.
    :param recovery: what it calls for; empty for errors that only group others.
    :param attributes: the typed fields that it adds to those of its base.
    """

    name: str
    link: str
    depth: int
    base: str
    retriable: str
    recovery: str
    text: str
    attributes: tuple[Row, ...]


def error_entries(package: griffe.Module, markup: Markup) -> list[ErrorEntry]:
    """Return the errors, each below the one it derives from."""
    module = module_at(package, ERRORS)
    if module is None or module.docstring is None:
        raise LookupError(f"{ERRORS} is no module with a docstring")
    recoveries = {line["name"]: line["recovery"] for line in _TABLE_LINE.finditer(module.docstring.value)}
    tree = _below("Exception", module.classes, depth=0)
    return [_entry(error, depth, recoveries.get(error.name, ""), markup) for error, depth in tree]


def _below(
    parent: str, classes: Mapping[str, griffe.Class], *, depth: int
) -> Iterator[tuple[griffe.Class, int]]:
    for error in classes.values():
        if parent in map(str, error.bases):
            yield error, depth
            yield from _below(error.name, classes, depth=depth + 1)


def _entry(error: griffe.Class, depth: int, recovery: str, markup: Markup) -> ErrorEntry:
    return ErrorEntry(
        name=error.name,
        link=markup.link(error.path),
        depth=depth,
        base=next((markup.link(base.path) for base in error.mro() if base.module == error.module), ""),
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
    )


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
