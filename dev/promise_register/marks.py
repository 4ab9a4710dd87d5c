"""Marks of promises on the pages, and sentences that promise something without a mark.

A mark is a comment that readers do not see, ``<!-- promise: stops-never-move -->``, with commas between
several ids. It stands on a line of its own: the last one of the paragraph or list item that makes the
promise, the first one above a table. Every paragraph, list item and table with a word that promises has a
mark, or
``<!-- no promise -->`` where the word promises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.promise_register.register import ROOT

__all__ = ["PAGES", "Block", "blocks", "marked", "unmarked"]

#: The pages that speak to users; ``guarantees.md`` and ``benchmarks.md`` are written by commands, and
#: ``architecture.md`` and ``contributing.md`` speak to those who change the code.
_NOT_FOR_USERS = {"guarantees.md", "benchmarks.md", "architecture.md", "contributing.md"}
PAGES: tuple[Path, ...] = (
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in _NOT_FOR_USERS),
)
_PROMISING = re.compile(
    r"\b(never|always|exactly|refuse[sd]?|guarantee[sd]?|nothing|no record|cannot|whatever|lost|loses?|"
    r"doubled?|doubles|twice)\b",
    re.IGNORECASE,
)
_MARK = re.compile(r"<!-- promise: ([\w, -]+?) -->")
_EXEMPT = "<!-- no promise -->"
_CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_ITEM = re.compile(r"^(?=(?:[-*]|\d+\.) )", re.MULTILINE)
#: What is quoted is no sentence, a link's address neither.
_NO_WORDS = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A paragraph, a list item or a table of a page."""

    text: str
    line: int

    @property
    def promises(self) -> tuple[str, ...]:
        """The ids that it is marked with."""
        return tuple(name.strip() for mark in _MARK.findall(self.text) for name in mark.split(","))

    @property
    def words(self) -> Sequence[str]:
        """The words in it that promise."""
        return _PROMISING.findall(_NO_WORDS.sub(" ", self.text))

    @property
    def is_unmarked(self) -> bool:
        """Whether it seems to promise something that no mark names."""
        return bool(self.words) and not self.promises and _EXEMPT not in self.text


def blocks(text: str) -> Iterator[Block]:
    """Cut a page into what a mark stands for; code is left out, headings are."""
    # Code gives way to as many empty lines, so that the numbers of the lines stay.
    for code in (_CODE_BLOCK, _INDENTED):
        text = code.sub(lambda found: "\n" * found.group().count("\n"), text)
    at = 0
    for paragraph in re.split(r"(\n\s*\n)", text):
        for part in [paragraph] if paragraph.startswith("|") else _ITEM.split(paragraph):
            if part.strip() and not part.startswith("#"):
                yield Block(text=part, line=text.count("\n", 0, at) + 1)
            at += len(part)


def marked(pages: Sequence[Path] = PAGES) -> Mapping[str, Sequence[Path]]:
    """Return where promises are made: id -> pages, in their order."""
    found: dict[str, list[Path]] = {}
    for page in pages:
        for block in blocks(page.read_text(encoding="utf-8")):
            for promise in block.promises:
                if page not in found.setdefault(promise, []):
                    found[promise].append(page)
    return found


def unmarked(text: str) -> Iterator[Block]:
    """Return what seems to promise something on a page, and has no mark."""
    return (block for block in blocks(text) if block.is_unmarked)
