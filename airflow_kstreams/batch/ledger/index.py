"""Finds the entry of each run in the ledger: a tree by the hash of the run id, whose pages hold offsets.

A page is a leaf, which gives offsets of entries by hash, or has a page for each next digit of the hash. A
leaf that grows beyond what it may hold becomes a page of leaves. Each page is a record of the ledger under
the digits that lead to it; the root is in the checkpoint. An insertion writes the pages on its path anew,
each after those that it points to.

A hash is no proof, and neither is an offset: a reader that looks up an entry compares its key, and one that
follows a pointer to a page compares the digits.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

INDEX_KEY = "__index__/"

#: Entries of a leaf; 64 leaves make a page full, too: one digit has 64 values.
LEAF_ENTRIES = 64
_HASH_BYTES = 9


class IndexPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of the index.

    :param runs: of a leaf: offsets of entries by hash; more than one only where hashes are equal.
    :param pages: of another page: the offset of the next page's record, by digit.
    """

    runs: dict[str, tuple[int, ...]] = {}
    pages: dict[str, int] = {}


class IndexChange(NamedTuple):
    """An entry that was written.

    :param digest: hash of the run id, or data interval, by which it is found.
    :param offset: of its record.
    :param replaced: offset of the entry that it replaces, -1 if there was none.
    """

    digest: str
    offset: int
    replaced: int = -1


#: Returns the page whose key is some digits, given the offset that points to it.
LoadPage = Callable[[str, int], IndexPage]


def digest_of(text: str) -> str:
    """Return the hash of the text by which an entry is found, as digits."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).digest()).decode()


def digest_of_interval(interval_ms: tuple[int, int]) -> str:
    """Return the hash of a data interval; no run id is like its text."""
    return digest_of("__interval__/{}/{}".format(*interval_ms))


def look_up(root: IndexPage, digest: str, load: LoadPage) -> tuple[int, ...]:
    """Return the offsets of the entries that may be found by something with this hash."""
    page, depth = root, 0
    while page.pages:
        depth += 1
        if digest[depth - 1] not in page.pages:
            return ()
        page = load(digest[:depth], page.pages[digest[depth - 1]])
    return page.runs.get(digest, ())


def updated(
    root: IndexPage, changes: Iterable[IndexChange], load: LoadPage, *, first_offset: int
) -> tuple[IndexPage, list[tuple[str, IndexPage]]]:
    """Insert entries.

    :param first_offset: of the first page that is written.
    :return: the new root, and the pages to write, in order, with the digits that lead to them.
    """
    written: list[tuple[str, IndexPage]] = []

    def write(digits: str, page: IndexPage) -> int:
        written.append((digits, page))
        return first_offset + len(written) - 1

    ordered = sorted(changes, key=attrgetter("digest"))
    return _updated(root, "", ordered, load, write), written


def _updated(
    page: IndexPage,
    digits: str,
    changes: list[IndexChange],
    load: LoadPage,
    write: Callable[[str, IndexPage], int],
) -> IndexPage:
    if not page.pages:
        return _split(_inserted(page.runs, changes), digits, write)
    pages = dict(page.pages)
    for digit, of_digit in groupby(changes, key=lambda change: change.digest[len(digits)]):
        found = load(digits + digit, pages[digit]) if digit in pages else IndexPage()
        pages[digit] = write(digits + digit, _updated(found, digits + digit, list(of_digit), load, write))
    return IndexPage(pages=pages)


def _inserted(
    runs: Mapping[str, tuple[int, ...]], changes: Iterable[IndexChange]
) -> dict[str, tuple[int, ...]]:
    found = dict(runs)
    for change in changes:
        others = tuple(at for at in found.get(change.digest, ()) if at != change.replaced)
        found[change.digest] = (*others, change.offset)
    return found


def _split(
    runs: dict[str, tuple[int, ...]], digits: str, write: Callable[[str, IndexPage], int]
) -> IndexPage:
    if len(runs) <= LEAF_ENTRIES:
        return IndexPage(runs=runs)
    pages: dict[str, int] = {}
    for digit, of_digit in groupby(sorted(runs), key=lambda digest: digest[len(digits)]):
        leaf = {digest: runs[digest] for digest in of_digit}
        pages[digit] = write(digits + digit, _split(leaf, digits + digit, write))
    return IndexPage(pages=pages)
