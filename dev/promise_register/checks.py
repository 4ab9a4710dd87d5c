"""Compares register, pages, marks of tests and sources; each complaint is one line with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dev.promise_register.page import draw
from dev.promise_register.pages import PAGES, listed, misquoted, unlisted
from dev.promise_register.planting import module_of, planted
from dev.promise_register.proofs import dying, proofs, stray_marks
from dev.promise_register.register import ROOT, Fault, Promise, all_faults
from tests.simulation.protections import PROTECTIONS

__all__ = ["complaints"]


def complaints(promises: Mapping[str, Promise]) -> list[str]:
    """Return all of them."""
    return [
        *_about_lists(promises),
        *_about_tests(promises),
        *(line for name, fault in all_faults(promises).items() for line in _about_fault(name, fault)),
        *_about_protections(promises),
        *_about_pages(promises),
    ]


def _about_lists(promises: Mapping[str, Promise]) -> Iterator[str]:
    made = listed()
    for name in sorted(set(made) - set(promises)):
        yield f"{name}: listed in {_named(made[name][0])}, not registered: add it to tests/promises.toml"
    for name in sorted(set(promises) - set(made)):
        yield f"{name}: registered, and no page lists it: add it at the end of the page that makes it"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in misquoted(text):
            yield f"{_named(page)}, at its end: {line}"
        for block in unlisted(text):
            start = " ".join(block.text.split())[:60]
            yield (
                f"{_named(page)}:{block.line}: {', '.join(sorted(set(block.words)))} in {start!r}: "
                "list the promise at the page's end (docs/internals/contributing.md#a-promise)"
            )


def _about_tests(promises: Mapping[str, Promise]) -> Iterator[str]:
    proven = proofs()
    for place in stray_marks():
        yield f"tests/{place}: a promise's mark that stands on no test, or names no promise"
    for name in sorted(set(proven) - set(promises)):
        yield f"{name}: marked on {proven[name][0].node}, not registered: add it to tests/promises.toml"
    for name, promise in promises.items():
        if name not in proven:
            yield f'{name}: no test proves it: mark one with @pytest.mark.promise("{name}")'
        if not promise.faults:
            yield f"{name}: no fault is planted for it"


def _about_fault(name: str, fault: Fault) -> Iterator[str]:
    if fault.protection:
        if fault.protection not in PROTECTIONS:
            yield f"{name}: the simulation has no protection {fault.protection!r}"
        return
    try:
        dying(fault)
        path = module_of(fault)
        compile(planted(fault, path.read_text(encoding="utf-8")), path, "exec")
    except (ValueError, SyntaxError) as error:
        yield f"{name}: cannot be planted: {error}"


def _about_protections(promises: Mapping[str, Promise]) -> Iterator[str]:
    used = {fault.protection for fault in all_faults(promises).values()}
    for protection in PROTECTIONS:
        if protection not in used:
            yield f"protection {protection!r} of the simulation is no promise's fault"


def _about_pages(promises: Mapping[str, Promise]) -> Iterator[str]:
    for page, text in draw(promises, listed()).items():
        if page.read_text(encoding="utf-8") != text:
            yield f"{_named(page)} is not what the register says: run dev/promises --write"


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))
