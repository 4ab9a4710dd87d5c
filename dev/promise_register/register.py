"""``tests/promises.toml``: each promise with the tests that prove it, and the faults that they find."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, convert

__all__ = ["REGISTER", "ROOT", "Fault", "Promise", "Section", "load", "planted"]

ROOT = Path(__file__).resolve().parents[2]
REGISTER = ROOT / "tests" / "promises.toml"


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small mistake, and the test that fails on it.

    :param what: the mistake, in a phrase; of a protection its name says it.
    :param file: the file that is patched, from the root.
    :param old: what stands in it, exactly once.
    :param new: what stands there instead.
    :param dies: the test that must fail, below ``tests/``.
    :param protection: instead of a patch, a protection of the simulation that is switched off.
    """

    what: str = ""
    file: str = ""
    old: str = ""
    new: str = ""
    dies: str = ""
    protection: str = ""

    @property
    def title(self) -> str:
        """What is wrong."""
        return f"without: {self.protection}" if self.protection else self.what

    def patched(self, source: str) -> str:
        """Return a file's text with the mistake in it.

        :raises ValueError: the place is not there, or is there more than once.
        """
        found = source.count(self.old)
        if not self.old or found != 1:
            raise ValueError(f"{self.file} holds the place of {self.what!r} {found} times, expected once")
        return source.replace(self.old, self.new)


class Promise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a page promises.

    :param id: stands in the marks of the pages.
    :param sentence: the promise in a phrase, Markdown.
    :param section: where it stands on the page of guarantees; unset for what another page says in full.
    :param settings: what must be set for it, Markdown.
    :param tests: files or tests below ``tests/`` that fail without it.
    :param beside: more that bears it out, Markdown.
    :param means: what the phrase means, Markdown.
    :param protections: of the simulation, which notices when one is switched off.
    :param fault: mistakes that its tests find.
    """

    id: str
    sentence: str
    section: str = ""
    settings: str = ""
    tests: tuple[str, ...]
    beside: str = ""
    means: str = ""
    protections: tuple[str, ...] = ()
    fault: tuple[Fault, ...] = ()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All that is planted for it."""
        return (*(Fault(protection=name) for name in self.protections), *self.fault)


class Section(Struct, frozen=True, kw_only=True):
    """Promises that stand together, in the order of the register."""

    title: str
    promises: tuple[Promise, ...]


def load(path: Path = REGISTER) -> Mapping[str, Promise]:
    """Read the register: id -> promise, in its order.

    :raises ValueError: an id stands twice.
    """
    promises = convert(tomllib.loads(path.read_text(encoding="utf-8"))["promise"], tuple[Promise, ...])
    found = {promise.id: promise for promise in promises}
    if len(found) != len(promises):
        raise ValueError(f"{path.name} registers an id twice")
    return found


def planted(promises: Mapping[str, Promise]) -> Mapping[str, Fault]:
    """Return every fault by its name: the promise's id, with a number where it has several."""
    return {
        promise.id if len(promise.faults) == 1 else f"{promise.id}-{number}": fault
        for promise in promises.values()
        for number, fault in enumerate(promise.faults, start=1)
    }
