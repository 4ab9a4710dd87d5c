"""Reads which tests carry the mark of a promise, ``@pytest.mark.promise("stops-never-move")``.

The mark stands on a test, on a class of tests, or in the module's ``pytestmark``. The syntax trees are read,
so that no test has to be collected.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dev.promise_register.register import ROOT, Fault

__all__ = ["Proof", "dying", "proofs", "stray_marks"]

_TESTS = ROOT / "tests"
_MARK = "pytest.mark.promise"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The tests that one mark stands for.

    :param node: what it stands on, as pytest names it, below ``tests/``.
    :param tests: their own names in the same form.
    """

    node: str
    tests: tuple[str, ...]


@cache
def proofs(folder: Path = _TESTS) -> Mapping[str, Sequence[Proof]]:
    """Return what proves each promise: id -> proofs, in the order of the files."""
    found: dict[str, list[Proof]] = defaultdict(list)
    for name, tree in _marked_files(folder):
        for node, proof in _markable(tree, name):
            for mark in _marks_on(node):
                for promise in _ids(mark):
                    found[promise].append(proof)
    return found


@cache
def stray_marks(folder: Path = _TESTS) -> Sequence[str]:
    """Return where a mark proves nothing: it stands on no test, or names its promises by no text."""
    found = []
    for name, tree in _marked_files(folder):
        proving = {
            id(mark.func)
            for node, proof in _markable(tree, name)
            for mark in _marks_on(node)
            if proof.tests and len(_ids(mark)) == len(mark.args) > 0
        }
        for each in ast.walk(tree):
            # The attribute first: writing out each node would take seconds.
            if isinstance(each, ast.Attribute) and each.attr == "promise" and ast.unparse(each) == _MARK:
                found += [f"{name}:{each.lineno}"] if id(each) not in proving else []
    return found


def dying(fault: Fault, folder: Path = _TESTS) -> str:
    """Return the test that must fail on a fault, as pytest names it, below ``tests/``.

    :raises ValueError: no test of this name carries the promise's mark, or several do.
    """
    name, bracket, case = fault.dies.partition("[")
    found = {
        test
        for proof in proofs(folder).get(fault.promise, ())
        for test in proof.tests
        if test.rpartition("::")[2] == name
    }
    if len(found) != 1:
        raise ValueError(f"one test {name!r} should carry the promise's mark, found {len(found)}")
    return f"{found.pop()}{bracket}{case}"


@cache
def _marked_files(folder: Path) -> Sequence[tuple[str, ast.Module]]:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return [
        (path.relative_to(folder).as_posix(), ast.parse(text))
        for path, text in texts.items()
        if "mark.promise" in text
    ]


def _markable(node: ast.Module | ast.ClassDef | _Function, name: str) -> Iterator[tuple[ast.AST, Proof]]:
    """Return a module, its classes and its tests, each with the tests that a mark on it stands for."""
    if isinstance(node, _Function):
        yield node, Proof(node=name, tests=(name,))
        return
    below = [
        pair
        for each in node.body
        if (isinstance(each, _Function) and each.name.startswith("test_"))
        or (isinstance(each, ast.ClassDef) and each.name.startswith("Test"))
        for pair in _markable(each, f"{name}::{each.name}")
    ]
    tests = tuple(proof.node for each, proof in below if isinstance(each, _Function))
    yield node, Proof(node=name, tests=tests)
    yield from below


def _marks_on(node: ast.AST) -> Iterator[ast.Call]:
    held: list[ast.expr] = list(getattr(node, "decorator_list", ()))
    for each in node.body if isinstance(node, ast.Module) else ():
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark":
            held += each.value.elts if isinstance(each.value, ast.List) else [each.value]
    return (each for each in held if isinstance(each, ast.Call) and ast.unparse(each.func) == _MARK)


def _ids(mark: ast.Call) -> Sequence[str]:
    return [
        each.value for each in mark.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
