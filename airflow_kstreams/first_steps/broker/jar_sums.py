"""Compares fetched jars with SHA-256 sums.

The sums are a file in the form of ``sha256sum`` with a line for each jar, as
``libs-4.2.1/kafka-tools-4.2.1.jar``. A folder passes if it holds exactly the jars that are listed under its
name: one that differs, one more and one less are refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path


def refusals(folder: Path, sums: Traversable) -> Iterator[str]:
    """Yield what is wrong with a folder's jars, each with its name; nothing if all is right."""
    expected = {
        name: digest
        for digest, _, name in (line.partition("  ") for line in sums.read_text("utf-8").splitlines())
        if name.startswith(f"{listed_name(folder)}/")
    }
    found = digests(folder)
    for name in sorted(expected | found):
        match expected.get(name), found.get(name):
            case None, digest:
                yield f"{name}: not listed in {sums.name}, its SHA-256 is {digest}"
            case digest, None:
                yield f"{name}: not fetched"
            case wanted, digest if wanted != digest:
                yield f"{name}: its SHA-256 is {digest}, {sums.name} says {wanted}"


def digests(folder: Path) -> dict[str, str]:
    """Return the sum of each jar, by the name that it is listed under."""
    return {
        f"{listed_name(folder)}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in folder.iterdir()
    }


def listed_name(folder: Path) -> str:
    """Return the name that a folder's jars are listed under: ``.partial`` at its end does not count."""
    return folder.name.removesuffix(".partial")
