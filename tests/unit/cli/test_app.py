"""How the command begins and ends: help, exit codes, one line per error."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from airflow_kstreams import __version__
from airflow_kstreams.cli import commands
from airflow_kstreams.cli.app import COMMANDS, app, main
from airflow_kstreams.streams.errors import ConfigError
from tests.support.command_line import json_error_of

ROOT = Path(__file__).resolve().parents[3]
FLIGHTS = str(ROOT / "spark_apps" / "flight_delays.py")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_commands_are_listed_by_group_when_asked_for_help() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    _, *groups = re.split(r"^(Look|Run|Repair|Operate):$", result.stdout, flags=re.MULTILINE)
    listed = {
        group: re.findall(r"^  ([a-z-]+)  +\S", rows, re.MULTILINE)
        for group, rows in zip(groups[::2], groups[1::2], strict=True)
    }
    assert listed == {
        group: [name for name, command in COMMANDS.items() if command.group == group] for group in listed
    }
    assert sum(map(len, listed.values())) == len(COMMANDS)


def test_version_is_printed_when_asked_for() -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"airflow-kstreams {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_command_lines_that_are_understood(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    root: Any = get_command(app)
    assert (ROOT / "docs" / COMMANDS[command].page).is_file()
    with root.make_context("airflow-kstreams", [command, "--help"]) as context:
        found = root.get_command(context, command)
        below = getattr(found, "commands", {})
        shown: dict[str, list[str]] = {name: [] for name in below} or {command: []}
        for example in COMMANDS[command].examples:
            words = shlex.split(example)
            assert words.pop(0) == command
            one = below[words.pop(0)] if below else found
            one.make_context(one.name, words, parent=context)
            shown[one.name].append(f"airflow-kstreams {example}")
    for name, examples in shown.items():
        assert examples, name
        text = invoke(command, *([name] if below else []), "--help").stdout
        assert all(f"\n    {example}\n" in text for example in examples)
        assert f"Page: docs/{COMMANDS[command].page}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_a_help_text_when_it_is_listed(command: str) -> None:
    result = invoke(command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"Usage: airflow-kstreams {command} " in result.stdout


def test_every_file_of_a_command_is_listed() -> None:
    files = {path.stem.replace("_", "-") for path in Path(commands.__file__).parent.rglob("[!_]*.py")}
    assert files == {*COMMANDS}


def test_entry_point_is_the_command_when_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    point = importlib.metadata.EntryPoint(
        name="airflow-kstreams", value=scripts["airflow-kstreams"], group="console_scripts"
    )
    assert point.load() is main


@pytest.mark.promise("json-fits-its-schema")
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
def test_exit_code_is_two_and_the_error_one_line_when_the_command_line_is_wrong(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"error: .+ -- what to do: see airflow-kstreams.* --help\n", result.stderr)
    assert "[KS-" not in result.stderr
    document = json_error_of(invoke(*arguments, "--json"))
    assert (document["error"], document["code"]) == ("UsageError", "")


@pytest.mark.remedy("app._Commands._refuse_usage")
def test_help_names_the_option_when_one_is_unknown() -> None:
    error = json_error_of(invoke("describe", FLIGHTS, "--applicationid", "x", "--json"))
    assert error["fix"] == "see airflow-kstreams describe --help"
    assert "--application-id" in invoke("describe", "--help").stdout


def test_command_is_suggested_when_one_is_misspelt() -> None:
    assert "Did you mean 'status', 'state'?" in invoke("stats").stderr


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
    assert (result.exit_code, result.stderr) == (
        1,
        "error: one\\n  two [KS-APP-001] -- what to do: three\\nfour\n",
    )
    assert json_error_of(invoke("describe", FLIGHTS, "--json")) == {
        "error": "ConfigError",
        "code": "KS-APP-001",
        "cause": "one\\n  two",
        "fix": "three\\nfour",
        "retriable": False,
        "exit_code": 1,
    }
