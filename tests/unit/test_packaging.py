"""The wheel, and what it does in an environment that has nothing but what it requires."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.airflow.python_environment import PACKAGE, ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_EXTRAS = _PROJECT["optional-dependencies"]
#: Folder -> extras whose distributions it may import; all may import what every installation has.
_EXTRAS_OF = {
    "decorators": {"airflow"},
    "hooks": {"airflow"},
    "operators": {"airflow"},
    "sensors": {"airflow"},
    "triggers": {"airflow"},
    "first_steps": {"spark"},
    "kafka": {"schema-registry"},
    "launch": {"airflow"},
    "spark": {"otel", "spark"},
    "streams": {"rocksdb", "spark"},
}


def test_all_is_every_other_extra() -> None:
    assert {"airflow", "kafka-ui", "otel", "rocksdb", "schema-registry", "spark"} <= set(_EXTRAS)
    (everything,) = map(Requirement, _EXTRAS["all"])
    assert everything.name == PACKAGE
    assert everything.extras == set(_EXTRAS) - {"all"}


def test_pysparks_two_distributions_cannot_differ_when_both_are_installed() -> None:
    """They share files; Airflow's Spark provider brings one, a driver needs the other."""
    wanted = {
        requirement.name: str(requirement.specifier)
        for requirement in map(Requirement, [*_EXTRAS["airflow"], *_EXTRAS["spark"]])
        if requirement.name.startswith("pyspark")
    }
    assert wanted["pyspark"] == wanted["pyspark-client"]
    assert re.fullmatch(r"==\d+\.\d+\.\d+", wanted["pyspark"])


def distributions(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


#: Imported only where OpenLineage, which needs attrs, is installed; and by type checkers alone.
_NEEDLESS = {"attrs", "openlineage", "pydantic", "typing_extensions"}


def test_what_is_imported_is_required_by_the_part_that_imports_it() -> None:
    providing = importlib.metadata.packages_distributions()
    undeclared = []
    for file in sorted((ROOT / "airflow_kstreams").rglob("*.py")):
        folder = file.relative_to(ROOT / "airflow_kstreams").parts[0]
        extras = _EXTRAS_OF.get(folder, set())
        declared = distributions([*_PROJECT["dependencies"], *(r for e in extras for r in _EXTRAS[e])])
        undeclared += [
            f"{folder}: {module}"
            for module in set(imported(file))
            - set(sys.stdlib_module_names)
            - {"airflow_kstreams"}
            - _NEEDLESS
            if not declared & {canonicalize_name(name) for name in providing.get(module, [])}
        ]
    assert undeclared == []
