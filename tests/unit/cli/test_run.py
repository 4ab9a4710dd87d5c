"""``airflow-kstreams run`` becomes the application's own process, with the settings that it was given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE
from airflow_kstreams.testing import InMemoryKafka
from tests.unit.cli.test_app import invoke


class Became:
    """What the process became."""

    command: list[str]
    config: dict[str, str]
    path: Path


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> Became:
    found = Became()

    def execve(_program: str, command: list[str], environment: dict[str, str]) -> None:
        found.command, found.path = command, Path(environment[CLIENT_CONFIG_FILE])
        found.config = json.loads(found.path.read_text())

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *_, **__: InMemoryKafka())
    return found


def test_process_becomes_the_applications_when_it_runs(became: Became, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text('if __name__ == "__main__":\n    pass\n')
    (tmp_path / "client.properties").write_text("client.id=me\n")
    result = invoke(
        *("run", str(file), "--application-id", "a", "--setting", "commit.interval.ms=5"),
        *("--bootstrap-server", "k:9092", "--config-file", str(tmp_path / "client.properties")),
    )

    assert result.exit_code == 0, result.output
    assert became.command[:2] == [sys.executable, str(file)]
    assert " ".join(became.command[2:]) == (
        "--application-id a --autostop-at eol --setting processing.guarantee=exactly_once "
        "--setting commit.interval.ms=5"
    )
    assert became.config == {"client.id": "me", "bootstrap.servers": "k:9092"}
    assert not became.path.exists(), "the file of settings does not stay when the process could not change"


def test_settings_of_tables_reach_the_driver_beside_those_of_the_client(
    became: Became, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "app.py"
    file.write_text('if __name__ == "__main__":\n    pass\n')
    tables = tmp_path / "tables.json"
    tables.write_text(json.dumps({"iceberg.type": "sql", "delta.aws_secret_access_key": "canary"}))
    command = ("run", str(file), "--application-id", "a", "--bootstrap-server", "k:9092")

    result = invoke(*command, "--tables-config", str(tables))

    assert result.exit_code == 0, result.output
    expected = {
        "bootstrap.servers": "k:9092",
        "iceberg.type": "sql",
        "delta.aws_secret_access_key": "canary",
    }
    assert became.config == expected
    assert "canary" not in result.output + " ".join(became.command)

    # The file that the environment names for drivers may have both.
    (tmp_path / "driver.json").write_text(json.dumps(expected))
    monkeypatch.setenv(CLIENT_CONFIG_FILE, str(tmp_path / "driver.json"))
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert became.config == expected


@pytest.mark.remedy("run.run")
def test_file_is_refused_when_it_would_start_no_run(became: Became, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("def topology(): ...\n")
    arguments = ("run", str(file), "--application-id", "a", "--bootstrap-server", "k:9092")
    result = invoke(*arguments)

    assert (result.exit_code, f"{file} starts no run" in result.stderr) == (1, True)
    for part in ('if __name__ == "__main__":', "from airflow_kstreams.spark import run", "run(topology)"):
        assert f"`{part}`" in result.stderr
    file.write_text(
        'if __name__ == "__main__":\n    from airflow_kstreams.spark import run\n    run(topology)\n'
    )
    assert invoke(*arguments).exit_code == 0
    assert became.command[1] == str(file)
