"""The releases that are proven, and those that are refused."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable

import pytest

from airflow_kstreams.launch import installation
from airflow_kstreams.launch.installation import Installed, installed, refuse_unfit_pyspark, require_airflow
from airflow_kstreams.spark.driver import spark_session
from airflow_kstreams.streams.errors import ConfigError
from tests.support.fresh_python import ROOT


def having(**versions: str) -> Callable[[str], str | None]:
    return lambda name: versions.get(name.replace("-", "_"))


@pytest.mark.promise("mixed-pysparks-are-refused")
@pytest.mark.remedy("installation.mixed_pyspark")
def test_session_is_refused_when_pyspark_and_its_client_are_of_two_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixed = having(pyspark="4.2.1", pyspark_client="4.2.0")
    monkeypatch.setattr(spark_session, "refuse_unfit_pyspark", lambda: refuse_unfit_pyspark(mixed))
    with pytest.raises(
        ConfigError, match=r"pyspark 4\.2\.1 and pyspark-client 4\.2\.0 are installed"
    ) as raised:
        spark_session.open_session("any")
    told = dict(re.findall(r"(pyspark(?:-client)?)==(\S+)", raised.value.fix))
    refuse_unfit_pyspark(having(pyspark=told["pyspark"], pyspark_client=told["pyspark-client"]))


@pytest.mark.remedy("installation.refuse_unfit_pyspark")
def test_session_is_refused_by_name_when_pyspark_is_older_than_3_5(monkeypatch: pytest.MonkeyPatch) -> None:
    old = having(pyspark="3.4.4")
    monkeypatch.setattr(spark_session, "refuse_unfit_pyspark", lambda: refuse_unfit_pyspark(old))
    with pytest.raises(
        ConfigError, match=r"need pyspark 3\.5 .* pyspark 3\.4\.4 is installed here"
    ) as raised:
        spark_session.open_session("any")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"airflow-kstreams\[(\w+)\]", raised.value.fix):
        (bounds,) = (text for text in extras[extra] if text.startswith("pyspark>"))
        first = re.search(r">=([\d.]+)", bounds)
        assert first is not None
        refuse_unfit_pyspark(having(pyspark=first[1]))


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"pyspark": "3.5.0"},
        {"pyspark": "4.2.1"},
        {"pyspark": "4.2.0", "pyspark_client": "4.2.0"},
        {"pyspark_client": "4.2.0"},
    ],
)
def test_one_version_of_pyspark_is_taken_whichever_package_brought_it(versions: dict[str, str]) -> None:
    refuse_unfit_pyspark(having(**versions))


@pytest.mark.parametrize("older", ["3.0.6", "2.11.2", "1.10.15"])
@pytest.mark.remedy("installation.require_airflow")
def test_airflow_before_3_1_is_refused_by_its_version(older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 2 is one distribution, Airflow 3 has its core in another."""
    name = "apache_airflow_core" if older.startswith("3") else "apache_airflow"
    with pytest.raises(ConfigError, match=rf"operators needs Airflow 3\.1 .* Airflow {older}") as raised:
        require_airflow(what="airflow_kstreams.operators", found=having(**{name: older}))
    assert "docs/reference/installing.md" in raised.value.fix
    monkeypatch.setattr(installation, "require", lambda *_, what: None)  # the modules, wherever this runs
    require_airflow(what="airflow_kstreams.operators", found=having(apache_airflow_core="3.1.0"))


@pytest.mark.parametrize("part", ["decorators", "hooks", "operators", "sensors", "triggers"])
def test_parts_ask_for_the_release_before_they_import_airflow(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "version", having(apache_airflow_core="3.0.6"))
    monkeypatch.delitem(sys.modules, f"airflow_kstreams.{part}", raising=False)
    with pytest.raises(ConfigError, match=r"Airflow 3\.0\.6 is installed here"):
        importlib.import_module(f"airflow_kstreams.{part}")


def test_what_is_installed_here_is_proven() -> None:
    parts = {part.name: part for part in installed()}
    assert parts.keys() >= {"Python", "pyspark"}
    assert [part for part in parts.values() if not part.is_proven] == []


def test_release_beyond_the_table_is_not_proven() -> None:
    beyond = installation.PROVEN["apache-airflow"]
    assert not Installed(name="apache-airflow", version="3.4.0", proven=beyond).is_proven
    assert not Installed(name="apache-airflow", version="3.1.0", proven=beyond).is_proven
