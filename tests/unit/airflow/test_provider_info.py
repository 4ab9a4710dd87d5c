from __future__ import annotations

import importlib
import json
from importlib.metadata import entry_points
from pathlib import Path

import airflow
import jsonschema  # type: ignore[import-untyped]
import pytest

from airflow_kstreams.get_provider_info import get_provider_info

_MODULES = [
    module
    for kind in ("hooks", "operators", "sensors", "triggers")
    for integration in get_provider_info()[kind]
    for module in integration["python-modules"]
]


@pytest.mark.parametrize("schema", ["provider_info.schema.json"])
def test_provider_info_is_valid_when_checked_against_airflows_schema(schema: str) -> None:
    text = (Path(airflow.__file__).parent / schema).read_text(encoding="utf-8")

    jsonschema.validate(get_provider_info(), json.loads(text))


@pytest.mark.parametrize("module", _MODULES)
def test_module_exists_when_the_provider_names_it(module: str) -> None:
    assert importlib.import_module(module).__doc__


def test_every_module_is_named_when_it_defines_an_operator_sensor_or_trigger() -> None:
    package = Path(importlib.import_module("airflow_kstreams").__file__ or "").parent
    bases = ("(BaseOperator)", "(SparkSubmitOperator)", "(BaseSensorOperator)", "(BaseTrigger)", "(BaseHook)")
    defining = {
        f"airflow_kstreams.{file.parent.name}.{file.stem}"
        for folder in ("hooks", "operators", "sensors", "triggers")
        for file in (package / folder).glob("*.py")
        if any(base in file.read_text(encoding="utf-8") for base in bases)
    }

    assert defining <= set(_MODULES)


def test_airflow_finds_the_provider_when_the_package_is_installed() -> None:
    ours = [
        point
        for point in entry_points(group="apache_airflow_provider")
        if point.module.startswith("airflow_kstreams")
    ]

    assert [point.load() for point in ours] == [get_provider_info]
