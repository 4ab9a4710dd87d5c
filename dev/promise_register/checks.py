"""What must be so between register, marks, tests and sources; each complaint is one line with what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from dev.promise_register.marks import PAGES, marked, unmarked
from dev.promise_register.page import PAGE, draw
from dev.promise_register.register import ROOT, Fault, Promise, planted
from tests.simulation.protections import PROTECTIONS

__all__ = ["complaints"]

_TESTS = ROOT / "tests"


def complaints(promises: Mapping[str, Promise]) -> list[str]:
    """Return all of them."""
    return [
        *_about_marks(promises),
        *_about_unregistered(),
        *(line for promise in promises.values() for line in _about_tests(promise)),
        *(line for name, fault in planted(promises).items() for line in _about_fault(name, fault)),
        *_about_protections(promises),
        *_about_page(promises),
    ]


def _about_marks(promises: Mapping[str, Promise]) -> Iterator[str]:
    made = marked()
    for name in sorted(set(made) - set(promises)):
        yield f"{name}: marked in {_named(made[name][0])}, not registered: add it to tests/promises.toml"
    for name in sorted(set(promises) - set(made)):
        yield f"{name}: registered, and no page has its mark: add <!-- promise: {name} --> where it is made"


def _about_unregistered() -> Iterator[str]:
    for page in PAGES:
        for block in unmarked(page.read_text(encoding="utf-8")):
            start = " ".join(block.text.split())[:60]
            yield (
                f"{_named(page)}:{block.line}: {', '.join(sorted(set(block.words)))} in {start!r}: "
                "mark the promise (docs/contributing.md#a-promise)"
            )


def _about_tests(promise: Promise) -> Iterator[str]:
    if not promise.tests:
        yield f"{promise.id}: no test proves it"
    if not promise.faults:
        yield f"{promise.id}: no fault is planted for it"
    for test in promise.tests:
        if not _is_a_test(test):
            yield f"{promise.id}: there is no test {test}"


def _about_fault(name: str, fault: Fault) -> Iterator[str]:
    if fault.protection:
        if fault.protection not in PROTECTIONS:
            yield f"{name}: the simulation has no protection {fault.protection!r}"
        return
    if not _is_a_test(fault.dies) or "::" not in fault.dies:
        yield f"{name}: there is no test {fault.dies}"
    try:
        source = (ROOT / fault.file).read_text(encoding="utf-8")
        compile(fault.patched(source), fault.file, "exec")
    except (OSError, ValueError, SyntaxError) as error:
        yield f"{name}: cannot be planted: {error}"


def _about_protections(promises: Mapping[str, Promise]) -> Iterator[str]:
    used = {fault.protection for fault in planted(promises).values()}
    for protection in PROTECTIONS:
        if protection not in used:
            yield f"protection {protection!r} of the simulation is no promise's fault"


def _about_page(promises: Mapping[str, Promise]) -> Iterator[str]:
    if PAGE.read_text(encoding="utf-8") != draw(promises, marked()):
        yield f"{_named(PAGE)} is not what the register says: run dev/promises --write"


def _is_a_test(node: str) -> bool:
    path, _, name = node.partition("::")
    return bool(_tests_in(_TESTS / path)) if not name else name.split("[")[0] in _tests_in(_TESTS / path)


@cache
def _tests_in(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))
