"""Reads ``tests/promises.toml``: each promise, and the faults that its tests find."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import replace

__all__ = ["REGISTER", "ROOT", "Fault", "Promise", "Section", "all_faults", "load"]

ROOT = Path(__file__).resolve().parents[2]
REGISTER = ROOT / "tests" / "promises.toml"


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small mistake, and the test that fails on it; :mod:`dev.promise_register.planting` finds its place.

    :param what: the mistake, in a phrase; of a protection its name says it.
    :param where: the function, class or constant that is changed, by its qualified name.
    :param code: one expression or statement in it.
    :param becomes: what stands there instead.
    :param without: instead of both, what is left out.
    :param dies: the test that must fail: one that carries the promise's mark, by its name.
    :param protection: instead of all this, a protection of the simulation that is switched off.
    :param promise: the id of the promise that it breaks; :attr:`Promise.faults` sets it.
    """

    what: str = ""
    where: str = ""
    code: str = ""
    becomes: str = ""
    without: str = ""
    dies: str = ""
    protection: str = ""
    promise: str = ""

    @property
    def title(self) -> str:
        """What is wrong."""
        return f"without: {self.protection}" if self.protection else self.what


class Promise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a page promises.

    :param id: stands in the lists of the pages, and in the marks of the tests that fail without it.
    :param sentence: the promise in a phrase, Markdown.
    :param section: where it stands on the page of guarantees; unset for what another page says in full.
    :param settings: what must be set for it, Markdown.
    :param beside: more that bears it out, Markdown.
    :param means: what the phrase means, Markdown.
    :param protections: of the simulation, which notices when one is switched off.
    :param fault: mistakes that its tests find.
    """

    id: str
    sentence: str
    section: str = ""
    settings: str = ""
    beside: str = ""
    means: str = ""
    protections: tuple[str, ...] = ()
    fault: tuple[Fault, ...] = ()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All that is planted for it."""
        named = (*(Fault(protection=name) for name in self.protections), *self.fault)
        return tuple(replace(fault, promise=self.id) for fault in named)


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


def all_faults(promises: Mapping[str, Promise]) -> Mapping[str, Fault]:
    """Return every fault by its name: the promise's id, with a number where it has several."""
    return {
        promise.id if len(promise.faults) == 1 else f"{promise.id}-{number}": fault
        for promise in promises.values()
        for number, fault in enumerate(promise.faults, start=1)
    }
