"""docs/reference/installing.md says what is: the extras, the connections, the settings of the archive."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.spark.driver.package_archive import spark_conf
from tests.support.airflow.python_environment import ROOT

_PAGE = (ROOT / "docs" / "reference" / "installing.md").read_text(encoding="utf-8")
_CONNECTIONS = dict(
    shlex.split(line)[1].split("=", 1) for line in _PAGE.splitlines() if line.startswith("export ")
)


def test_every_extra_is_in_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = _PAGE.partition("| extra | for |")[2].partition("\n\n")[0]
    named = re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\|[^|]+\|", table, re.MULTILINE)))
    assert set(named) == set(project["optional-dependencies"])


@pytest.mark.parametrize("variable", _CONNECTIONS)
def test_connection_is_one_when_the_page_shows_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, _CONNECTIONS[variable])

    config = KafkaHook(variable.removeprefix("AIRFLOW_CONN_").lower()).client_config()

    assert config["bootstrap.servers"].startswith("broker-1:9092")
    if variable.endswith("LOGIN"):
        assert (config["sasl.username"], config["sasl.password"]) == ("alice", "secret")


def test_archives_settings_are_those_of_the_command() -> None:
    settings = "\n".join(f"{name}={value}" for name, value in spark_conf("/opt/kstreams.tar.gz").items())
    assert f"```\n{settings}\n```" in _PAGE
