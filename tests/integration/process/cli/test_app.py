"""The command as a process of its own: exit codes, output apart from errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import process
from tests.support.fresh_python import ROOT

FLIGHTS = str(ROOT / "spark_apps" / "flight_delays.py")


def application(folder: Path, body: str) -> str:
    """Write an application file whose topology function has this body."""
    path = folder / f"app_{abs(hash(body))}.py"
    path.write_text(f"def topology():\n    {body}\n")
    return str(path)


def test_topology_is_printed_when_run_as_a_process() -> None:
    done = process("describe", FLIGHTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Topologies:\n   Sub-topology: 0\n    Source: ")


def test_error_is_one_line_on_stderr_when_it_is_of_this_package(tmp_path: Path) -> None:
    done = process("describe", application(tmp_path, "return 1"))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"error: .* returned int, not a Topology \[KS-APP-003\] -- what to do: end the function .*\n",
        done.stderr,
    )


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
