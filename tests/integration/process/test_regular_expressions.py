"""No text hangs a search: each regular expression of the package meets texts made against it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from threading import Timer

import pytest

import airflow_kstreams
from tests.support.fresh_python import ROOT
from tests.support.hostile_texts import Search

PACKAGE = Path(airflow_kstreams.__file__).parent
#: Longest search of one text, seconds. A linear one takes a hundredth of a second, a hanging one hours.
_DEADLINE_SECONDS = 30.0
#: Functions of ``re`` and methods of its patterns that search.
_SEARCHES = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
#: Function that puts an expression together -> code that makes one as it does, and its search.
_MADE = {
    "batch/protocol/slice/metadata.py:_bare_keys": ("_bare_keys(_ANY_TOPIC)[1]", "fullmatch"),
    "batch/protocol/slice/metadata.py:first_stranger": ("re.escape('app.one') + r'(#\\d+)?'", "fullmatch"),
    "batch/protocol/slice/metadata_records.py:_pairs": ("'(a_(?:0|1)|b_(?:0|1))-(c_(?:0|1))'", "fullmatch"),
    "get_provider_info.py:_modules": (r"r'(?m)^class [A-Z]\w*Operator\('", "search"),
}
#: Functions whose expressions the application's author or the administrator writes.
_OF_AUTHORS = {
    "hooks/metrics_settings.py:name_filter",
    "streams/topic_patterns.py:matching",
    "streams/topology/topology_builder.py:_check_pattern",
}


def _calls(node: ast.AST, function: str = "", constant: str = "") -> Iterator[tuple[ast.Call, str, str]]:
    """Yield the calls of ``re`` with the function and the module's constant that they stand in."""
    for child in ast.iter_child_nodes(node):
        inside, made = function, constant
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = function or child.name
        elif isinstance(child, ast.Assign) and not function and isinstance(child.targets[0], ast.Name):
            made = child.targets[0].id
        elif isinstance(child, ast.ImportFrom):
            assert child.module != "re", "write re.NAME, so that this test finds it"
        elif isinstance(child, ast.Call) and ast.unparse(child.func).startswith("re."):
            yield child, inside, made
        yield from _calls(child, inside, made)


def _uses(tree: ast.Module, constant: str) -> set[str]:
    """Return the methods that a module calls on one of its expressions."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {each.attr for each in attributes if ast.unparse(each.value) == constant} & _SEARCHES


def _searches() -> Mapping[str, Search]:
    """Return each search of the package by its place."""
    found: dict[str, Search] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        place = file.relative_to(PACKAGE).as_posix()
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for call, function, constant in _calls(tree):
            name, where = ast.unparse(call.func).removeprefix("re."), f"{place}:{function or constant}"
            if name not in (*_SEARCHES, "compile") or where in _OF_AUTHORS:
                continue
            if where in _MADE:
                code, method = _MADE[where]
                found[where] = Search(module=module, code=code, flags=0, method=method)
                continue
            pattern = call.args[0]
            compiled = name == "compile" and isinstance(vars(import_module(module)).get(constant), re.Pattern)
            plain = isinstance(pattern, ast.Constant)
            assert compiled or plain or isinstance(pattern, ast.Name), f"{where}: say in _MADE how it is made"
            given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
            flags = sum(eval(text) for text in map(ast.unparse, given) if text.startswith("re."))
            for method in sorted((_uses(tree, constant) if compiled else {name} & _SEARCHES) or {"search"}):
                found[f"{where}:{call.lineno} {method}"] = Search(
                    module="" if plain else module,
                    code=constant if compiled and not plain else ast.unparse(pattern),
                    flags=int(flags),
                    method=method,
                )
    return found


@pytest.mark.promise("no-record-hangs-a-task")
def test_no_search_hangs_when_a_text_is_made_against_its_expression() -> None:
    searches = _searches()
    assert len(searches) > 30
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.hostile_texts"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({name: search._asdict() for name, search in searches.items()}) + "\n")
        child.stdin.close()
        last, alarm, said = "", Timer(_DEADLINE_SECONDS, child.kill), child.stdout
        while True:
            alarm.start()
            line = said.readline()
            alarm.cancel()
            if not line:
                break
            last, alarm = line, Timer(_DEADLINE_SECONDS, child.kill)
    assert child.returncode == 0, f"no answer in {_DEADLINE_SECONDS:.0f} s, or an error: {last}"
