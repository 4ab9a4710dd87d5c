"""The codes of findings are those that docs/explanation/data-loss.md lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.fresh_python import ROOT

_PACKAGE = ROOT / "airflow_kstreams"
_MODULES = [
    *(_PACKAGE / "batch/inspect/doctor").glob("*.py"),
    *(_PACKAGE / "inspect/surroundings").glob("*.py"),
]


def printed() -> Iterator[str]:
    for module in _MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            # Every warning and error has its check, its code, a text and a remedy.
            if isinstance(node, ast.Call) and len(node.args) == 4 and isinstance(node.args[1], ast.Constant):
                yield str(node.args[1].value)


def test_codes_are_listed() -> None:
    page = (ROOT / "docs" / "explanation" / "data-loss.md").read_text(encoding="utf-8")
    table = page.partition("## Before it happens")[2].partition("\n## ")[0].partition("| --- |")[2]
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table)) - {"pyspark-client"}
    assert {*printed()} == listed
