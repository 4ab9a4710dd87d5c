"""How the command ends: exit codes, one line per error, its own process."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_kstreams.cli.app import app, main
from airflow_kstreams.streams.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
FLIGHTS = str(ROOT / "spark_apps" / "flight_delays.py")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def application(folder: Path, body: str) -> str:
    """Write an application file whose topology function has this body."""
    path = folder / f"app_{abs(hash(body))}.py"
    path.write_text(f"def topology():\n    {body}\n")
    return str(path)


def test_commands_are_listed_when_asked_for_help() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert {"describe", "explore"} <= {*re.findall(r"\w+", result.stdout)}


def test_help_imports_neither_engine_nor_client_when_printed() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['airflow-kstreams', '--help']\n"
        "try:\n    runpy.run_module('airflow_kstreams.cli', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'airflow', 'confluent_kafka', 'igraph', 'msgspec', 'pyspark', 'rich'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "[]\n"


def test_entry_point_is_the_command_when_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    point = importlib.metadata.EntryPoint(
        name="airflow-kstreams", value=scripts["airflow-kstreams"], group="console_scripts"
    )
    assert point.load() is main


def test_topology_is_printed_when_run_as_a_process() -> None:
    done = process("describe", FLIGHTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Topologies:\n   Sub-topology: 0\n    Source: ")


def test_error_is_one_line_on_stderr_when_it_is_of_this_package(tmp_path: Path) -> None:
    done = process("describe", application(tmp_path, "return 1"))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"error: .* returned int, not a Topology -- what to do: end the function .*\n", done.stderr
    )


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

    monkeypatch.setattr("airflow_kstreams.cli.describe.load_topology", broken)
    result = invoke("describe", FLIGHTS)
    assert isinstance(result.exception, ZeroDivisionError)


def test_exit_code_is_130_when_interrupted(tmp_path: Path) -> None:
    waiting = application(tmp_path, "import signal; print('ready', flush=True); signal.pause()")
    running = subprocess.Popen(
        [sys.executable, "-m", "airflow_kstreams.cli", "describe", waiting],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may have it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert running.stderr is not None
    assert running.stderr.readline() == "ready\n"  # what the file prints stays out of the output
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=30)
    assert (running.returncode, output, errors) == (130, "", "")


def test_lines_become_one_when_a_cause_has_several(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise ConfigError("one\n  two", fix="three\nfour")

    monkeypatch.setattr("airflow_kstreams.cli.describe.load_topology", refuse)
    result = invoke("describe", FLIGHTS)
    assert (result.exit_code, result.stderr) == (1, "error: one two -- what to do: three four\n")
