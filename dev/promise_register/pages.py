"""Reads the lists of promises at the ends of the pages, and finds sentences that promise something unlisted.

A list is a comment, which readers do not see. Each line has the ids of promises, and words of the paragraph,
list item or table that makes them::

    <!-- promises
    stops-never-move: stop offsets never move
    no promise: nothing else to install
    -->

Whatever has a word that promises is listed, under ``no promise`` if the word promises nothing. The words are
in one place of the page, so a sentence that is rewritten takes its line of the list along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.promise_register.register import ROOT

__all__ = ["PAGES", "Block", "blocks", "listed", "misquoted", "unlisted"]

#: The pages that speak to users: README, the shelves for them, and the pages of the reference that are
#: written by hand. Generated pages say what docstrings and this register say, and ``internals/`` speaks to
#: those who change the code.
_SHELVES = ("tutorials", "how-to", "explanation")
_OF_REFERENCE = ("glossary.md", "installing.md", "kafka-tools.md")
PAGES: tuple[Path, ...] = (
    ROOT / "README.md",
    *(ROOT / "docs" / "reference" / name for name in _OF_REFERENCE),
    *(page for shelf in _SHELVES for page in sorted((ROOT / "docs" / shelf).glob("*.md"))),
)
_PROMISING = re.compile(
    r"\b(never|always|exactly|refuse[sd]?|guarantee[sd]?|nothing|no record|cannot|whatever|lost|loses?|"
    r"doubled?|doubles|twice)\b",
    re.IGNORECASE,
)
_LIST = re.compile(r"^<!-- promises\n(.*?)^-->\s*\Z", re.MULTILINE | re.DOTALL)
_EXEMPT = "no promise"
_CODE_BLOCK = re.compile(r"^ *+```.*?^ *+```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_ITEM = re.compile(r"^(?=(?:[-*]|\d+\.) )", re.MULTILINE)
#: What is quoted is no sentence, a link's address neither.
_NO_WORDS = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A paragraph, a list item or a table of a page.

    :param text: as it stands on the page.
    :param line: where it begins.
    :param names: what the list at the page's end names it under, ``no promise`` included.
    """

    text: str
    line: int
    names: tuple[str, ...]

    @property
    def promises(self) -> tuple[str, ...]:
        """The ids of the promises that it makes."""
        return tuple(name for name in self.names if name != _EXEMPT)

    @property
    def is_exempt(self) -> bool:
        """Whether its words promise nothing."""
        return _EXEMPT in self.names

    @property
    def words(self) -> Sequence[str]:
        """The words in it that promise."""
        return _PROMISING.findall(_NO_WORDS.sub(" ", self.text))


def blocks(text: str) -> Iterator[Block]:
    """Cut a page into what a line of its list stands for; code and headings are left out."""
    quotes = _quotes(text)
    for part, line in _parts(_LIST.sub("", text)):
        held = _one_line(part)
        names = (name for names, words in quotes if words in held for name in names)
        yield Block(text=part, line=line, names=tuple(dict.fromkeys(names)))


def listed(pages: Sequence[Path] = PAGES) -> Mapping[str, Sequence[Path]]:
    """Return where promises are made: id -> pages, in their order."""
    found: dict[str, list[Path]] = {}
    for page in pages:
        for block in blocks(page.read_text(encoding="utf-8")):
            for promise in block.promises:
                if page not in found.setdefault(promise, []):
                    found[promise].append(page)
    return found


def unlisted(text: str) -> Iterator[Block]:
    """Return what seems to promise something on a page, and is not listed at its end."""
    return (block for block in blocks(text) if block.words and not block.names)


def misquoted(text: str) -> Iterator[str]:
    """Return what is wrong with a page's list: words that are not on the page, or in several places of it."""
    held = [_one_line(part) for part, _ in _parts(_LIST.sub("", text))]
    for names, words in _quotes(text):
        count = sum(words in each for each in held) if words else 0
        if count != 1:
            yield f"{', '.join(names)}: {words!r} stands in {count} paragraphs, expected one"


def _quotes(text: str) -> Sequence[tuple[tuple[str, ...], str]]:
    found = _LIST.search(text)
    lines = found[1].splitlines() if found else []
    cut = [line.partition(":") for line in lines]
    return [(tuple(name.strip() for name in names.split(",")), words.strip()) for names, _, words in cut]


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Return the paragraphs, list items and tables of a page, each with its line."""
    # Code gives way to as many empty lines, so that the numbers of the lines stay.
    for code in (_CODE_BLOCK, _INDENTED):
        text = code.sub(lambda found: "\n" * found.group().count("\n"), text)
    at = 0
    for paragraph in re.split(r"(\n\s*\n)", text):
        for part in [paragraph] if paragraph.startswith("|") else _ITEM.split(paragraph):
            if part.strip() and not part.startswith("#"):
                yield part, text.count("\n", 0, at) + 1
            at += len(part)


def _one_line(text: str) -> str:
    return " ".join(text.split())
