"""Every error has a code of its own, and an entry in the reference with an example that a test makes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
from typer.main import get_command

from airflow_kstreams.cli.app import app
from airflow_kstreams.streams import errors
from airflow_kstreams.streams.errors import KStreamsError
from dev.reference_pages.errors_page import error_examples
from tests.support.remedies import PACKAGE, TESTS

#: Classes that only group others, or stand for an error of another process.
GROUPING = {"KStreamsError", "TaskError", "ReportedError"}
_GIVEN = re.compile(r'own_code: ClassVar\[str\] = "(.+)"')
_FORM = re.compile(r"KS-(?P<room>[A-Z]+)-(?P<number>\d{3})")


@cache
def _codes() -> tuple[str, ...]:
    return tuple(
        code for path in PACKAGE.rglob("*.py") for code in _GIVEN.findall(path.read_text(encoding="utf-8"))
    )


def test_every_code_names_one_error() -> None:
    assert [code for code, count in Counter(_codes()).items() if count > 1] == []


def test_numbers_of_a_room_begin_at_one_and_leave_none_out() -> None:
    numbers: dict[str, set[int]] = {}
    for code in _codes():
        parts = _FORM.fullmatch(code)
        assert parts is not None, code
        numbers.setdefault(parts["room"], set()).add(int(parts["number"]))
    assert {room: found for room, found in numbers.items() if found != {*range(1, len(found) + 1)}} == {}


def test_every_error_has_a_code_of_its_own_or_of_its_base() -> None:
    def below(error: type[KStreamsError]) -> list[type[KStreamsError]]:
        return [error, *(each for found in error.__subclasses__() for each in below(found))]

    assert {each.__name__ for each in below(KStreamsError) if not each.own_code} <= GROUPING
    own = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    assert {
        name for name, each in own.items() if issubclass(each, KStreamsError) and "own_code" not in vars(each)
    } == GROUPING - {"KStreamsError"}


def test_every_error_is_made_by_a_test_as_the_reference_shows_it() -> None:
    marked = Counter(
        argument.value
        for path in TESTS.rglob("test_*.py")
        if "mark.error_example(" in (text := path.read_text(encoding="utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.error_example"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    )
    assert {*marked} == {*error_examples()} == {*_codes()}


@pytest.mark.parametrize("code", sorted(error_examples()))
def test_entry_says_how_to_check_what_happened(code: str) -> None:
    example = error_examples()[code]
    assert example.check.endswith(".")
    assert example.cause.strip() == example.cause != ""


@pytest.mark.parametrize("code", sorted(error_examples()))
def test_command_of_a_check_is_one_of_ours_with_these_options(code: str) -> None:
    """As it stands in the reference, where capital letters stand for what a user fills in."""
    root: Any = get_command(app)
    for line in re.findall(r"`airflow-kstreams ([^`]+)`", error_examples()[code].check):
        name, *arguments = line.split()
        with root.make_context("airflow-kstreams", ["--help"], resilient_parsing=True) as context:
            command = root.get_command(context, name)
            arguments = [__file__ if each == "APP.py" else each for each in arguments]
            with command.make_context(name, arguments, parent=context) as made:
                assert made.params, line
