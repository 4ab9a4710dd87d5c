"""How the command ends: exit codes, one line per error, its own process."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_kstreams.cli import commands
from airflow_kstreams.cli.app import COMMANDS, app, main
from airflow_kstreams.streams.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
FLIGHTS = str(ROOT / "spark_apps" / "flight_delays.py")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_commands_are_listed_when_asked_for_help() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    listed = re.findall(r"^  ([a-z-]+)  +\S", result.stdout.partition("Commands:")[2], re.MULTILINE)
    assert listed == [*COMMANDS]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_a_help_text_when_it_is_listed(command: str) -> None:
    result = invoke(command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"Usage: airflow-kstreams {command} " in result.stdout


def test_every_file_of_a_command_is_listed() -> None:
    files = {path.stem.replace("_", "-") for path in Path(commands.__file__).parent.glob("[!_]*.py")}
    assert files == {*COMMANDS}


def test_entry_point_is_the_command_when_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    point = importlib.metadata.EntryPoint(
        name="airflow-kstreams", value=scripts["airflow-kstreams"], group="console_scripts"
    )
    assert point.load() is main


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "no-such-file.py"],
        ["describe", FLIGHTS, "--format", "png"],
        ["describe", FLIGHTS, "--no-such-option"],
        ["no-such-command"],
        ["explore", FLIGHTS, "--rows", "-1"],
        ["explore", FLIGHTS, "--last-of", "flights"],
    ],
)
def test_exit_code_is_two_when_the_command_line_is_wrong(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_traceback_stays_when_the_error_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("airflow_kstreams.cli.commands.describe.load_topology", broken)
    result = invoke("describe", FLIGHTS)
    assert isinstance(result.exception, ZeroDivisionError)


def test_lines_become_one_when_a_cause_has_several(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise ConfigError("one\n  two", fix="three\nfour")

    monkeypatch.setattr("airflow_kstreams.cli.commands.describe.load_topology", refuse)
    result = invoke("describe", FLIGHTS)
    assert (result.exit_code, result.stderr) == (1, "error: one\\n  two -- what to do: three\\nfour\n")
