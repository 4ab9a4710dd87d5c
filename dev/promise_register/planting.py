"""Finds the place of a fault in the package's syntax trees, and plants it there.

The place is a definition by its qualified name, ``StreamTask.process``: a function, a class, or a constant.
Where several modules define the name, the module's goes before it, ``stream_task:_bounds``. The code is found
in the tree of that definition, so neither its line breaks nor a move of its file matter:

- ``code`` is one expression or statement; ``becomes`` stands there instead.
- ``without`` is left out: a statement, or one of several operands, elements, arguments, filters or handlers.

A statement with a body is named by its first line, with ``...`` for the body: ``if self.suspect: ...``. In
``becomes``, the statement ``...`` stands for that body. Code that is found zero times, or more than once, is
an error.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dev.promise_register.register import ROOT, Fault

__all__ = ["module_of", "planted"]

_PACKAGE = ROOT / "airflow_kstreams"
_BODIES = ("body", "orelse", "finalbody", "handlers")
#: The lists of which one may be left out.
_LISTS = (*_BODIES, "values", "elts", "args", "keywords", "ifs", "decorator_list", "bases")


def module_of(fault: Fault, package: Path = _PACKAGE) -> Path:
    """Return the file that defines the place of a fault.

    :raises ValueError: no module defines it, or several do.
    """
    module, _, name = fault.where.rpartition(":")
    tail = module.split(".") if module else []
    found = [
        path for path in _defined(package).get(name, ()) if _dotted(path)[-len(tail) :] == tail or not tail
    ]
    if len(found) != 1:
        named = ", ".join(path.relative_to(package).as_posix() for path in found) or "none"
        raise ValueError(f"one module should define {fault.where}, found {len(found)}: {named}")
    return found[0]


def planted(fault: Fault, source: str) -> str:
    """Return the text of a module with a fault in it.

    :param source: the text of the module that :func:`module_of` gives.
    :raises ValueError: the fault does not say what is changed, or its place does not hold that once.
    :raises SyntaxError: the code of the fault is no Python.
    """
    if bool(fault.code) != bool(fault.becomes) or bool(fault.code) == bool(fault.without):
        raise ValueError("either code and becomes, or without, says what is changed")
    tree = ast.parse(source)
    name = fault.where.rpartition(":")[2]
    places = [node for defined, node in _definitions(tree) if defined == name]
    wanted, new = (_member(fault.without), ()) if fault.without else _pair(fault.code, fault.becomes)
    found = [
        spot
        for place in places
        for spot in _spots(place)
        if any(_matches(each, spot.node) for each in wanted)
    ]
    if fault.without:
        found = [spot for spot in found if spot.index is not None and spot.field in _LISTS]
    if len(found) != 1:
        text = fault.without or fault.code
        raise ValueError(f"{fault.where} should hold {text!r} once, found {len(found)} times")
    found[0].put(new)
    return ast.unparse(ast.fix_missing_locations(_Tidy().visit(tree)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """A node, and where its parent holds it; ``index`` is unset where the field is no list."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None

    def put(self, new: Sequence[ast.AST]) -> None:
        """Replace the node; a new statement whose body is left open gets the old one's."""
        nodes: list[ast.AST] = []
        for node in new:
            if _is_ellipsis(node):
                nodes += getattr(self.node, "body", ())
                continue
            if _is_open(node):
                vars(node).update(
                    (field, held) for field, held in vars(self.node).items() if field in _BODIES
                )
            nodes.append(node)
        if self.index is None:
            (only,) = nodes
            setattr(self.parent, self.field, only)
        else:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes


class _Tidy(ast.NodeTransformer):
    """Makes a tree whole again after one of several has been left out."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Put the last operand that is left in the place of the operation."""
        self.generic_visit(node)
        return node if len(node.values) > 1 else node.values[0]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Fill a body that has become empty."""
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if body == [] and not isinstance(node, ast.Module):
            body.append(ast.Pass())
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            node.finalbody.append(ast.Pass())
        return node


def _spots(place: ast.AST) -> Iterator[_Spot]:
    for parent in ast.walk(place):
        for field, held in ast.iter_fields(parent):
            if isinstance(held, ast.AST):
                yield _Spot(node=held, parent=parent, field=field, index=None)
            elif isinstance(held, list):
                for index, node in enumerate(held):
                    if isinstance(node, ast.AST):
                        yield _Spot(node=node, parent=parent, field=field, index=index)


def _matches(pattern: object, node: object) -> bool:
    if isinstance(pattern, list):
        return isinstance(node, list) and len(pattern) == len(node) and all(map(_matches, pattern, node))
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and pattern == node
    if type(pattern) is not type(node):
        return False
    ignored = _BODIES if _is_open(pattern) else ()
    return all(
        _matches(getattr(pattern, field, None), getattr(node, field, None))
        for field in pattern._fields
        if field not in ignored
    )


def _is_open(node: ast.AST) -> bool:
    """Say whether a statement's body is left open, so that only its first line counts."""
    body = getattr(node, "body", None)
    return isinstance(body, list) and len(body) == 1 and _is_ellipsis(body[0])


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _pair(code: str, becomes: str) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    try:
        return [ast.parse(code, mode="eval").body], [ast.parse(becomes, mode="eval").body]
    except SyntaxError:
        return [_statement(code)], ast.parse(becomes).body


def _statement(code: str) -> ast.AST:
    statements = ast.parse(code).body
    if len(statements) != 1:
        raise SyntaxError(f"{code!r} is {len(statements)} statements, expected one")
    return statements[0]


def _member(code: str) -> list[ast.AST]:
    """Return all that a text may stand for: an argument, which is any expression, a statement, a handler."""
    found: list[ast.AST] = []
    for before, after in (("_(", ")"), ("", ""), ("try: ...\n", "")):
        try:
            node = _statement(f"{before}{code}{after}")
        except SyntaxError:
            continue
        if before == "_(" and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            arguments = [*node.value.args, *node.value.keywords]
            found += arguments if len(arguments) == 1 else []
        else:
            found += node.handlers if before and isinstance(node, ast.Try) else [node]
    if not found:
        raise SyntaxError(f"{code!r} is no Python")
    return found


@cache
def _defined(package: Path) -> Mapping[str, Sequence[Path]]:
    """Return which modules define each qualified name."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in dict(_definitions(ast.parse(path.read_text(encoding="utf-8")))):
            found[name].append(path)
    return found


def _definitions(
    tree: ast.AST, within: str = "", *, in_function: bool = False
) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield within + node.name, node
            is_function = not isinstance(node, ast.ClassDef)
            yield from _definitions(node, f"{within}{node.name}.", in_function=is_function)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not in_function:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((within + target.id, node) for target in targets if isinstance(target, ast.Name))
        else:
            yield from _definitions(node, within, in_function=in_function)


def _dotted(path: Path) -> list[str]:
    return [part for part in path.with_suffix("").parts if part != "__init__"]
