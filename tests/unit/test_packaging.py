"""The wheel, and what it does in an environment that has nothing but what it requires."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import re
import sys
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name

from airflow_kstreams.launch.installation import PROVEN
from tests.support.airflow.python_environment import PACKAGE, ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_EXTRAS = _PROJECT["optional-dependencies"]
#: Folder -> extras whose distributions it may import; all may import what every installation has.
_EXTRAS_OF = {
    "decorators": {"airflow"},
    "hooks": {"airflow"},
    "operators": {"airflow"},
    "pages": {"airflow"},
    "sensors": {"airflow"},
    "triggers": {"airflow"},
    "first_steps": {"spark"},
    "kafka": {"schema-registry"},
    "launch": {"airflow"},
    "spark": {"otel", "spark"},
    "streams": {"rocksdb", "spark"},
    "tables": {"delta", "iceberg"},
}


def test_all_is_every_other_extra_but_the_older_spark() -> None:
    assert {"airflow", "kafka-ui", "otel", "rocksdb", "schema-registry", "spark"} <= set(_EXTRAS)
    (everything,) = map(Requirement, _EXTRAS["all"])
    assert everything.name == PACKAGE
    assert everything.extras == set(_EXTRAS) - {"all", "spark35"}


def test_pysparks_two_distributions_cannot_differ_when_both_are_installed() -> None:
    """They share files; Airflow's Spark provider brings one, a driver needs the other."""
    wanted = {
        requirement.name: str(requirement.specifier)
        for requirement in map(Requirement, [*_EXTRAS["airflow"], *_EXTRAS["spark"]])
        if requirement.name.startswith("pyspark")
    }
    assert wanted["pyspark"] == wanted["pyspark-client"]
    # pip takes the newest of each that the bounds allow, and both have this one.
    assert re.search(r"<=\d+\.\d+\.\d+", wanted["pyspark"])


def test_spark_3_5_goes_without_airflow_whose_provider_asks_for_a_client_of_spark_4() -> None:
    asked = map(Requirement, importlib.metadata.requires("apache-airflow-providers-apache-spark") or [])
    (client,) = (found for found in asked if found.name == "pyspark-client" and found.marker is None)
    assert not client.specifier.contains("3.5.9")


def test_bounds_are_those_that_are_proven() -> None:
    asked: dict[str, SpecifierSet] = {"Python": SpecifierSet(_PROJECT["requires-python"])}
    for requirement in map(Requirement, [*_EXTRAS["airflow"], *_EXTRAS["spark"]]):
        asked[requirement.name] = requirement.specifier
    (older,) = (
        requirement.specifier
        for requirement in map(Requirement, _EXTRAS["spark35"])
        if requirement.name == "pyspark"
    )
    lowest = [bound for bound in older if bound.operator == ">="]
    asked["pyspark"] = SpecifierSet(",".join(map(str, [*lowest, *_upper(asked["pyspark"])])))
    assert {name: asked[name] for name in PROVEN} == PROVEN


def _upper(bounds: SpecifierSet) -> list[Specifier]:
    return [bound for bound in bounds if bound.operator.startswith("<")]


def test_every_direct_requirement_has_a_lower_bound() -> None:
    """Else the oldest that the project allows is one that nothing was tried with."""
    extras = (text for name, texts in _EXTRAS.items() if name != "all" for text in texts)
    requirements = [Requirement(text) for text in (*_PROJECT["dependencies"], *extras)]
    bounded = [r for r in requirements if any(bound.operator in (">=", "==") for bound in r.specifier)]
    assert [str(r) for r in requirements if r not in bounded] == []


def test_files_of_two_distributions_are_alike() -> None:
    """An installer writes the files of one over those of the other, and says nothing."""
    owners: dict[Path, list[tuple[str, str]]] = {}
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            if file.hash is not None and file.hash.mode == "sha256" and ".dist-info" not in str(file):
                owner = (distribution.metadata["Name"], file.hash.value)
                owners.setdefault(Path(str(distribution.locate_file(file))), []).append(owner)
    shared = {path: found for path, found in owners.items() if len({name for name, _ in found}) > 1}
    differing = {
        str(path): found
        for path, found in shared.items()
        if {digest for _, digest in found} != {_digest(path)}
    }
    assert any("pyspark" in {name for name, _ in found} for found in shared.values())
    assert differing == {}


def _digest(path: Path) -> str:
    return urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def distributions(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


#: Imported only where OpenLineage, which needs attrs, is installed, or the library with which records cross
#: by columns, or pyiceberg, whose errors are pydantic's; and by type checkers alone.
_NEEDLESS = {"airflow_kstreams_columns", "attrs", "openlineage", "pydantic", "typing_extensions"}


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
