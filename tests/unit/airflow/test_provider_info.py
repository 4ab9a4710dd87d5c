from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperatorLink
from airflow.sdk.bases.decorator import DecoratedOperator
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from airflow_kstreams import get_provider_info as provider_info_module
from airflow_kstreams.get_provider_info import get_provider_info

_MODULES = [
    module
    for kind in ("hooks", "operators", "sensors", "triggers")
    for integration in get_provider_info()[kind]
    for module in integration["python-modules"]
]


def schema(name: str) -> Any:
    return json.loads((Path(airflow.__file__).parent / name).read_text(encoding="utf-8"))


def test_provider_info_is_valid_when_checked_against_airflows_schema() -> None:
    jsonschema.validate(get_provider_info(), schema("provider_info.schema.json"))


def test_provider_info_holds_nothing_that_airflow_does_not_know() -> None:
    """That schema lets any name pass. The stricter one is for the provider.yaml files of Airflow's own
    providers, which also say where they are described and how they are released.
    """
    assert set(get_provider_info()) <= set(schema("provider_info.schema.json")["properties"])
    release = {"versions": ["0.1.0"], "state": "ready", "lifecycle": "production", "source-date-epoch": 0}
    described = [{**one, "external-doc-url": "docs"} for one in get_provider_info()["integrations"]]
    document = {**get_provider_info(), **release, "integrations": described}
    jsonschema.validate(document, schema("provider.yaml.schema.json"))


@pytest.mark.parametrize("module", _MODULES)
def test_module_exists_when_the_provider_names_it(module: str) -> None:
    assert importlib.import_module(module).__doc__


def defined_in(folder: str, base: type, *, but: tuple[type, ...] = ()) -> Iterator[str]:
    """Modules of a folder that define subclasses of an Airflow class."""
    package = importlib.import_module(f"airflow_kstreams.{folder}")
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        classes = [value for value in vars(module).values() if isinstance(value, type)]
        if any(
            c.__module__ == found.name and issubclass(c, base) and not issubclass(c, but) for c in classes
        ):
            yield found.name


@pytest.mark.parametrize(
    ("kind", "base", "but"),
    [
        ("hooks", BaseHook, ()),
        ("operators", BaseOperator, (BaseSensorOperator, DecoratedOperator)),
        ("sensors", BaseSensorOperator, ()),
        ("triggers", BaseTrigger, ()),
    ],
)
def test_every_module_is_named_when_it_defines_something_of_a_kind(
    kind: str, base: type, but: tuple[type, ...]
) -> None:
    named = {name for integration in get_provider_info()[kind] for name in integration["python-modules"]}

    assert named >= set(defined_in(kind, base, but=but))


def test_every_extra_link_is_named_when_there_is_one() -> None:
    root = importlib.import_module("airflow_kstreams")
    folders = [module.name for module in pkgutil.iter_modules(root.__path__) if module.ispkg]
    apart = {"batch", "cli", "explore", "kafka", "spark", "streams", "testing"}
    links = {
        f"{value.__module__}.{value.__name__}"
        for folder in set(folders) - apart
        for name in defined_in(folder, BaseOperatorLink)
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name and issubclass(value, BaseOperatorLink)
    }

    assert set(get_provider_info().get("extra-links", [])) == links


def test_decorator_is_the_one_that_dag_files_get_when_the_provider_names_it() -> None:
    (decorator,) = get_provider_info()["task-decorators"]

    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert decorator["name"] in {name for name, _ in manager.taskflow_decorators.items()}
    module, _, name = decorator["class-name"].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_no_connection_type_is_registered() -> None:
    assert not {"connection-types", "hook-class-names"} & set(get_provider_info())


def test_airflow_finds_the_provider_when_the_package_is_installed() -> None:
    ours = [
        point
        for point in entry_points(group="apache_airflow_provider")
        if point.module == provider_info_module.__name__
    ]

    assert [point.load() for point in ours] == [get_provider_info]
