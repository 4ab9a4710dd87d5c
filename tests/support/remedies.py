"""The remedies that errors and findings print, and a pytest plugin for the tests that follow them.

A remedy is a text after ``fix=`` in the package, one assigned to a name ``fix``, a loss of data with its
advice, or the end of a warning of the log, after a ``;`` or ``:``, that says what to do. Its name is the
function that prints it, and where that prints several their text, too: ``left_unread.refuse_unread``,
``expansion_rules.expanded: give a number from``. In a text, ``{}`` stands for what is filled in.

A test walks a remedy: it makes the fault, does what the printed text says, and looks at the results. It names
the remedy by ``@pytest.mark.remedy("...")``, or makes cases of a table by :func:`walked`. A test with the
mark fails if it saw no error with that text from that function.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_kstreams"
TESTS = ROOT / "tests"
#: The end of a warning that says what to do.
_ADVICE = re.compile(r"[;:] ((?:[\w ]+ must|set|raise|lower|restart|give|leave out|look|run|see) .+)")
_FILLED_IN = re.compile(r"%[-.0-9]*[sdrgf]")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A text that says what to do.

    :param place: the function that prints it, after its module's name.
    :param text: ``{}`` stands for what is filled in.
    :param alone: whether the function prints no other.
    """

    place: str
    text: str
    alone: bool

    @property
    def name(self) -> str:
        """The place, and the text where the place prints several."""
        return self.place if self.alone else f"{self.place}: {self.text}"


def meant(name: str) -> list[Remedy]:
    """Return the remedies that a mark may mean: those of the place, or whose text begins as it says."""
    whole = {f"{remedy.place}: {remedy.text}": remedy for remedy in remedies()}
    exact = [remedy for each, remedy in whole.items() if name in (each, remedy.place)]
    return exact or [remedy for each, remedy in whole.items() if ": " in name and each.startswith(name)]


def walked(name: str, *case: object) -> Any:
    """Return a case of a parametrised test that follows a remedy."""
    return pytest.param(*case, marks=pytest.mark.remedy(name), id=name)


# == what the package prints


@cache
def remedies() -> tuple[Remedy, ...]:
    """Return all remedies of the package, in order."""
    return printed_by(
        (_module(path), ast.parse(path.read_text(encoding="utf-8"))) for path in PACKAGE.rglob("*.py")
    )


def printed_by(modules: Iterable[tuple[str, ast.Module]]) -> tuple[Remedy, ...]:
    """Return the remedies that modules print, in order.

    :param modules: names with syntax trees.
    """
    trees = tuple(modules)
    taking = {
        each.name: [argument.arg for argument in each.args.args].index("fix")
        for _, tree in trees
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and "fix" in [argument.arg for argument in each.args.args]
    }
    found = {
        (".".join(place), text)
        for module, tree in trees
        for place, expression in _printed(tree, [module], taking)
        for text in _texts(expression)
    }
    several = Counter(place for place, _ in found)
    return tuple(Remedy(place, text, several[place] == 1) for place, text in sorted(found))


def _module(path: Path) -> str:
    return path.parent.name if path.stem == "__init__" else path.stem


def _printed(node: ast.AST, place: list[str], taking: dict[str, int]) -> Iterator[tuple[list[str], ast.expr]]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            below = [*place, each.name]
            if not isinstance(each, ast.ClassDef):
                yield from ((below, default) for default in _defaults(each.args))
        else:
            below = place
            yield from ((place, expression) for expression in _given(each, taking))
        yield from _printed(each, below, taking)


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg == "fix" and default is not None:
            yield default


def _given(node: ast.AST, taking: dict[str, int]) -> Iterator[ast.expr]:
    """Return what one node gives as a remedy: an argument, or the value of a name ``fix``."""
    if isinstance(node, ast.keyword) and node.arg == "fix":
        yield node.value
    elif isinstance(node, ast.Call) and _warns(node.func):
        advice = _ADVICE.search(_FILLED_IN.sub("{}", _text(node.args[0])))
        yield from [ast.Constant(advice[1])] if advice else []
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Loss":
        # Its remedy is a command at least.
        said = [keyword.value for keyword in node.keywords if keyword.arg == "advice"]
        yield from said or [ast.Constant("<command>")]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from node.args[taking.get(node.func.id, len(node.args)) :][:1]
    elif isinstance(node, ast.AugAssign) and _is_fix(node.target):
        yield node.value
    elif isinstance(node, ast.For) and any(_is_fix(each) for each in ast.walk(node.target)):
        yield node.iter
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if _is_fix(target):
                yield node.value
            elif isinstance(target, ast.Tuple) and any(map(_is_fix, target.elts)):
                at = list(map(_is_fix, target.elts)).index(True)
                yield node.value.elts[at] if isinstance(node.value, ast.Tuple) else node.value


def _warns(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function) in (
        "log.warning",
        "self.log.warning",
    )


def _is_fix(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "fix"


def _texts(expression: ast.expr) -> Iterator[str]:
    """Return the texts that an expression may give; none for one that hands on what another place gives."""
    if isinstance(expression, ast.IfExp):
        yield from chain(_texts(expression.body), _texts(expression.orelse))
    elif isinstance(expression, ast.BoolOp):
        yield from chain.from_iterable(map(_texts, expression.values))
    elif _hands_on(expression):
        return
    else:
        text = _text(expression)
        yield from [text] if text else []


def _hands_on(expression: ast.expr) -> bool:
    """Say whether an expression gives what another place gave: ``error.fix``, ``report.get("fix")``."""
    return (
        _is_fix(expression)
        or (isinstance(expression, ast.Attribute) and expression.attr.endswith("fix"))
        or (isinstance(expression, ast.Call) and "'fix'" in ast.unparse(expression))
    )


def _text(expression: ast.expr) -> str:
    match expression:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.Name(id=name):
            # A text that stands once, for several places.
            return f"{{{name}}}"
        case ast.Subscript(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
            return f"{{{name}}}"
        case _:
            return "{}"


# == what the tests walk


@cache
def walks() -> tuple[tuple[str, str], ...]:
    """Return which names of remedies tests give, each with the file, in order."""
    return tuple(
        (argument.value, path.relative_to(TESTS).as_posix())
        for path in sorted(TESTS.rglob("*.py"))
        if "mark.remedy(" in (text := path.read_text(encoding="utf-8")) or " walked(" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _names_a_remedy(call.func)
        # What follows the name in a call of walked is the case.
        for argument in (call.args[:1] if isinstance(call.func, ast.Name) else call.args)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


def _names_a_remedy(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "remedy" and ast.unparse(function) == "pytest.mark.remedy"
    return isinstance(function, ast.Name) and function.id == "walked"


# == whether a marked test saw the text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that carries the mark of a remedy and saw neither error nor warning with it."""
    names = [name for mark in item.iter_markers("remedy") for name in mark.args]
    if not names:
        return (yield)
    with pytest.MonkeyPatch.context() as patched:
        seen = _watch(patched)
        yield
    missing = [name for name in names if not any(is_printed(name, *each) for each in seen)]
    if missing:
        pytest.fail(f"no error printed {missing}; these were printed: {sorted({text for text, _ in seen})}")


def _watch(patched: pytest.MonkeyPatch) -> list[tuple[str, frozenset[str]]]:
    from airflow_kstreams.batch.inspect.doctor import Finding
    from airflow_kstreams.batch.protocol.logs.data_loss import Loss
    from airflow_kstreams.kafka.configuration.weak_settings import Weakness
    from airflow_kstreams.kafka.listener import ListenerFinding
    from airflow_kstreams.streams.errors import KStreamsError

    seen: list[tuple[str, frozenset[str]]] = []

    def watched(made: Callable[..., None]) -> Callable[..., None]:
        def make(self: Any, *arguments: Any, **named: Any) -> None:
            made(self, *arguments, **named)
            text = self.advice or "<command>" if isinstance(self, Loss) else self.fix
            if text:
                seen.append((text, frozenset(_places(sys._getframe(1)))))

        return make

    handle = logging.Logger.handle

    def note(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            seen.append((record.getMessage(), frozenset(_places(sys._getframe(1)))))
        handle(logger, record)

    patched.setattr(logging.Logger, "handle", note)
    patched.setattr(KStreamsError, "__post_init__", watched(KStreamsError.__post_init__))
    for each in (Finding, ListenerFinding, Loss, Weakness):
        patched.setattr(each, "__init__", watched(each.__init__))
    return seen


def _places(frame: Any) -> Iterator[str]:
    while frame is not None:
        # A check around a method, made by a decorator, prints what the method is decorated with.
        around = getattr(frame.f_locals.get("method"), "__code__", None)
        for code in (frame.f_code, around):
            if code is not None and PACKAGE in Path(code.co_filename).parents:
                yield f"{_module(Path(code.co_filename))}.{code.co_qualname.replace('.<locals>', '')}"
        frame = frame.f_back


def is_printed(name: str, text: str, places: Collection[str]) -> bool:
    """Return whether a text, made where these functions were running, is the remedy that a mark names.

    A function that returns the text to another one of its module need not be running any more.
    """
    place, _, template = name.partition(": ")
    parts = [*map(re.escape, re.split(r"\{\w*\}", template))]
    made_there = place in places or (
        any(parts) and place.partition(".")[0] in {each.partition(".")[0] for each in places}
    )
    return made_there and re.search(".*".join(parts), text, re.DOTALL) is not None
